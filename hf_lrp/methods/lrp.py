"""Layer-wise relevance propagation, the paper's method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hf_lrp.methods.method import Question
from hf_lrp.models.passes import Relevance
from hf_lrp.relevance.patching import patched
from hf_lrp.relevance.propagation import memory_for_steps, propagate_all
from hf_lrp.relevance.rules import AlphaBeta, Rule
from hf_lrp.relevance.trace import bytes_of_pairs

PAPER_RULE = AlphaBeta(alpha=1.0, beta=0.0)


@dataclass(frozen=True)
class LRP:
    """Layer-wise relevance propagation with a redistribution rule (Voita, Sennrich and Titov 2021).

    Args:
        rule: default: the paper's, with which all shares are positive.
    """

    rule: Rule = PAPER_RULE
    sums_to_one: ClassVar[bool] = True
    conserves: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.rule, Rule):
            raise TypeError(f"rule must be a rule such as AlphaBeta(1, 0), got {self.rule!r}.")

    def explain(self, question: Question) -> list[Relevance]:
        """Raw shares, which sum to 1: relevance goes back from each explained logit."""
        model, given = question.model, question.given
        longest = max(len(each.ids) for each in given)
        with patched(model, self.rule, question.network) as patch:
            lengths, item = (question.positions, longest), model.dtype.itemsize
            steps = sum(each.steps.stop - each.steps.start for each in given)
            kept = bytes_of_pairs(patch.network, *lengths, steps, item) if question.inside == "pairs" else 0
            memory = memory_for_steps(patch.network, *lengths, item, question.max_memory, kept)
            return propagate_all(patch, dict(question.source), given, memory, question.source_tokens, question.inside)
