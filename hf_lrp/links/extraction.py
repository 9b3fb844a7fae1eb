"""Links between words from weights between tokens: what holds both ways."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Extraction:
    """How links are read from strengths. The defaults were chosen on halves of three sets (docs/alignment.md).

    Attributes:
        mutual: the least strength of a link that is the best of its target word and of its source word.
        other: that of other links, by which a word may have several.
        ratio: how much of the best strengths of both its words such a link must have.
    """

    mutual: float = 0.2
    other: float = 0.35
    ratio: float = 0.7


DEFAULT = Extraction()
DIAGONAL = 0.5  # how fast strength falls with the distance of relative positions


def word_weights(weights: Tensor, target: Tensor, source: Tensor) -> Tensor:
    """Weights between words, [..., target words, source words], summed over pieces.

    Args:
        weights: [..., T, S], special tokens included, which are no word's.
        target, source: which share of each token is whose, [words, tokens].
    """
    return target @ weights.float() @ source.T


def link_strengths(weights: Tensor, diagonal: float = DIAGONAL) -> Tensor:
    """How strong each link is, from 0 to 1: [..., target words, source words].

    The mean of its share of the target word and its share of the source word, times e^(−diagonal · distance of
    relative positions).
    """
    rows = weights / weights.sum(-1, True).clamp(min=1e-12)
    columns = weights / weights.sum(-2, True).clamp(min=1e-12)
    return (rows + columns) / 2 * torch.exp(-diagonal * distances(*weights.shape[-2:]))


def distances(targets: int, sources: int) -> Tensor:
    """Distances of relative positions, [target words, source words]."""
    at = [(torch.arange(n) + 0.5) / n for n in (targets, sources)]
    return (at[0][:, None] - at[1]).abs()


def linked(strengths: Tensor, how: Extraction) -> Tensor:
    """Where links are: [..., target words, source words], of strengths so shaped."""
    best = torch.minimum(
        strengths / strengths.amax(-1, True).clamp(min=1e-12), strengths / strengths.amax(-2, True).clamp(min=1e-12)
    )
    return (strengths >= how.mutual) & (best >= 1) | (strengths >= how.other) & (best >= how.ratio)


def read_links(strengths: Tensor, how: Extraction) -> set[tuple[int, int]]:
    """Pairs of source and target word, from strengths [target words, source words]."""
    return {(source, target) for target, source in linked(strengths, how).nonzero().tolist()}


def mutual_best(weights: Tensor) -> Tensor:
    """The share of words whose best choice chooses them too: [heads], of weights [heads, target words, source words].

    The best choice of a target word has the largest share of what the source word gets, and the other way round.
    """
    strengths = link_strengths(weights, diagonal=0.0)
    by_row, by_column = strengths.argmax(2), strengths.argmax(1)
    back = by_column.gather(1, by_row)
    agree = (back == torch.arange(weights.shape[1])).sum(1)
    return agree / max(weights.shape[1:])
