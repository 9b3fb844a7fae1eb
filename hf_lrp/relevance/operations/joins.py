"""What joins two tensors element by element: sums and products."""

from __future__ import annotations

from torch import Tensor

from hf_lrp.relevance import compiled
from hf_lrp.relevance.rules import Rule, conserve


def residual(rule: Rule, x: Tensor, update: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """Through ``x + update``.

    x, update: [tokens, d]; relevance: [tokens, steps, d] -> the relevance of x and of update, both of that shape.
    """
    if compiled.covers(rule, x, update, relevance):
        return compiled.residual(x, update, relevance)
    to_x, to_update = None, None
    for part in rule.parts:
        phi_x, phi_update = part.phi(x), part.phi(update)
        share = part.divide(relevance, phi_x + phi_update, x + update)
        to_x = add(to_x, share * phi_x.unsqueeze(1))
        to_update = add(to_update, share.mul_(phi_update.unsqueeze(1)))
    assert to_x is not None
    assert to_update is not None
    conserve(rule, [to_x, to_update], relevance.sum(-1, keepdim=True))
    return to_x, to_update


def product(relevance: Tensor) -> tuple[Tensor, Tensor]:
    """Through ``u * v``, elementwise: half to each factor, whatever the rule.

    Both terms of the first-order expansion, ``(dy/du) u`` and ``(dy/dv) v``, are ``u v``. Relevance of a negative or
    zero product goes the same way, in place, as it does at an activation.

    relevance: [tokens, steps, d] -> the relevance of u and of v, both of that shape.
    """
    return relevance / 2, relevance / 2


def add(total: Tensor | None, term: Tensor) -> Tensor:
    """Sum of parts, the first of which starts it."""
    return term if total is None else total.add_(term)
