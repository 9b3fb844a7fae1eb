"""A Trainer for translation models that minimises the expected risk of what they write."""

from __future__ import annotations

import hashlib
from dataclasses import astuple
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from hf_lrp.training.minimum_risk.arguments import MinimumRiskTrainingArguments
from hf_lrp.training.minimum_risk.loss import MinimumRiskOutput, MinimumRiskStatistics, minimum_risk_step
from hf_lrp.training.minimum_risk.risks import Risk, TextRisk, negative_sentence_bleu
from hf_lrp.training.sharding import require_whole_parameters
from hf_lrp.training.trainer import TranslationTrainer

_HELD_OUT = "held out"  # in the place of the epoch: held-out samples are drawn with the same numbers every time


class MinimumRiskTrainer(TranslationTrainer):
    """Trains a model that can translate already; all else is as in `TranslationTrainer`.

    Evaluation also reports the expected risk of held-out sentences, `eval_expected_risk`, which may be the
    `metric_for_best_model`.

    Args:
        risk: a risk of one's own, see `hf_lrp.training.minimum_risk.risks`; default: `args.risk`.
        *arguments, **options: as of `TranslationTrainer`.
    """

    args: MinimumRiskTrainingArguments
    arguments_class = MinimumRiskTrainingArguments

    def __init__(self, *arguments: Any, risk: Risk | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.compute_loss_func is not None:
            raise ValueError(
                "compute_loss_func belongs to maximum likelihood: minimum risk training takes a risk instead."
            )
        require_whole_parameters(self, "Minimum risk training")
        self._statistics = MinimumRiskStatistics()
        self._risk = risk or self._named_risk()

    def _named_risk(self) -> Risk:
        if self.args.risk == "bleu":
            return partial(negative_sentence_bleu, smoothing=self.args.bleu_smoothing)
        if self.processing_class is None:
            raise ValueError("chrF is computed on text: give the tokenizer as processing_class.")
        return TextRisk.chrf(cast(Any, self.processing_class))

    def _count(self, batch: dict[str, Tensor]) -> Tensor:
        """Sentences of a micro-batch."""
        return torch.tensor(len(batch["labels"]))

    def _training_loss(self, model: nn.Module, inputs: dict[str, Any], items: Tensor | int) -> tuple[Tensor, Any]:
        result = self._step(model, inputs, self._epoch)
        self._statistics += result.statistics
        return result.loss / items, None

    def _held_out_loss(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Any]:
        result = self._step(model, inputs, _HELD_OUT)
        self._note("expected_risk", result.expected_risks, torch.ones_like(result.expected_risks))
        return super()._held_out_loss(model, inputs)

    def _step(self, model: nn.Module, inputs: dict[str, Any], epoch: int | str) -> MinimumRiskOutput:
        return minimum_risk_step(
            model,
            inputs,
            candidates=self.args.candidates,
            alpha=self.args.alpha,
            risk=self._risk,
            chunk_tokens=self.args.scoring_tokens,
            seed=self._seed(epoch, inputs),
        )

    def _seed(self, epoch: int | str, inputs: dict[str, Any]) -> int:
        """A seed of 63 bits for the samples of a micro-batch."""
        if "example" not in inputs:
            raise ValueError(
                "Candidates are drawn by the number of each example, which data_collator has left out: let it keep "
                "the column 'example'."
            )
        parts = (self.args.seed, epoch, *inputs["example"].tolist())
        return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little") >> 1

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds what was seen since the last report, per sentence."""
        if "loss" in logs:
            sums = torch.tensor(astuple(self._statistics), device=self.args.device)
            total = MinimumRiskStatistics(*self.accelerator.reduce(sums, "sum").tolist())
            self._statistics = MinimumRiskStatistics()
            logs |= total.means() if total.sentences else {}
        super().log(logs, start_time)
