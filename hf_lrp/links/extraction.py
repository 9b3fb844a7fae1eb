"""Links between words from weights between tokens: what holds both ways."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Extraction:
    """How links are read from weights.

    Attributes:
        threshold: of the strength of a link, the geometric mean of its shares of both words.
        ratio: how much of the best strength of its target word and of its source word a link must have.
        diagonal: how fast strength falls with the distance of relative positions.
    """

    threshold: float = 0.275
    ratio: float = 0.75
    diagonal: float = 0.5


def word_weights(weights: Tensor, target: Tensor, source: Tensor) -> Tensor:
    """Weights between words, [target words, source words], summed over heads and pieces.

    Args:
        weights: [heads, T, S], special tokens included, which are no word's.
        target, source: which share of each token is whose, [words, tokens].
    """
    return target @ weights.float().sum(0) @ source.T


def link_strengths(weights: Tensor, diagonal: float) -> Tensor:
    """How strong each link is, from 0 to 1: [target words, source words].

    √(share within the target word × share within the source word) · e^(−diagonal · distance of relative positions).
    """
    rows = weights / weights.sum(1, True).clamp(min=1e-12)
    columns = weights / weights.sum(0, True).clamp(min=1e-12)
    targets, sources = weights.shape
    at = [(torch.arange(n) + 0.5) / n for n in (targets, sources)]
    distance = (at[0][:, None] - at[1]).abs()
    return (rows * columns).sqrt() * torch.exp(-diagonal * distance)


def read_links(strengths: Tensor, how: Extraction) -> set[tuple[int, int]]:
    """Pairs of source and target word whose strength is above the threshold and near the best both ways."""
    best = torch.minimum(
        strengths / strengths.amax(1, True).clamp(min=1e-12), strengths / strengths.amax(0, True).clamp(min=1e-12)
    )
    linked = (strengths > how.threshold) & (best >= how.ratio)
    return {(source, target) for target, source in linked.nonzero().tolist()}


def mutual_best(strengths: Tensor) -> Tensor:
    """The share of words whose best choice chooses them too: [heads] of [heads, target words, source words]."""
    by_row, by_column = strengths.argmax(2), strengths.argmax(1)
    back = by_column.gather(1, by_row)
    agree = (back == torch.arange(strengths.shape[1])).sum(1)
    return agree / max(strengths.shape[1:])
