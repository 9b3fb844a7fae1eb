"""What a training run is told."""

from __future__ import annotations

from dataclasses import dataclass, field

from transformers import Seq2SeqTrainingArguments

OBJECTIVES = ("mle", "mrt")
RISKS = ("bleu", "chrf")


@dataclass
class TranslationTrainingArguments(Seq2SeqTrainingArguments):
    """Those of `Seq2SeqTrainingArguments`, and the paper's. Defaults follow Voita et al. 2021.

    An update is `source_tokens // device_tokens` micro-batches, always the same ones: they are spread over the
    processes there are, and `gradient_accumulation_steps` follows from their number.
    """

    objective: str = field(
        default="mle", metadata={"help": "mle: maximum likelihood; mrt: minimum risk, from a trained model."}
    )
    source_tokens: int = field(default=16_000, metadata={"help": "Source tokens per update, over all processes."})
    device_tokens: int = field(default=4_000, metadata={"help": "Source tokens per micro-batch, padding included."})
    stream_buffer: int = field(
        default=100_000, metadata={"help": "Pairs of a streamed corpus that are sorted by length at a time."}
    )
    schedule_scale: float | None = field(
        default=None,
        metadata={
            "help": "lr = scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5); the paper has 4. "
            "Without it, learning_rate and lr_scheduler_type hold."
        },
    )
    source_word_dropout: float = field(default=0.0, metadata={"help": "Share of source tokens that are replaced."})
    target_word_dropout: float = field(
        default=0.0, metadata={"help": "Share of decoder input tokens that are replaced; labels stay as they are."}
    )
    word_dropout_token: str | None = field(
        default=None, metadata={"help": "What replaces a token, for example <unk>; default: a random token."}
    )
    candidates: int = field(default=50, metadata={"help": "Samples per sentence in minimum risk training."})
    sharpness: float = field(default=0.005, metadata={"help": "alpha of minimum risk training: P^alpha."})
    risk: str = field(default="bleu", metadata={"help": f"Negative sentence score on candidates: {', '.join(RISKS)}."})
    scoring_tokens: int = field(
        default=16_000, metadata={"help": "Candidate tokens whose activations are kept; bounds the memory."}
    )
    save_also: list[int] = field(
        default_factory=list,
        metadata={"help": "Updates after which a checkpoint is saved besides save_steps, for timelines of training."},
    )
    adam_beta2: float = field(default=0.98, metadata={"help": "The paper's."})
    adam_epsilon: float = field(default=1e-9, metadata={"help": "The paper's."})
    label_smoothing_factor: float = field(default=0.1, metadata={"help": "The paper's."})
    remove_unused_columns: bool = field(default=False, metadata={"help": "The collator needs columns of its own."})

    def __post_init__(self) -> None:
        _require(self.objective in OBJECTIVES, f"objective must be one of {OBJECTIVES}, got {self.objective!r}.")
        _require(self.risk in RISKS, f"risk must be one of {RISKS}, got {self.risk!r}.")
        for name in ("source_word_dropout", "target_word_dropout"):
            _require(
                0 <= getattr(self, name) < 1, f"{name} must be at least 0 and below 1, got {getattr(self, name)}."
            )
        _require(
            0 < self.device_tokens <= self.source_tokens,
            f"device_tokens ({self.device_tokens}) must be positive and at most source_tokens ({self.source_tokens}).",
        )
        _require(self.stream_buffer > 0, f"stream_buffer must be positive, got {self.stream_buffer}.")
        _require(all(step > 0 for step in self.save_also), f"save_also must be positive, got {self.save_also}.")
        if self.schedule_scale is not None:
            self.learning_rate = 1.0
        super().__post_init__()
        _require(not self.remove_unused_columns, "remove_unused_columns must be false: examples carry their number.")
        _require(
            self.n_gpu <= 1,
            f"There are {self.n_gpu} devices in one process. Start one process per device: accelerate launch.",
        )
        self.gradient_accumulation_steps = self._accumulation()

    @property
    def batches_per_update(self) -> int:
        """Micro-batches in an update, over all processes."""
        return max(1, round(self.source_tokens / self.device_tokens))

    def _accumulation(self) -> int:
        steps, rest = divmod(self.batches_per_update, self.world_size)
        _require(
            rest == 0,
            f"An update has {self.batches_per_update} micro-batches (source_tokens / device_tokens = "
            f"{self.source_tokens} / {self.device_tokens}), which {self.world_size} processes cannot share equally. "
            "Change device_tokens, or the number of processes.",
        )
        return steps


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
