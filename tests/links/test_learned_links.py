"""Strengths that gold links taught, against plain loops; and whether what is learned is the best there is."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from hf_lrp.links.extraction import link_strengths
from hf_lrp.links.heads import Head, LinkHeads
from hf_lrp.links.learned import PENALTY, count_coefficients, learn, learned_strengths

HEADS = LinkHeads((Head(0, 0), Head(1, 0)), weights=(1.0, 0.5))


def some_pairs(count: int) -> tuple[list[Tensor], list[Tensor]]:
    """Weights [2, T, S] whose first head is high on the sure links, the diagonal; and these links."""
    generator = torch.Generator().manual_seed(3)
    weights, sure = [], []
    for number in range(count):
        targets, sources = 3 + number % 3, 4
        links = torch.eye(targets, sources, dtype=torch.bool)
        noise = torch.rand(2, targets, sources, generator=generator)
        weights.append(noise + torch.tensor([1.0, 0.0])[:, None, None] * links)
        sure.append(links)
    return weights, sure


def slow_features(weights: list[list[list[float]]], combined: list[list[float]], t: int, s: int) -> list[float]:
    targets, sources = len(combined), len(combined[0])
    distance = abs((t + 0.5) / targets - (s + 0.5) / sources)
    strengths = link_strengths(torch.tensor(combined)).tolist()
    own = strengths[t][s]
    features = [own, math.sqrt(own), own / max(strengths[t]), own / max(row[s] for row in strengths), distance]
    features += [math.sqrt(w[t][s] / sum(w[t])) for w in weights]
    return features + [math.sqrt(w[t][s] / sum(row[s] for row in w)) for w in weights]


def test_strengths_agree_with_a_slow_version() -> None:
    weights = some_pairs(1)[0][0]
    combined = HEADS.combine(weights)
    coefficients = torch.randn(count_coefficients(2), generator=torch.Generator().manual_seed(0)).tolist()
    found = replace(HEADS, learned=tuple(coefficients)).strengths(weights)
    for t, row in enumerate(found.tolist()):
        for s, strength in enumerate(row):
            x = slow_features(weights.tolist(), combined.tolist(), t, s)
            total = coefficients[0] + sum(c * f for c, f in zip(coefficients[1:], x, strict=True))
            assert math.isclose(strength, 1 / (1 + math.exp(-total)), abs_tol=1e-5)


def test_what_is_learned_tells_links_apart_and_cannot_be_bettered() -> None:
    weights, sure = some_pairs(12)
    combined = [HEADS.combine(each) for each in weights]
    possible = [links.clone() for links in sure]
    possible[0][0, 2] = True  # neither a link nor none
    coefficients = learn(weights, combined, sure, possible)
    for each, together, links in zip(weights, combined, sure, strict=True):
        strengths = learned_strengths(each, together, coefficients)
        assert strengths[links].min() > strengths[~links].max()

    x, y = [], []
    for each, together, links, allowed in zip(weights, combined, sure, possible, strict=True):
        for t in range(links.shape[0]):
            for s in range(links.shape[1]):
                if links[t, s] or not allowed[t, s]:
                    x.append(slow_features(each.tolist(), together.tolist(), t, s))
                    y.append(links[t, s].item())
    table, wanted = torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)
    width = table.std(0)

    def loss(values: Tensor) -> Tensor:
        """As defined, of coefficients as they are given."""
        log_odds = values[0] + table @ values[1:]
        likelihood = torch.nn.functional.logsigmoid(log_odds * (2 * wanted - 1)).mean()
        return PENALTY * (values[1:] * width).square().sum() - likelihood

    found = torch.tensor(coefficients, dtype=torch.float64, requires_grad=True)
    least = loss(found)
    least.backward()
    assert found.grad is not None
    scaled = found.grad[1:] / width
    assert least < 0.1 and scaled.abs().max() < 1e-3 and found.grad[0].abs() < 1e-3
