"""Linear layers, convolutions over time, and single logits."""

from __future__ import annotations

import torch
from torch import Tensor

from hf_lrp.relevance import compiled
from hf_lrp.relevance.operations.by_token import Writer, redistribute, share_bias
from hf_lrp.relevance.rules import Rule, conserve


def linear(
    rule: Rule, x: Tensor, weight: Tensor, bias: Tensor | None, relevance: Tensor, lag: int | None = None
) -> Tensor:
    """Through ``y = x @ weight.T + bias``; the bias is shared equally by the inputs.

    x: [tokens, in]; weight: [out, in]; bias: [out]; relevance: [tokens, steps, out] -> [tokens, steps, in].
    lag: token i carries relevance only from step ``i - lag`` on (a causal decoder); None: from all steps.
    """
    if compiled.covers(rule, x, weight, bias, relevance):
        return compiled.linear(x, weight, bias, relevance, lag)
    outputs, inputs = weight.shape
    shift, constant = share_bias(rule, weight.new_zeros(outputs) if bias is None else bias, inputs)
    spread = x.unsqueeze(1)

    def build(rows: slice) -> Writer:
        shift_rows, weight_rows = shift[rows, None], weight[rows]
        return lambda tokens, z: torch.addcmul(shift_rows, weight_rows, spread[tokens], out=z)

    return redistribute(rule, build, constant, relevance, inputs, lag)


def gated(
    rule: Rule,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gate: Tensor,
    gate_bias: Tensor | None,
    relevance: Tensor,
    lag: int | None = None,
) -> Tensor:
    """Through ``u * v``, elementwise, with ``u = x @ weight.T + bias`` and ``v = x @ gate.T + gate_bias``.

    Half of the product's relevance goes to each factor, whatever the rule: both terms of the first-order expansion,
    ``(dy/du) u`` and ``(dy/dv) v``, are ``u v``. Relevance of a negative or zero product goes the same way, as it does
    at an activation, through which u has passed unchanged. Each layer keeps its total.

    Shapes and lag as in `linear`, gate as weight.
    """
    if compiled.covers(rule, x, weight, bias, gate, gate_bias, relevance):
        return compiled.gated(x, weight, bias, gate, gate_bias, relevance, lag)
    half = relevance / 2
    return linear(rule, x, weight, bias, half, lag).add_(linear(rule, x, gate, gate_bias, half, lag))


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
    starts = torch.arange(len(relevance)) * stride - padding  # on the CPU: a GPU need not be waited for
    first, end = starts.neg().clamp_min(0), (frames - starts).clamp_max(kernel)  # the taps that are inside
    kinds, kind_of = torch.stack([first, end], 1).unique(dim=0, return_inverse=True)
    for number, (low, high) in enumerate(kinds.tolist()):
        windows = (kind_of == number).nonzero().squeeze(1)
        positions = (starts[windows, None] + torch.arange(low, high)).to(x.device)  # [windows, taps]
        taps = weight[:, :, low:high].transpose(1, 2).flatten(1)
        received = linear(rule, x[positions].flatten(1), taps, bias, relevance[windows.to(x.device)])
        for tap, part in enumerate(received.chunk(high - low, -1)):
            result.index_add_(0, positions[:, tap], part)
    return result


def logit(rule: Rule, x: Tensor, row: Tensor, bias: Tensor) -> Tensor:
    """From one logit per token, ``row @ x + bias``, whose relevance is 1, to x.

    x: [tokens, d]; row: [tokens, d]; bias: [tokens] -> [tokens, 1, d].
    """
    shift, constant = share_bias(rule, bias[:, None], x.shape[-1])
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
