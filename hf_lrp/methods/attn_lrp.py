"""AttnLRP: relevance propagation whose rules for attention, norms and activations are factors of a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from hf_lrp.methods.going_back import go_back
from hf_lrp.methods.method import Question
from hf_lrp.methods.slopes import Law
from hf_lrp.models.passes import Relevance

# ε rule for linear maps, in the limit; identity for activations and norms; each factor of a product has half.
LAW = Law(constant_divisors=True, secants=True, product=0.5)


@dataclass(frozen=True)
class AttnLRP:
    """Attention-aware layer-wise relevance propagation (Achtibat et al. 2024).

    Linear maps pass relevance on by LRP-ε; softmax by its first-order expansion at the input; products give half to
    each factor; norms and activations pass it unchanged. All of that is input times gradient with other factors.
    Relevance has signs; it sums to the logit except for what biases and softmax have taken.
    """

    sums_to_one: ClassVar[bool] = False
    conserves: ClassVar[bool] = False

    def explain(self, question: Question) -> list[Relevance]:
        """Relevance in units of the logit; of sound, by positions after the convolutions."""
        results = []
        for found in go_back(question, LAW):
            decoder = _totals(found.of_decoder, found.x_decoder)
            source = decoder.new_zeros(len(decoder), 0)
            if found.of_encoder is not None and found.x_encoder is not None:
                source = _totals(found.of_encoder, found.x_encoder)
            results.append(found.chosen.relevance(source, decoder))
        return results


def _totals(slopes: Tensor, x: Tensor) -> Tensor:
    """[steps, positions, d] and [positions, d] -> [steps, positions]"""
    return (slopes * x).sum(-1)
