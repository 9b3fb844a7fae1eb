"""Operations: how the relevance of their outputs goes back to their inputs.

Everything here works on plain tensors and knows no model. A rule (:mod:`hf_lrp.relevance.rules`) shares an output's
relevance out to its inputs by what they contribute, ``z_ij``. The contributions of each operation are those of Voita
et al. 2021, section 3, and what the same first-order expansion gives for operations that the paper's model lacks:

* linear: ``w_ji x_i + b_j / n``; logit: the same for one row of the output layer; convolution: for each window,
* layer norm: ``J_ji x_i + b_j / n`` with its full Jacobian J,
* RMS norm: ``J_ji x_i`` with its full Jacobian, see :func:`rms_norm`,
* residual ``x + u``: ``x_i`` and ``u_i``; product ``u * v``: ``u_i v_i`` from either factor,
* attention: its first-order expansion in queries, keys and values, see :func:`attention`.

Totals are kept within a token (within a window for convolutions, within a head for attention).

Shapes: relevance is ``[tokens, steps, features]``: all predictions ("steps") that are explained go back together, as
many right-hand sides of the same redistribution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_lrp.relevance.rules import TINY, AlphaBeta, Epsilon, Gamma, Rule, conserve

__all__ = [
    "AlphaBeta",
    "Epsilon",
    "Gamma",
    "Rule",
    "attention",
    "conserve",
    "convolution",
    "layer_norm",
    "linear",
    "logit",
    "product",
    "residual",
    "rms_norm",
]

# Contributions are built block by block. A block of this many elements stays in the cache of one CPU core, where
# building, summing and multiplying cost several times less than from memory.
CPU_BLOCK = 2**17
GPU_BLOCK = 2**26

# Attention is processed in blocks of queries while its largest intermediate tensor has more elements than this.
ATTENTION_BLOCK = 2**22

# Writes the contributions of some tokens to a tensor z: [tokens, outputs, inputs].
Writer = Callable[[slice, Tensor], object]


def linear(
    rule: Rule, x: Tensor, weight: Tensor, bias: Tensor | None, relevance: Tensor, lag: int | None = None
) -> Tensor:
    """Through ``y = x @ weight.T + bias``; the bias is shared equally by the inputs.

    x: [tokens, in]; weight: [out, in]; bias: [out]; relevance: [tokens, steps, out] -> [tokens, steps, in].
    lag: token i carries relevance only from step ``i - lag`` on (a causal decoder); None: from all steps.
    """
    outputs, inputs = weight.shape
    shift, constant = _share_bias(rule, weight.new_zeros(outputs) if bias is None else bias, inputs)
    spread = x.unsqueeze(1)

    def build(rows: slice) -> Writer:
        shift_rows, weight_rows = shift[rows, None], weight[rows]
        return lambda tokens, z: torch.addcmul(shift_rows, weight_rows, spread[tokens], out=z)

    return _redistribute(rule, build, constant, relevance, inputs, lag)


def convolution(
    rule: Rule, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int, relevance: Tensor
) -> Tensor:
    """Through a convolution over time, ``y_t = sum_k weight_k x_{stride t + k - padding} + bias``.

    Each output frame is a linear map of its window, and its total is kept within the window. Padding is no input: the
    first and last windows have fewer inputs, which share the bias among them.

    x: [frames, in]; weight: [out, in, kernel]; bias: [out].
    relevance: [out frames, steps, out] -> [frames, steps, in].
    """
    frames, kernel = len(x), weight.shape[-1]
    if padding >= kernel:
        raise ValueError(
            f"padding must be less than the kernel's {kernel}, or windows without input arise: {padding}."
        )
    result = relevance.new_zeros(frames, relevance.shape[1], x.shape[1])
    starts = torch.arange(len(relevance), device=x.device) * stride - padding
    first, end = starts.neg().clamp_min(0), (frames - starts).clamp_max(kernel)  # the taps that are inside
    kinds, kind_of = torch.stack([first, end], 1).unique(dim=0, return_inverse=True)
    for number, (low, high) in enumerate(kinds.tolist()):
        windows = (kind_of == number).nonzero().squeeze(1)
        positions = starts[windows, None] + torch.arange(low, high, device=x.device)  # [windows, taps]
        taps = weight[:, :, low:high].transpose(1, 2).flatten(1)
        received = linear(rule, x[positions].flatten(1), taps, bias, relevance[windows])
        for tap, part in enumerate(received.chunk(high - low, -1)):
            result.index_add_(0, positions[:, tap], part)
    return result


def layer_norm(
    rule: Rule, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, relevance: Tensor, lag: int | None = None
) -> Tensor:
    """Through layer norm, ``J_ji = weight_j / sigma * (delta_ij - 1/d - xhat_i xhat_j / d)``.

    For rules that detach, sigma is a constant and the last term is absent.

    x: [tokens, d]; relevance: [tokens, steps, d] -> [tokens, steps, d]; lag as in :func:`linear`.
    """
    d = x.shape[-1]
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    sigma = torch.sqrt(variance + eps)
    normed, gain = (x - mean) / sigma, weight / sigma
    shift, constant = _share_bias(rule, torch.zeros_like(weight) if bias is None else bias, d)
    coupling = torch.zeros_like(x) if rule.detaches else gain * normed / d
    left = torch.stack([-gain / d, -coupling, shift.expand_as(x)], -1)  # [tokens, d (output), 3]
    right = torch.stack([x, normed * x, torch.ones_like(x)], 1)  # [tokens, 3, d (input)]
    diagonal = gain * x

    def build(rows: slice) -> Writer:
        left_rows, diagonal_rows = left[:, rows], diagonal[:, rows]

        def write(tokens: slice, z: Tensor) -> None:
            torch.bmm(left_rows[tokens], right[tokens], out=z)
            z.diagonal(rows.start, 1, 2).add_(diagonal_rows[tokens])

        return write

    return _redistribute(rule, build, constant, relevance, d, lag)


def rms_norm(rule: Rule, x: Tensor, weight: Tensor, relevance: Tensor) -> Tensor:
    """Through ``y_j = weight_j x_j / r``, ``r^2 = mean(x^2) + eps``: no mean, no bias.

    With the full Jacobian ``z_ij = weight_j / r * (delta_ij x_i - x_i^2 x_j / (d r^2))``. What an output receives from
    its own input has the sign of ``weight_j x_j``, what it receives from the others has the opposite one. So the part
    of that sign goes to the own input as a whole, the other part to the other inputs in proportion to ``x_i^2``; r and
    its eps drop out.

    For rules that detach, r is a constant and ``z_jj = weight_j x_j / r`` is an output's only contribution; r counts
    without its eps, which would only change the unit that these rules' stabilisers are measured in.

    x: [tokens, d]; relevance: [tokens, steps, d] -> [tokens, steps, d]. The cost is linear in d, so that there is
    nothing to save for a causal decoder (``lag``).
    """
    result = torch.zeros_like(relevance)
    tiny = TINY[x.dtype]
    if rule.detaches:
        z = weight * x / x.square().mean(-1, keepdim=True).sqrt_().clamp_min_(tiny)
        for part in rule.parts:
            phi = part.phi(z)
            result += part.divide(relevance, phi, z) * phi.unsqueeze(1)
    else:
        square = (x / x.abs().amax(-1, keepdim=True).clamp_min_(tiny)).square_()  # in units in which none overflows
        sign = weight.sign() * x.sign()
        for part in rule.parts:
            own, others = (relevance * (sign == s).unsqueeze(1) for s in (part.sign, -part.sign))
            result += own.mul_(part.share)
            result += _sum_of_others(part.divide(others, _sum_of_others(square))).mul_(square.unsqueeze(1))
    conserve(rule, [result], relevance.sum(-1, keepdim=True))
    return result


def _sum_of_others(x: Tensor) -> Tensor:
    """``sum_{k != i} x_k`` over the last dimension; not as a difference, which is all rounding if one x_k is huge."""
    before, after = x.cumsum(-1), x.flip(-1).cumsum(-1).flip(-1)
    return F.pad(before[..., :-1], (1, 0)) + F.pad(after[..., 1:], (0, 1))


def _share_bias(rule: Rule, bias: Tensor, inputs: int) -> tuple[Tensor, Tensor | None]:
    """What each input has of the bias, and what of it stands as an input of its own.

    An equal share would break the proportion of relevance and activation that rules which detach live on: for them
    the bias is one more input, whose relevance :func:`conserve` gives to the others.
    """
    return (torch.zeros_like(bias), bias) if rule.detaches else (bias / inputs, None)


def _redistribute(
    rule: Rule,
    build: Callable[[slice], Writer],
    constant: Tensor | None,
    relevance: Tensor,
    inputs: int,
    lag: int | None,
) -> Tensor:
    """Equation (1) for operations on single tokens whose contributions ``build(outputs)(tokens, z)`` writes to z.

    constant: [outputs], a contribution that belongs to no input.
    relevance: [tokens, steps, outputs] -> [tokens, steps, inputs]; z: [tokens, outputs, inputs] of the block.
    """
    tokens, steps, outputs = relevance.shape
    parts = rule.parts
    result = relevance.new_empty(tokens, steps, inputs) if lag is None else relevance.new_zeros(tokens, steps, inputs)
    block = _block_shape(outputs, inputs, relevance.device)
    buffer = relevance.new_empty(min(tokens, block.tokens), block.rows, inputs)
    chunks = _chunks(relevance, result, block, lag)
    for number, row in enumerate(range(0, outputs, block.rows)):
        rows = slice(row, min(row + block.rows, outputs))
        write = build(rows)
        for chunk in chunks:
            sent, z = chunk.sent[number], buffer
            if sent.shape != chunk.share.shape or len(sent) != len(buffer):
                z = buffer[: len(sent), : rows.stop - row]
            for part in parts:
                write(chunk.tokens, z)
                output = z.sum(-1) if part.of_sign else None
                part.phi_(z)
                total = z.sum(-1)
                if constant is not None:
                    total += part.phi(constant[rows])
                    output = None if output is None else output + constant[rows]
                share = part.divide(sent, total, output, chunk.share if sent.shape == chunk.share.shape else None)
                chunk.received.baddbmm_(share, z, beta=0 if row == 0 and part is parts[0] else 1)
    for chunk in chunks:
        if chunk.steps.start:
            result[chunk.tokens, chunk.steps] = chunk.received
    conserve(rule, [result], relevance.sum(-1, keepdim=True))
    return result


class _Chunk(NamedTuple):
    """Tokens that are processed together, and the steps from which they carry relevance.

    sent: their relevance by blocks of outputs; received: that of their inputs; share: memory to divide in.
    """

    tokens: slice
    steps: slice
    sent: tuple[Tensor, ...]
    received: Tensor
    share: Tensor


def _chunks(relevance: Tensor, result: Tensor, block: _Block, lag: int | None) -> list[_Chunk]:
    tokens, steps, _ = relevance.shape
    memory = relevance.new_empty(min(tokens, block.tokens) * steps * block.rows)
    chunks = []
    for start in range(0, tokens, block.tokens):
        chunk = slice(start, min(start + block.tokens, tokens))
        live = slice(0 if lag is None else max(0, start - lag), steps)
        received = result[chunk] if live.start == 0 else result[chunk, live].clone()  # contiguous
        sent = relevance[chunk, live].split(block.rows, -1)
        chunks.append(_Chunk(chunk, live, sent, received, memory[: sent[0].numel()].view_as(sent[0])))
    return chunks


class _Block(NamedTuple):
    rows: int
    tokens: int


def _block_shape(outputs: int, inputs: int, device: torch.device) -> _Block:
    """How many outputs and how many tokens to build at a time."""
    cores, size = (torch.get_num_threads(), CPU_BLOCK) if device.type == "cpu" else (1, GPU_BLOCK)
    rows = max(1, min(outputs, size // inputs))
    return _Block(rows, cores * max(2, size // (rows * inputs)))  # at least two each, for fewer calls


def residual(rule: Rule, x: Tensor, update: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """Through ``x + update``.

    x, update: [tokens, d]; relevance: [tokens, steps, d] -> the relevance of x and of update, both of that shape.
    """
    to_x, to_update = None, None
    for part in rule.parts:
        phi_x, phi_update = part.phi(x), part.phi(update)
        share = part.divide(relevance, phi_x + phi_update, x + update)
        to_x = _add(to_x, share * phi_x.unsqueeze(1))
        to_update = _add(to_update, share.mul_(phi_update.unsqueeze(1)))
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


def logit(rule: Rule, x: Tensor, row: Tensor, bias: Tensor) -> Tensor:
    """From one logit per token, ``row @ x + bias``, whose relevance is 1, to x.

    x: [tokens, d]; row: [tokens, d]; bias: [tokens] -> [tokens, 1, d].
    """
    shift, constant = _share_bias(rule, bias[:, None], x.shape[-1])
    z = row * x + shift
    one = x.new_ones(len(x), 1, 1)
    result = torch.zeros_like(z)[:, None]
    for part in rule.parts:
        phi = part.phi(z)
        total, output = phi.sum(-1, keepdim=True), z.sum(-1, keepdim=True)
        if constant is not None:
            total, output = total + part.phi(constant), output + constant
        result += part.divide(one, total, output) * phi[:, None]
    conserve(rule, [result], one)
    return result


def attention(
    rule: Rule, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, relevance: Tensor, own_step: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Through ``o = softmax(query @ key.T) @ value``, per head, with p the attention weights.

    First-order expansion: with ``G_qdk = p_qk (v_kd - o_qd)``, output (q, d) receives ``p_qk v_kd`` from value (k, d),
    ``G_qdk q_qe k_ke`` from key (k, e) and ``sum_k G_qdk k_ke q_qe`` from query (q, e), under one normaliser.
    Since ``relu(G P) = G⁺ P⁺ + G⁻ P⁻``, no tensor over (q, d, k, e) is needed. For rules that detach, p is a constant
    and only values receive relevance.

    query: [heads, q, e], scaled; key: [heads, k, e]; value: [heads, k, d]; weights: [heads, q, k].
    relevance: [heads, q, steps, d] -> relevance of query [heads, q, steps, e], key [heads, k, steps, e] and value
    [heads, k, steps, d]. With ``own_step`` each query stands for one step of its own: relevance and the relevance of
    query are [.., q, 1, ..], those of key and value have q steps.
    """
    if rule.detaches:
        received = _to_values(rule, query, value, weights, relevance, own_step)
    else:
        received = _to_all(rule, query, key, value, weights, relevance, own_step)
    _conserve_heads(rule, received, weights, relevance, own_step)
    return received


def _to_values(
    rule: Rule, query: Tensor, value: Tensor, weights: Tensor, relevance: Tensor, own_step: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention with constant weights: queries and keys receive nothing."""
    output = weights @ value
    to_value = None
    for part in rule.parts:
        phi = part.phi(value)
        share = part.divide(relevance, weights @ phi, output)
        to_value = _add(to_value, _spread(weights, share, own_step) * phi.unsqueeze(2))
    assert to_value is not None
    to_query = relevance.new_zeros(*relevance.shape[:3], query.shape[-1])
    return to_query, to_value.new_zeros(*to_value.shape[:3], query.shape[-1]), to_value


def _to_all(
    rule: Rule, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, relevance: Tensor, own_step: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention with its expansion in queries, keys and values, by blocks of queries where they are many."""
    heads, queries, keys = weights.shape
    steps, width = relevance.shape[2], query.shape[-1]
    size = max(1, ATTENTION_BLOCK // (heads * keys * max(steps, width, value.shape[-1])))
    if size >= queries:
        return _expand(rule, query, key, value, weights, relevance, own_step)
    to_query = relevance.new_empty(heads, queries, steps, width)
    to_key, to_value = (
        relevance.new_zeros(heads, keys, queries if own_step else steps, t.shape[-1]) for t in (key, value)
    )
    for start in range(0, queries, size):
        block = slice(start, start + size)
        received = _expand(rule, query[:, block], key, value, weights[:, block], relevance[:, block], own_step)
        reached = block if own_step else slice(None)
        to_query[:, block] = received[0]
        to_key[:, :, reached] += received[1]
        to_value[:, :, reached] += received[2]
    return to_query, to_key, to_value


def _expand(
    rule: Rule, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, relevance: Tensor, own_step: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The same, with intermediate tensors over all pairs of queries and keys."""
    # v - o from differences to the value with the largest weight: exact also where that weight is almost 1
    top = weights.argmax(-1, keepdim=True).expand(-1, -1, value.shape[-1])
    offset = value.transpose(1, 2).unsqueeze(1) - value.gather(1, top).unsqueeze(-1)  # [heads, q, d, k]
    gain = offset.sub_(offset @ weights.unsqueeze(-1)).mul_(weights.unsqueeze(2))  # G: [heads, q, d, k]
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
        to_query = _add(to_query, share @ phi_query)
        to_key = _add(to_key, _by_key(share @ rising, along, own_step) + _by_key(share @ falling, against, own_step))
        to_value = _add(to_value, _spread(weights, share, own_step) * phi_value.unsqueeze(2))
    assert to_query is not None
    assert to_key is not None
    assert to_value is not None
    return to_query, to_key, to_value


def _add(total: Tensor | None, term: Tensor) -> Tensor:
    return term if total is None else total.add_(term)


def _by_key(routed: Tensor, product: Tensor, own_step: bool) -> Tensor:
    """Sum over queries of routed [heads, q, steps, k] times product [heads, k, q, e]: [heads, k, steps, e]."""
    return routed.permute(0, 3, 1, 2) * product if own_step else routed.permute(0, 3, 2, 1) @ product


def _spread(weights: Tensor, relevance: Tensor, own_step: bool) -> Tensor:
    """What keys receive if queries send by attention weight: [heads, q, steps, d] -> [heads, k, steps, d]."""
    if own_step:
        return weights.transpose(1, 2).unsqueeze(-1) * relevance.transpose(1, 2)
    return (weights.transpose(1, 2) @ relevance.flatten(2)).view(len(weights), -1, *relevance.shape[2:])


def _conserve_heads(
    rule: Rule, received: tuple[Tensor, Tensor, Tensor], weights: Tensor, relevance: Tensor, own_step: bool
) -> None:
    """Keep each head's total per step; a head that sends nothing back sends to the values by attention weight."""
    to_query, to_key, to_value = received
    total = relevance
    if own_step:  # [heads, q, 1, d] is read as [heads, 1, steps, d]
        to_query, total = to_query.transpose(1, 2), relevance.transpose(1, 2)

    def by_weight() -> list[Tensor]:
        values = _spread(weights, relevance.abs(), own_step)
        return [torch.zeros_like(to_query), torch.zeros_like(to_key), values]

    conserve(rule, [to_query, to_key, to_value], total.sum((1, 3), keepdim=True), (1, 3), by_weight)
