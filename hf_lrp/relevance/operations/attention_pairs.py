"""The core of attention from position to position: what `attention` sends, before that of all queries is added up."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hf_lrp.relevance.operations.attention_core import Core, gain_of
from hf_lrp.relevance.operations.joins import add
from hf_lrp.relevance.rules import Rule


class Pairs(NamedTuple):
    """Relevance of queries [heads, steps, q], and of keys and of values by query [heads, steps, q, k]."""

    queries: Tensor
    keys: Tensor
    values: Tensor


def attention_pairs(rule: Rule, core: Core, relevance: Tensor, received: Tensor) -> Pairs:
    """Relevance that each query's output sends to the query itself, and to the keys and the values of all positions.

    relevance: as in `attention`; received: [heads, steps, 3], what `attention` sent to all queries, keys and values of
    each head, to which pairs sum up. With ``own_step`` pairs have one step, and ``received`` one for each query.
    """
    by_head = [_of_one_head(rule, core.of_heads(slice(h, h + 1)), relevance[h : h + 1]) for h in range(len(relevance))]
    queries, keys, values = (torch.cat(parts).transpose(1, 2) for parts in zip(*by_head, strict=True))
    by_weight = core.weights.unsqueeze(1) * relevance.abs().sum(-1).transpose(1, 2).unsqueeze(-1)
    if core.own_step:  # the step of a query is its own: sums are over keys alone
        received = received.unsqueeze(1)
        totals = received[..., 0], received[..., 1, None], received[..., 2, None]
        return Pairs(
            _scaled(queries, totals[0], ()),
            _scaled(keys, totals[1], (-1,)),
            _scaled(values, totals[2], (-1,), by_weight),
        )
    to_queries, to_keys, to_values = received.unsqueeze(-1).unbind(2)
    keys, values = (
        _scaled(part, total.unsqueeze(-1), (-2, -1), fallback)
        for part, total, fallback in ((keys, to_keys, None), (values, to_values, by_weight))
    )
    return Pairs(_scaled(queries, to_queries, (-1,)), keys, values)


def _of_one_head(rule: Rule, core: Core, relevance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same before totals are kept: [1, q, steps], [1, q, steps, k] twice."""
    query, key, value, weights, *_ = core
    gain = gain_of(core)
    of_query = (gain.flatten(1, 2) @ key).view(*gain.shape[:3], -1).mul_(query.unsqueeze(2))  # [1, q, d, e]
    product = query.unsqueeze(2) * key.unsqueeze(1)  # [1, q, k, e]
    along = product.relu().sum(-1)
    against = along - product.sum(-1)
    queries, keys, values = None, None, None
    for part in rule.parts:
        rising = part.phi(gain)
        falling = rising - gain if part.sign > 0 else rising + gain
        phi_query, phi_value = part.phi(of_query).sum(-1), part.phi(value)
        total = phi_query + weights @ phi_value
        total += (rising @ along.unsqueeze(-1) + falling @ against.unsqueeze(-1)).squeeze(-1)
        share = part.divide(relevance, total, None)  # [1, q, steps, d]
        queries = add(queries, (share @ phi_query.unsqueeze(-1)).squeeze(-1))
        keys = add(keys, (share @ rising) * along.unsqueeze(2) + (share @ falling) * against.unsqueeze(2))
        values = add(values, (share @ phi_value.transpose(1, 2).unsqueeze(1)) * weights.unsqueeze(2))
    assert queries is not None
    assert keys is not None
    assert values is not None
    return queries, keys, values


def _scaled(part: Tensor, total: Tensor, dims: tuple[int, ...], fallback: Tensor | None = None) -> Tensor:
    """``part`` so that it sums to ``total`` over ``dims``; ``fallback`` instead where there is nothing of it."""
    found = part.sum(dims, keepdim=True) if dims else part
    if fallback is not None:
        part = torch.where((found == 0) & (total != 0), fallback, part)
        found = part.sum(dims, keepdim=True)
    return torch.where(found == 0, 0.0, part * (total / found))
