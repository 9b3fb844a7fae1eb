"""AttnLRP again, slowly, in float64: the paper's rules for relevance itself, output by output.

They take the place of `slow_rules` in `slow_propagation`, `slow_decoder` and `slow_t5gemma`, which know how models are
joined: an output's relevance goes to its inputs in proportion to what they add to it (LRP-ε without stabiliser), and
biases keep their part; softmax: ``R_i = s_i (R_i - p_i sum_j R_j)``; a product gives half to each factor.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import decoder_layers
import pytest
import slow_decoder
import slow_propagation
import slow_t5gemma
import torch
from decoder_layers import Norm
from slow_rules import capped
from torch import Tensor
from torch.autograd.functional import jacobian

from hf_lrp.methods.method import Question


def slow_attn_lrp(question: Question, explained: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Relevance [T, S] and [T, D] of logits ``values`` [T] of ids [T]."""
    model, given = question.model, question.given[0]
    rule: Any = None
    with _in_their_place(pytest.MonkeyPatch()):
        if model.config.model_type == "t5gemma":
            ids = question.source["input_ids"]
            source, decoder, _ = slow_t5gemma.slow_t5gemma(model, rule, ids, given.ids, explained)
        elif question.source:
            source, decoder = slow_propagation.slow_propagate(model, rule, question.source, given.ids, explained)
        else:
            decoder, _ = slow_decoder.slow_decoder(model, rule, given.ids, explained, given.steps.start)
            source = decoder[:, :0]
    return source * values.double()[:, None], decoder * values.double()[:, None]


@contextmanager
def _in_their_place(patch: pytest.MonkeyPatch) -> Iterator[None]:
    with patch.context() as places:
        for module in (decoder_layers, slow_decoder, slow_propagation, slow_t5gemma):
            places.setattr(module, "slow_rules", _Rules)
        places.setattr(Norm, "__call__", _norm_of_constant_divisor)
        yield


def _norm_of_constant_divisor(norm: Norm, x: Tensor) -> Tensor:
    """The same value; its divisor counts as a constant in Jacobians."""
    centred = x if norm.rms else x - x.mean(-1, keepdim=True)
    divisor = torch.sqrt(centred.square().mean(-1, keepdim=True) + norm.eps).detach()
    return norm.gain * centred / divisor + (0.0 if norm.bias is None else norm.bias)


def _send(z: Tensor, constant: Tensor | float, relevance: Tensor) -> Tensor:
    """z [inputs, outputs] of one token; relevance [steps, outputs] -> [steps, inputs]."""
    output = z.sum(0) + constant
    return (relevance / output) @ z.T


class _Rules:
    """The names of `slow_rules`; ``rule`` is not looked at."""

    capped = staticmethod(capped)

    @staticmethod
    def linear(rule: Any, x: Tensor, weight: Tensor, bias: Tensor | None, relevance: Tensor) -> Tensor:
        constant = 0.0 if bias is None else bias.double()
        rows = zip(x.double(), relevance.double(), strict=True)
        return torch.stack([_send((weight.double() * row).T, constant, r) for row, r in rows])

    @staticmethod
    def logit(rule: Any, x: Tensor, row: Tensor, bias: Tensor) -> Tensor:
        one = torch.ones(1, 1).double()
        return torch.stack(
            [
                _send((t * w)[:, None], b[None].double(), one)
                for t, w, b in zip(x.double(), row.double(), bias, strict=True)
            ]
        )

    @staticmethod
    def sum_of(rule: Any, terms: list[Tensor], relevance: Tensor) -> list[Tensor]:
        whole = torch.stack([term.double() for term in terms]).sum(0)
        return [relevance.double() * (term.double() / whole)[:, None] for term in terms]

    @classmethod
    def residual(cls, rule: Any, x: Tensor, update: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
        to_x, to_update = cls.sum_of(rule, [x, update], relevance)
        return to_x, to_update

    @staticmethod
    def layer_norm(rule: Any, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, relevance: Tensor) -> Tensor:
        received = []
        for row, r in zip(x.double(), relevance.double(), strict=True):
            d, sigma = len(row), torch.sqrt(row.var(correction=0) + eps)
            z = (torch.eye(d).double() - 1 / d) * (weight.double() / sigma)[None] * row[:, None]
            received.append(_send(z, 0.0 if bias is None else bias.double(), r))
        return torch.stack(received)

    @staticmethod
    def rms_norm(rule: Any, x: Tensor, weight: Tensor, relevance: Tensor) -> Tensor:
        return relevance.double()

    @staticmethod
    def mapped(
        rule: Any, x: Tensor, function: Callable[[Tensor, int], Tensor], bias: Tensor, relevance: Tensor
    ) -> Tensor:
        received = []
        for number, (row, r) in enumerate(zip(x.double(), relevance.double(), strict=True)):
            slopes: Any = jacobian(lambda u, number=number: function(u, number), row)
            received.append(_send((slopes * row).T, bias[number].double(), r))
        return torch.stack(received)

    @staticmethod
    def convolution(rule: Any, x: Tensor, *others: Any) -> Tensor:
        """Not gone through: relevance of two frames is put where the slow propagation adds them up."""
        relevance: Tensor = others[-1]
        return relevance

    @staticmethod
    def attention(
        rule: Any, query: Tensor, key: Tensor, value: Tensor, relevance: Tensor, mask: Tensor, cap: float = math.inf
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Relevance [heads, q, steps, d]; mask: what is added to scores."""
        q, k, v, r = (t.double() for t in (query, key, value, relevance))
        mask = mask.double().expand(len(q), -1, -1)
        u = q @ k.transpose(1, 2)
        scores = capped(u, cap) + mask
        p = scores.softmax(-1)
        o = p @ v
        per_output = r / (2 * o[:, :, None])  # both factors of p v have half
        to_value = torch.einsum("hqk,hkd,hqsd->hksd", p, v, per_output)
        to_p = torch.einsum("hqk,hkd,hqsd->hqsk", p, v, per_output)
        # s_i (R_i - p_i sum_j R_j) for each score s_i; what is added to products of queries and keys keeps its part
        to_u = capped(u, cap)[:, :, None] * (to_p - p[:, :, None] * to_p.sum(-1, keepdim=True))
        half = to_u / (2 * u[:, :, None])
        to_query = torch.einsum("hqe,hke,hqsk->hqse", q, k, half)
        to_key = torch.einsum("hqe,hke,hqsk->hkse", q, k, half)
        return to_query, to_key, to_value
