"""Arguments of minimum risk training."""

from __future__ import annotations

from dataclasses import dataclass, field

from hf_lrp.training.arguments import TranslationTrainingArguments, require
from hf_lrp.training.minimum_risk.risks import SMOOTHINGS

RISKS = ("bleu", "chrf")


@dataclass
class MinimumRiskTrainingArguments(TranslationTrainingArguments):
    """Arguments of minimum risk, and those of `TranslationTrainingArguments`. Defaults follow Voita et al. 2021.

    - Candidates: `candidates` per sentence; `alpha`, how sharp their distribution is.
    - Risk: `risk`, or one of your own, given to the trainer; `bleu_smoothing`.
    - Memory: `scoring_tokens`.
    - Optimisation, with other defaults than of maximum likelihood: `learning_rate`, `lr_scheduler_type`,
      `label_smoothing_factor`.
    """

    candidates: int = field(default=50, metadata={"help": "Samples per sentence, besides the reference."})
    alpha: float = field(default=0.005, metadata={"help": "Sharpness of the distribution over candidates: P^alpha."})
    risk: str = field(default="bleu", metadata={"help": f"Negative sentence score on candidates: {', '.join(RISKS)}."})
    bleu_smoothing: str = field(
        default="add-one", metadata={"help": f"Smoothing of sentence BLEU: {', '.join(SMOOTHINGS)}."}
    )
    scoring_tokens: int = field(
        default=16_000, metadata={"help": "Candidate tokens whose activations are kept; bounds the memory."}
    )
    learning_rate: float = field(default=1e-5, metadata={"help": "Highest learning rate: 1e-5 as in the paper."})
    lr_scheduler_type: str = field(
        default="constant_with_warmup",
        metadata={"help": "Learning rate over time: warms up over warmup_steps, then stays."},
    )
    label_smoothing_factor: float = field(
        default=0.0, metadata={"help": "Must be 0: minimum risk has no labels to smooth."}
    )

    def __post_init__(self) -> None:
        require(self.risk in RISKS, f"risk must be one of {RISKS}, got {self.risk!r}.")
        require(
            self.bleu_smoothing in SMOOTHINGS,
            f"bleu_smoothing must be one of {tuple(SMOOTHINGS)}, got {self.bleu_smoothing!r}.",
        )
        require(self.candidates > 0, f"candidates must be positive, got {self.candidates}.")
        require(self.alpha >= 0, f"alpha must not be negative, got {self.alpha}.")
        require(self.scoring_tokens > 0, f"scoring_tokens must be positive, got {self.scoring_tokens}.")
        for name in ("source_word_dropout", "target_word_dropout", "label_smoothing_factor"):
            require(
                getattr(self, name) == 0,
                f"{name} belongs to maximum likelihood, and minimum risk training has none. Leave it out.",
            )
        if self.greater_is_better is None and (self.metric_for_best_model or "").endswith("risk"):
            self.greater_is_better = False
        super().__post_init__()
