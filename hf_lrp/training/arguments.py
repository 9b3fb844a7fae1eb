"""Arguments of training by maximum likelihood."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from transformers import Seq2SeqTrainingArguments


@dataclass
class TranslationTrainingArguments(Seq2SeqTrainingArguments):
    """Arguments of training: those of `Seq2SeqTrainingArguments`, and the paper's. Defaults follow Voita et al. 2021.

    An update is `source_tokens // device_tokens` micro-batches, always the same ones: they are spread over the
    processes there are. So `per_device_train_batch_size` and `gradient_accumulation_steps` are not for you to set.

    - Data: `source_column`, `target_column`; `stream_buffer` for corpora that are not stored.
    - Size of updates: `source_tokens`, `device_tokens`.
    - Optimisation, with the paper's defaults: `schedule_scale`, `adam_beta2`, `adam_epsilon`, `max_grad_norm`,
      `label_smoothing_factor`.
    - Word dropout: `source_word_dropout`, `target_word_dropout`, `word_dropout_token`.
    - Checkpoints: `save_also`.
    """

    source_tokens: int = field(default=16_000, metadata={"help": "Source tokens per update, over all processes."})
    device_tokens: int = field(default=4_000, metadata={"help": "Source tokens per micro-batch."})
    stream_buffer: int = field(
        default=100_000, metadata={"help": "Pairs of a streamed corpus that are sorted by length at a time."}
    )
    source_column: str = field(
        default="source",
        metadata={"help": "Column of source texts in a data set, or the sources' language in a column `translation`."},
    )
    target_column: str = field(
        default="target",
        metadata={"help": "Column of target texts in a data set, or the targets' language in a column `translation`."},
    )
    schedule_scale: float | None = field(
        default=None,
        metadata={
            "help": "Scale of the inverse square root schedule: lr = scale * d_model^-0.5 * min(step^-0.5, step * "
            "warmup_steps^-1.5); the paper has 4. If it is not given, learning_rate and lr_scheduler_type are used."
        },
    )
    source_word_dropout: float = field(default=0.0, metadata={"help": "Share of source tokens that are replaced."})
    target_word_dropout: float = field(
        default=0.0, metadata={"help": "Share of decoder input tokens that are replaced; labels stay as they are."}
    )
    word_dropout_token: str | None = field(
        default=None, metadata={"help": "What replaces a token, for example <unk>; default: a random token."}
    )
    save_also: list[int] = field(
        default_factory=list,
        metadata={
            "help": "Updates at which to save a checkpoint, in addition to save_steps: for timelines of training."
        },
    )
    adam_beta2: float = field(
        default=0.98,
        metadata={"help": "Adam's decay rate of squared gradients: 0.98 as in the paper, Trainer has 0.999."},
    )
    adam_epsilon: float = field(
        default=1e-9, metadata={"help": "Adam's smallest divisor: 1e-9 as in the paper, Trainer has 1e-8."}
    )
    max_grad_norm: float = field(
        default=0.0, metadata={"help": "Norm at which gradients are clipped; 0: never, as in the paper."}
    )
    label_smoothing_factor: float = field(
        default=0.1, metadata={"help": "Share of the probability that label smoothing spreads: 0.1 as in the paper."}
    )
    remove_unused_columns: bool = field(
        default=False,
        metadata={
            "help": "Whether columns that the model does not take are dropped: must be false, the collator needs them."
        },
    )

    def __post_init__(self) -> None:
        for name in ("source_word_dropout", "target_word_dropout"):
            require(0 <= getattr(self, name) < 1, f"{name} must be at least 0 and below 1, got {getattr(self, name)}.")
        require(
            0 < self.device_tokens <= self.source_tokens,
            f"device_tokens ({self.device_tokens}) must be positive and at most source_tokens ({self.source_tokens}).",
        )
        require(self.stream_buffer > 0, f"stream_buffer must be positive, got {self.stream_buffer}.")
        require(all(step > 0 for step in self.save_also), f"save_also must be positive, got {self.save_also}.")
        self._set_rate()
        super().__post_init__()
        require(not self.remove_unused_columns, "remove_unused_columns must be false: examples carry their number.")
        require(
            self.n_gpu <= 1,
            f"There are {self.n_gpu} devices in one process. Start one process per device: accelerate launch.",
        )
        self._set_sizes()

    @property
    def batches_per_update(self) -> int:
        """Micro-batches in an update, over all processes."""
        return max(1, round(self.source_tokens / self.device_tokens))

    def _set_rate(self) -> None:
        """The schedule of the paper multiplies an optimizer's rate of 1."""
        if self.schedule_scale is None:
            return
        require(
            self.warmup_steps is not None and self.warmup_steps > 0,
            "schedule_scale needs warmup_steps, the updates until the learning rate is highest; the paper has 16000.",
        )
        require(
            self.learning_rate in (_default(self, "learning_rate"), 1.0),
            f"schedule_scale and learning_rate ({self.learning_rate}) are both given: leave one of them out.",
        )
        self.learning_rate = 1.0

    def _set_sizes(self) -> None:
        """Sizes of updates that `Trainer` has to know; an error if it was told something else."""
        steps, rest = divmod(self.batches_per_update, self.world_size)
        require(
            rest == 0,
            f"An update has {self.batches_per_update} micro-batches (source_tokens / device_tokens = "
            f"{self.source_tokens} / {self.device_tokens}), which {self.world_size} processes cannot share equally. "
            "Change device_tokens, or the number of processes.",
        )
        derived = {"per_device_train_batch_size": None, "gradient_accumulation_steps": steps}
        for name, value in derived.items():
            given = getattr(self, name)
            require(
                given in (_default(self, name), value),
                f"{name}={given} has no effect: micro-batches are made of device_tokens ({self.device_tokens}) source "
                f"tokens, updates of source_tokens ({self.source_tokens}). Set these, and leave {name} out.",
            )
        require(
            not self.auto_find_batch_size,
            "auto_find_batch_size has no effect: if memory is short, lower device_tokens.",
        )
        self.gradient_accumulation_steps = steps


def require(condition: bool, message: str) -> None:
    """An error with this message unless the condition holds."""
    if not condition:
        raise ValueError(message)


def _default(arguments: object, name: str) -> object:
    return next(each.default for each in fields(arguments) if each.name == name)  # type: ignore[arg-type]
