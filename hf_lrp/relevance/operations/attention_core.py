"""The core of attention: from its outputs to queries, keys and values."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hf_lrp.relevance import compiled
from hf_lrp.relevance.operations.joins import add
from hf_lrp.relevance.reused_memory import new_empty
from hf_lrp.relevance.rules import Rule, conserve, may_hold, rescale

# Attention is processed in blocks of queries while its largest intermediate tensor has more elements than this.
ATTENTION_BLOCK = 2**22
GPU_BLOCK = 2**27

# On a CPU, heads are processed together while their intermediate tensors stay below this many elements: larger ones
# cost more in memory that the system has to clear than they save. On a GPU they go together up to GPU_BLOCK.
HEAD_BLOCK = 2**18

# In a causal decoder attention is processed in this many blocks of queries, for which later keys and earlier steps are
# left out, if it has at least as many queries as the second number.
CAUSAL_BLOCKS, CAUSAL_QUERIES = 4, 32


class Core(NamedTuple):
    """Tensors that attention is computed from, and which of them have to do with relevance; as in `attention`."""

    query: Tensor
    key: Tensor
    value: Tensor
    weights: Tensor
    slope: Tensor | None
    own_step: bool
    lag: int | None
    causal: bool

    def of_heads(self, heads: slice) -> Core:
        """Some of the heads."""
        slope = None if self.slope is None else self.slope[heads]
        states = self.query[heads], self.key[heads], self.value[heads], self.weights[heads]
        return Core(*states, slope, self.own_step, self.lag, self.causal)

    def of_queries(self, queries: slice, keys: slice) -> Core:
        """Some of the queries, and the keys they see."""
        slope = None if self.slope is None else self.slope[:, queries, keys]
        states = self.query[:, queries], self.key[:, keys], self.value[:, keys], self.weights[:, queries, keys]
        return Core(*states, slope, self.own_step, self.lag, self.causal)


def attention(
    rule: Rule,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Tensor,
    relevance: Tensor,
    own_step: bool = False,
    slope: Tensor | None = None,
    lag: int | None = None,
    causal: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Through ``o = softmax(query @ key.T) @ value``, per head, with p the attention weights.

    First-order expansion: with ``G_qdk = p_qk (v_kd - o_qd)``, output (q, d) receives ``p_qk v_kd`` from value (k, d),
    ``G_qdk q_qe k_ke`` from key (k, e) and ``sum_k G_qdk k_ke q_qe`` from query (q, e), under one normaliser.
    Since ``relu(G P) = G⁺ P⁺ + G⁻ P⁻``, no tensor over (q, d, k, e) is needed. For rules that detach, p is a constant
    and only values receive relevance. Where scores are functions of ``query @ key.T`` (soft caps), G has their
    derivative as one more factor: ``slope`` [heads, q, k].

    query: [heads, q, e], scaled; key: [heads, k, e]; value: [heads, k, d]; weights: [heads, q, k].
    relevance: [heads, q, steps, d] -> relevance of query [heads, q, steps, e], key [heads, k, steps, e] and value
    [heads, k, steps, d]. With ``own_step`` each query stands for one step of its own: relevance and the relevance of
    query are [.., q, 1, ..], those of key and value have q steps.

    lag: query i carries relevance only from step ``i - lag`` on; None: from all steps. causal: it sees keys 0 to i.

    Totals are kept per step, within each head; what a head without any positive input holds goes to the other heads.
    If there are none, all heads send to the values by attention weight.
    """
    core = Core(query, key, value, weights, slope, own_step, lag, causal)
    heads, queries, steps, _ = relevance.shape
    to_query = _empty(relevance, queries, steps, heads, query.shape[-1])
    to_key, to_value = (
        _empty(relevance, t.shape[1], queries if own_step else steps, heads, t.shape[-1]) for t in (key, value)
    )
    # with a step per query, [heads, q, 1, d] is read as [heads, 1, steps, d]
    by_step = to_query.transpose(1, 2) if own_step else to_query
    total = (relevance.transpose(1, 2) if own_step else relevance).sum((1, 3), keepdim=True)
    if compiled.covers(rule, query, key, value, weights, slope, relevance):
        dead = compiled.attention(*core[:5], relevance, (to_query, to_key, to_value), *core[5:])[:, None, :, None]
    else:
        dead = torch.zeros_like(total, dtype=torch.bool)
        for h in _head_slices(weights, relevance):
            parts = (_to_values if rule.detaches else _to_all)(rule, core.of_heads(h), relevance[h])
            for merged, part in zip((to_query, to_key, to_value), parts, strict=True):
                merged[h] = part
            dead[h] = rescale(rule, [by_step[h], to_key[h], to_value[h]], total[h], (1, 3))
    if may_hold(dead):

        def by_weight() -> list[Tensor]:
            values = _send_to_keys(weights, relevance.abs(), own_step)
            return [torch.zeros_like(by_step), torch.zeros_like(to_key), values]

        conserve(rule, [by_step, to_key, to_value], total.sum(0, keepdim=True), (0, 1, 3), by_weight)
    return to_query, to_key, to_value


def _empty(like: Tensor, positions: int, steps: int, heads: int, width: int) -> Tensor:
    """[heads, positions, steps, width], in memory [positions, steps, heads, width], as linear layers will want it."""
    return new_empty(like, positions, steps, heads, width).movedim(2, 0)


def _head_slices(weights: Tensor, relevance: Tensor) -> list[slice]:
    heads, queries, keys = weights.shape
    steps, width = relevance.shape[2:]
    elements = HEAD_BLOCK if weights.device.type == "cpu" else GPU_BLOCK
    size = max(1, elements // (queries * width * max(width, keys, steps)))
    return [slice(start, start + size) for start in range(0, heads, size)]


def _to_values(rule: Rule, core: Core, relevance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Attention with constant weights: queries and keys receive nothing."""
    output = core.weights @ core.value
    to_value = None
    for part in rule.parts:
        phi = part.phi(core.value)
        share = part.divide(relevance, core.weights @ phi, output)
        to_value = add(to_value, _send_to_keys(core.weights, share, core.own_step) * phi.unsqueeze(2))
    assert to_value is not None
    to_query = relevance.new_zeros(*relevance.shape[:3], core.query.shape[-1])
    return to_query, to_value.new_zeros(*to_value.shape[:3], core.query.shape[-1]), to_value


def _to_all(rule: Rule, core: Core, relevance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Attention with its expansion in queries, keys and values, by blocks of queries where they are many."""
    heads, queries, keys = core.weights.shape
    steps, width, lag = relevance.shape[2], core.query.shape[-1], core.lag
    elements = ATTENTION_BLOCK if relevance.device.type == "cpu" else GPU_BLOCK
    size = max(1, elements // (heads * keys * max(steps, width, core.value.shape[-1])))
    if lag is not None and queries >= CAUSAL_QUERIES:
        size = min(size, -(-queries // CAUSAL_BLOCKS))
    if size >= queries:
        return _expand(rule, core, relevance)
    to_query = relevance.new_zeros(heads, queries, steps, width)
    to_key, to_value = (
        relevance.new_zeros(heads, keys, queries if core.own_step else steps, t.shape[-1])
        for t in (core.key, core.value)
    )
    carrying = queries if lag is None else min(queries, steps + lag)
    for start in range(0, carrying, size):
        block = slice(start, start + size)
        k = slice(0, block.stop if core.causal else None)
        live = slice(0 if lag is None else max(0, start - lag), None)
        received = _expand(rule, core.of_queries(block, k), relevance[:, block, live])
        reached = block if core.own_step else live
        to_query[:, block, live] = received[0]
        to_key[:, k, reached] += received[1]
        to_value[:, k, reached] += received[2]
    return to_query, to_key, to_value


def _expand(rule: Rule, core: Core, relevance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same, with intermediate tensors over all pairs of queries and keys."""
    query, key, value, weights, _, own_step, *_ = core
    gain = gain_of(core)
    of_query = (gain.flatten(1, 2) @ key).view(*gain.shape[:3], -1).mul_(query.unsqueeze(2))  # [heads, q, d, e]
    product = key.unsqueeze(2) * query.unsqueeze(1)  # P: [heads, k, q, e]
    along = product.relu()
    against = along - product
    along_sum, against_sum = (p.sum(-1).transpose(1, 2).unsqueeze(-1) for p in (along, against))  # [heads, q, k, 1]
    to_query, to_key, to_value = None, None, None
    for part in rule.parts:
        rising = part.phi(gain)
        falling = rising - gain if part.sign > 0 else rising + gain
        phi_query, phi_value = of_query if len(rule.parts) == 1 else of_query.clone(), part.phi(value)
        part.phi_(phi_query)
        total = phi_query.sum(-1) + weights @ phi_value
        total += (rising @ along_sum + falling @ against_sum).squeeze(-1)
        share = part.divide(relevance, total, None)
        to_query = add(to_query, share @ phi_query)
        to_key = add(to_key, _by_key(share @ rising, along, own_step) + _by_key(share @ falling, against, own_step))
        to_value = add(to_value, _send_to_keys(weights, share, own_step) * phi_value.unsqueeze(2))
    assert to_query is not None
    assert to_key is not None
    assert to_value is not None
    return to_query, to_key, to_value


def gain_of(core: Core) -> Tensor:
    """G of `attention`, [heads, q, d, k]."""
    value, weights = core.value, core.weights
    # v - o from differences to the value with the largest weight: exact also where that weight is almost 1
    top = weights.argmax(-1, keepdim=True).expand(-1, -1, value.shape[-1])
    offset = value.transpose(1, 2).unsqueeze(1) - value.gather(1, top).unsqueeze(-1)
    steep = weights if core.slope is None else weights * core.slope
    return offset.sub_(offset @ weights.unsqueeze(-1)).mul_(steep.unsqueeze(2))


def _by_key(routed: Tensor, product: Tensor, own_step: bool) -> Tensor:
    """Sum over queries of routed [heads, q, steps, k] times product [heads, k, q, e]: [heads, k, steps, e]."""
    return routed.permute(0, 3, 1, 2) * product if own_step else routed.permute(0, 3, 2, 1) @ product


def _send_to_keys(weights: Tensor, relevance: Tensor, own_step: bool) -> Tensor:
    """Relevance of keys if queries send by attention weight: [heads, q, steps, d] -> [heads, k, steps, d]."""
    if own_step:
        return weights.transpose(1, 2).unsqueeze(-1) * relevance.transpose(1, 2)
    return (weights.transpose(1, 2) @ relevance.flatten(2)).view(len(weights), -1, *relevance.shape[2:])
