"""Rotary positions: a rotation by the position's angle, which belongs to the operation before it.

A rotation mixes the two features of a pair. As an operation of its own it would pass relevance through contributions
that cancel; it is linear, so it is taken into the map that makes its input: a linear layer, or a norm's Jacobian.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hf_lrp.models.rotation import Rotation
from hf_lrp.relevance import compiled
from hf_lrp.relevance.operations.by_token import Writer, redistribute, share_bias
from hf_lrp.relevance.rules import Rule


def rotated_linear(
    rule: Rule,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    rotation: Rotation,
    relevance: Tensor,
    lag: int | None = None,
) -> Tensor:
    """Through ``y = rotation(x @ weight.T + bias)``: for each token, a linear layer whose rows are turned.

    Shapes and lag as in `linear`; rotation: of the outputs.
    """
    if compiled.covers(rule, x, weight, bias, rotation.cos, rotation.sin, relevance):
        return compiled.linear(x, weight, bias, relevance, lag, rotation)
    outputs, inputs = weight.shape
    shift, constant = share_bias(rule, weight.new_zeros(outputs) if bias is None else bias, inputs)
    shift = rotation.turn(shift.expand(len(x), -1)).unsqueeze(-1)
    cos, sin, spread = rotation.cos.unsqueeze(-1), rotation.sin.unsqueeze(-1), x.unsqueeze(1)

    def build(rows: slice) -> Writer:
        own, others = weight[rows], weight[rotation.partner[rows]]

        def write(tokens: slice, z: Tensor) -> None:
            torch.mul(own, cos[tokens, rows], out=z)
            z.addcmul_(others, sin[tokens, rows]).mul_(spread[tokens])
            if bias is not None:
                z.add_(shift[tokens, rows])

        return write

    if constant is not None:
        constant = rotation.turn(constant.expand(len(x), -1))
    return redistribute(rule, build, constant, relevance, inputs, lag)


def rotated_norm(
    rule: Rule, x: Tensor, weight: Tensor, eps: float, centred: bool, rotation: Rotation, relevance: Tensor
) -> Tensor:
    """Through ``y = rotation(norm(x))``: ``z_ij`` of the norm, ``J_ji x_i``, with its outputs turned.

    The norm has no bias; ``centred``: it subtracts the mean, as a layer norm does, else it is an RMS norm. For rules
    that detach, its denominator is a constant.

    x, weight: [tokens, d]; relevance: [tokens, steps, d] -> [tokens, steps, d].
    """
    d = x.shape[-1]
    offset = x - x.mean(-1, keepdim=True) if centred else x
    scale = torch.rsqrt(offset.square().mean(-1, keepdim=True) + eps)
    normed, gain = offset * scale, weight * scale
    # J_ji x_i = diagonal_j delta_ij + sum of left_j right_i: one product for the variance, one for the mean
    left, right = [torch.zeros_like(x) if rule.detaches else -gain * normed / d], [normed * x]
    if centred:
        left.append(-gain / d)
        right.append(x)
    turned = torch.stack([rotation.turn(part) for part in left], -1)  # [tokens, d (output), 1 or 2]
    factors = torch.stack(right, 1)  # [tokens, 1 or 2, d (input)]
    diagonal = gain * x
    own, other = rotation.cos * diagonal, rotation.sin * diagonal[:, rotation.partner]

    def build(rows: slice) -> Writer:
        partner = rotation.partner[rows]
        numbers = torch.arange(len(partner), device=x.device)

        def write(tokens: slice, z: Tensor) -> None:
            torch.bmm(turned[tokens, rows], factors[tokens], out=z)
            z.diagonal(rows.start, 1, 2).add_(own[tokens, rows])
            z[:, numbers, partner] += other[tokens, rows]

        return write

    return redistribute(rule, build, None, relevance, d, None)
