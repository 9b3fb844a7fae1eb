"""Sums of tensors, element by element."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from hf_lrp.relevance import compiled
from hf_lrp.relevance.rules import Rule, conserve


def residual(rule: Rule, x: Tensor, update: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """Through ``x + update``.

    x, update: [tokens, d]; relevance: [tokens, steps, d] -> the relevance of x and of update, both of that shape.
    """
    to_x, to_update = sum_of(rule, [x, update], relevance)
    return to_x, to_update


def sum_of(rule: Rule, terms: Sequence[Tensor], relevance: Tensor) -> list[Tensor]:
    """Through a sum of tensors [tokens, d], such as a residual with parallel blocks; else as `residual`."""
    if len(terms) == 2 and compiled.covers(rule, *terms, relevance):
        return list(compiled.residual(terms[0], terms[1], relevance))
    whole = sum(terms[1:], terms[0])
    received: list[Tensor | None] = [None] * len(terms)
    for part in rule.parts:
        phis = [part.phi(term) for term in terms]
        share = part.divide(relevance, sum(phis[1:], phis[0]), whole)
        received = [add(so_far, share * phi.unsqueeze(1)) for so_far, phi in zip(received, phis, strict=True)]
    result = [each for each in received if each is not None]
    conserve(rule, result, relevance.sum(-1, keepdim=True))
    return result


def add(total: Tensor | None, term: Tensor) -> Tensor:
    """Sum of parts, the first of which starts it."""
    return term if total is None else total.add_(term)
