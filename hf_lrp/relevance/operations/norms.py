"""Norms: with mean and variance, and with the root mean square alone."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_lrp.relevance import compiled
from hf_lrp.relevance.operations.by_token import Writer, redistribute, share_bias
from hf_lrp.relevance.rules import TINY, Rule, conserve


def layer_norm(
    rule: Rule, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, relevance: Tensor, lag: int | None = None
) -> Tensor:
    """Through layer norm, ``J_ji = weight_j / sigma * (delta_ij - 1/d - xhat_i xhat_j / d)``.

    For rules that detach, sigma is a constant and the last term is absent.

    x: [tokens, d]; relevance: [tokens, steps, d] -> [tokens, steps, d]; lag as in `linear`.
    """
    if compiled.covers(rule, x, weight, bias, relevance):
        return compiled.layer_norm(x, weight, bias, eps, relevance, lag)
    d = x.shape[-1]
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    sigma = torch.sqrt(variance + eps)
    normed, gain = (x - mean) / sigma, weight / sigma
    shift, constant = share_bias(rule, torch.zeros_like(weight) if bias is None else bias, d)
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

    return redistribute(rule, build, constant, relevance, d, lag)


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
    if compiled.covers(rule, x, weight, relevance):
        return compiled.rms_norm(x, weight, relevance)
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
