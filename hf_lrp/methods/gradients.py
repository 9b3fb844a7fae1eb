"""Gradients of the explained logits by the embeddings of tokens: times these, or their norms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from hf_lrp.methods.embeddings import by_position, embed_source, embed_target
from hf_lrp.methods.going_back import go_back
from hf_lrp.methods.method import Question
from hf_lrp.methods.slopes import DERIVATIVES
from hf_lrp.models.passes import Relevance


@dataclass(frozen=True)
class GradientTimesInput:
    """The derivative of the logit by a token's embedding, times the embedding, summed over features.

    With signs: how the logit would change, to first order, if the embedding were scaled. Of sound: by features, times
    these.
    """

    sums_to_one: ClassVar[bool] = False
    conserves: ClassVar[bool] = False

    def explain(self, question: Question) -> list[Relevance]:
        """Values in units of the logit."""
        return _explain(question, lambda gradient, inputs: (gradient * inputs).sum(-1))


@dataclass(frozen=True)
class GradientNorm:
    """The Euclidean norm of the derivative of the logit by a token's embedding: how sensitive the logit is to it."""

    sums_to_one: ClassVar[bool] = True
    conserves: ClassVar[bool] = False

    def explain(self, question: Question) -> list[Relevance]:
        """Norms, none of which is negative."""
        return _explain(question, lambda gradient, inputs: gradient.norm(dim=-1))


def _explain(question: Question, measure: Callable[[Tensor, Tensor], Tensor]) -> list[Relevance]:
    """measure: from gradients [steps, positions, features] and inputs [positions, features] to [steps, positions]."""
    results, source = [], None
    for found in go_back(question, DERIVATIVES):
        target = embed_target(question, found.given, found.memory)
        decoder = measure(target.derivatives(found.of_decoder), target.inputs.detach())
        of_source = decoder.new_zeros(len(decoder), 0)
        if found.of_encoder is not None:
            source = embed_source(question) if source is None else source
            inputs = by_position(source.inputs.detach(), len(source.x))
            of_source = measure(source.derivatives(found.of_encoder), inputs)
        results.append(found.chosen.relevance(of_source, decoder))
    return results
