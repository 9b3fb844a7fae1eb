"""Strengths of links that are learned from pairs with gold links: a logistic regression over shares of weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from hf_lrp.links.extraction import distances, link_strengths

OF_ALL = 5  # features of all heads together
PENALTY = 1e-3  # on the squares of the coefficients, features having variance 1
STEPS = 60


def count_coefficients(heads: int) -> int:
    """How many coefficients there are for so many heads, the intercept included."""
    return 1 + OF_ALL + 2 * heads


def _features(weights: Tensor, combined: Tensor) -> Tensor:
    """What links are told by, [features, T, S], of weights [heads, T, S] and all heads together [T, S].

    Strength of all heads, its root, its part of the best of its row and of its column, the distance of relative
    positions; and the root of each head's share of the target word and of the source word.
    """
    strengths = link_strengths(combined)
    together = [
        strengths,
        strengths.sqrt(),
        strengths / strengths.amax(1, True).clamp(min=1e-12),
        strengths / strengths.amax(0, True).clamp(min=1e-12),
        distances(*combined.shape),
    ]
    rows = weights / weights.sum(2, True).clamp(min=1e-12)
    columns = weights / weights.sum(1, True).clamp(min=1e-12)
    return torch.cat([torch.stack(together), rows.sqrt(), columns.sqrt()]).double()


def learned_strengths(weights: Tensor, combined: Tensor, coefficients: Sequence[float]) -> Tensor:
    """The probability of each link, [T, S], by coefficients that `learn` gave."""
    intercept, *slopes = torch.tensor(coefficients, dtype=torch.float64)
    return torch.tensordot(torch.stack(slopes), _features(weights, combined), 1).add(intercept).sigmoid().float()


def learn(
    weights: Sequence[Tensor], combined: Sequence[Tensor], sure: Sequence[Tensor], possible: Sequence[Tensor]
) -> tuple[float, ...]:
    """Coefficients, the intercept first, that tell sure links from pairs of words that are not even possible.

    Args:
        weights: [heads, T, S] of each pair; combined: all heads together.
        sure, possible: the gold links, [T, S], of each pair.
    """
    x = torch.cat([_features(*each).flatten(1) for each in zip(weights, combined, strict=True)], 1).T
    y = torch.cat([links.flatten() for links in sure])
    told = y | ~torch.cat([links.flatten() for links in possible])
    x, y = x[told], y[told].double()
    middle, width = x.mean(0), x.std(0).clamp(min=1e-4)
    x = (x - middle) / width
    slopes = torch.zeros(x.shape[1], dtype=torch.float64, requires_grad=True)
    intercept = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([slopes, intercept], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = binary_cross_entropy_with_logits(x @ slopes + intercept, y) + PENALTY * slopes.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    found = slopes.detach() / width
    return ((intercept.detach() - found @ middle).item(), *found.tolist())
