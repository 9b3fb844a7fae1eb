"""A Trainer for translation models: maximum likelihood with or without word dropout, and minimum risk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Seq2SeqTrainer, TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, TrainOutput, has_length

from hf_lrp.data.checkpoints import COMPLETE, last_whole_checkpoint
from hf_lrp.data.configs import IGNORED_LABEL, require_start_token, vocabulary_sizes
from hf_lrp.data.files import write_atomically
from hf_lrp.data.vocabulary import Side
from hf_lrp.training.arguments import TranslationTrainingArguments
from hf_lrp.training.batching import TokenBudgetBatchSampler, collate
from hf_lrp.training.minimum_risk import MinimumRiskSettings, MinimumRiskStatistics, minimum_risk_step
from hf_lrp.training.risks import Risk, TextRisk, negative_sentence_bleu
from hf_lrp.training.schedule import transformer_schedule
from hf_lrp.training.sharding import require_whole_parameters
from hf_lrp.training.streaming import BEGINNING, Position, TokenBudgetStream
from hf_lrp.training.word_dropout import WordDropout, sentence_seeds

STREAM_POSITION = "stream.json"
_SIDES: dict[Side, str] = {"source": "input_ids", "target": "decoder_input_ids"}


class TranslationTrainer(Seq2SeqTrainer):
    """Trains by maximum likelihood or minimum risk, with the same result for any number of processes.

    Datasets have the columns of :func:`hf_lrp.training.encoding.encode_pairs`. An update is the same micro-batches
    however many processes share them, losses are divided by what the whole update holds, and all that is random except
    dropout in the model depends on the seed, the epoch and the examples alone. The training set may be a stream, which
    is read again and again until `max_steps`.

    Args:
        model: an encoder-decoder model; for minimum risk, a trained one.
        args: the settings.
        train_dataset, eval_dataset: encoded pairs, those for training as a table or a stream.
        tokenizer: the model's.
        risk: a risk of one's own for minimum risk training, see :mod:`hf_lrp.training.risks`; default: `args.risk`.
        callbacks: as of `Trainer`.
    """

    args: TranslationTrainingArguments
    model: PreTrainedModel
    loss_is_scaled_for_ga = True  # by what the update holds, in compute_loss

    def __init__(
        self,
        model: PreTrainedModel,
        args: TranslationTrainingArguments,
        train_dataset: Any,
        eval_dataset: Any = None,
        *,
        tokenizer: PreTrainedTokenizerBase,
        risk: Risk | None = None,
        callbacks: list[TrainerCallback] | None = None,
    ) -> None:
        self._statistics = MinimumRiskStatistics()
        self._sampler: TokenBudgetBatchSampler | None = None
        self._trained: Position | None = None  # the latest update of a stream
        self._checkpoint: Path | None = None  # that training continues from
        if _is_stream(train_dataset) and args.max_steps <= 0:
            raise ValueError(
                "The end of a stream is not known in advance: say with max_steps how many updates to train."
            )
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=tokenizer,
            data_collator=partial(
                collate,
                pad_token_id=model.config.pad_token_id,
                decoder_start_token_id=require_start_token(model),
            ),
            callbacks=[_Epochs(self), _FurtherCheckpoints(), *(callbacks or [])],
        )
        if args.objective == "mrt":
            require_whole_parameters(self, "Minimum risk training")
        self._word_dropout = {side: _word_dropout(args, side, model, tokenizer) for side in _SIDES}
        risks: dict[str, Callable[[], Risk]] = {
            "bleu": lambda: negative_sentence_bleu,
            "chrf": lambda: TextRisk.chrf(tokenizer),
        }
        self._minimum_risk = MinimumRiskSettings(
            number=args.candidates,
            alpha=args.sharpness,
            risk=risk or risks[args.risk](),
            chunk_tokens=args.scoring_tokens,
        )

    # Batches

    def get_train_dataloader(self) -> DataLoader:
        """Micro-batches of about equal length; processes take turns."""
        if self.train_dataset is None:
            raise ValueError("Training needs a train_dataset.")
        if _is_stream(self.train_dataset):
            return self._stream_loader()
        self._sampler = TokenBudgetBatchSampler(
            self.train_dataset["source_length"],
            self.train_dataset["target_length"],
            tokens=self.args.device_tokens,
            batches_per_update=self.args.batches_per_update,
            seed=self._data_seed,
        )
        loader = DataLoader(
            self.train_dataset,
            batch_sampler=self._sampler,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
        )
        even = self.accelerator.even_batches
        self.accelerator.even_batches = False  # updates are whole; evaluation, which gathers batch by batch, needs it
        try:
            return self.accelerator.prepare(loader)
        finally:
            self.accelerator.even_batches = even

    def _stream_loader(self) -> DataLoader:
        """Micro-batches that are dealt to processes by the stream itself.

        Accelerate would have one process read for all and cut its batches in pieces of one size.
        """
        start, skipped = BEGINNING, 0
        if self._checkpoint is not None and not self.args.ignore_data_skip:
            start, steps = _read_position(self._checkpoint)
            skipped = steps % self.args.max_steps * self.args.gradient_accumulation_steps  # as Trainer does
        stream = TokenBudgetStream(
            cast(Any, self.train_dataset),
            cast(Any, self.data_collator),
            tokens=self.args.device_tokens,
            batches_per_update=self.args.batches_per_update,
            seed=self._data_seed,
            buffer=self.args.stream_buffer,
            process=self.args.process_index,
            processes=self.args.world_size,
            start=start,
            skipped=skipped,
        )
        workers = min(1, self.args.dataloader_num_workers)  # `datasets` would divide a stream among several
        return DataLoader(stream, batch_size=None, num_workers=workers, pin_memory=self.args.dataloader_pin_memory)

    @property
    def _data_seed(self) -> int:
        return self.args.data_seed if self.args.data_seed is not None else self.args.seed

    def start_epoch(self, epoch: int) -> None:
        """Draw the batches of this epoch; also after resuming in the middle of it."""
        if self._sampler is not None:
            self._sampler.set_epoch(epoch)

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, Tensor]], device: torch.device) -> Tensor | None:
        """What losses of this update are divided by: its target tokens, or its sentences for minimum risk."""
        if not batch_samples:
            return None
        if self.args.objective == "mrt":
            count = torch.tensor(sum(len(batch["labels"]) for batch in batch_samples))
        else:
            count = torch.stack([batch["labels"].ne(IGNORED_LABEL).sum() for batch in batch_samples]).sum()
        return self.accelerator.reduce(count.to(device), "sum")

    # Losses

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """This micro-batch's part of the update's loss; in evaluation cross entropy per token, without smoothing."""
        if not model.training:
            outputs = model(**_model_inputs(inputs))
            loss = _cross_entropy(outputs.logits, inputs["labels"], 0.0) / inputs["labels"].ne(IGNORED_LABEL).sum()
            return (loss, outputs) if return_outputs else loss
        assert num_items_in_batch is not None
        if "position" in inputs:
            self._trained = Position(*inputs["position"])
        inputs = self._drop_words(inputs)
        if self.args.objective == "mrt":
            seed = _fold(self.args.seed, self._epoch, *inputs["example"].tolist())
            result = minimum_risk_step(model, inputs, settings=self._minimum_risk, seed=seed)
            self._statistics += result.statistics
            loss, outputs = result.loss, None
        else:
            outputs = model(**_model_inputs(inputs))
            loss = _cross_entropy(outputs.logits, inputs["labels"], self.args.label_smoothing_factor)
        loss = loss * self.args.world_size / num_items_in_batch  # processes are averaged over
        return (loss, outputs) if return_outputs else loss

    def _drop_words(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Inputs with some tokens replaced, by word dropout of either side; labels stay."""
        inputs = dict(inputs)
        masks = {"source": inputs["attention_mask"], "target": inputs["labels"].ne(IGNORED_LABEL)}
        for side, name in _SIDES.items():
            drop = self._word_dropout[side]
            if drop is not None:
                seeds = sentence_seeds(inputs["example"], seed=self.args.seed, epoch=self._epoch, side=side)
                inputs[name] = drop(inputs[name], masks[side], seeds)
        return inputs

    @property
    def _epoch(self) -> int:
        """Of the batch that is trained on; the pass over the data, if they are a stream."""
        if self._trained is not None:
            return self._trained.data_pass
        return self._sampler.epoch if self._sampler is not None else 0

    # Optimisation and reports

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """The paper's schedule, if `schedule_scale` is set."""
        if self.args.schedule_scale is None:
            return super().create_scheduler(num_training_steps, optimizer)
        if self.lr_scheduler is None:
            warmup = self.args.get_warmup_steps(num_training_steps)
            width = self.model.config.d_model
            optimizer = optimizer or self.optimizer
            assert optimizer is not None
            self.lr_scheduler = transformer_schedule(optimizer, width, warmup, self.args.schedule_scale)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds what minimum risk training has to tell since the last report, per sentence."""
        if "loss" in logs and self.args.objective == "mrt":
            sums = torch.tensor(astuple(self._statistics), device=self.args.device)
            total = MinimumRiskStatistics(*self.accelerator.reduce(sums, "sum").tolist())
            self._statistics = MinimumRiskStatistics()
            logs |= total.means() if total.sentences else {}
        super().log(logs, start_time)

    # Checkpoints

    def train(
        self,
        resume_from_checkpoint: str | os.PathLike[str] | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """As of `Trainer`; to resume from `True` is to resume from the last checkpoint that is whole."""
        if resume_from_checkpoint is True:
            resume_from_checkpoint = last_whole_checkpoint(cast(str, self.args.output_dir))
            if resume_from_checkpoint is None:
                raise ValueError(f"There is no whole checkpoint in {self.args.output_dir} to resume from.")
        self._checkpoint = Path(resume_from_checkpoint) if resume_from_checkpoint else None
        folder = str(self._checkpoint) if self._checkpoint is not None else None
        return super().train(folder, trial, ignore_keys_for_eval)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Checkpoints are marked once they are whole: a killed run continues from the last one that is."""
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            if self._trained is not None:
                position = {"pass": self._trained.data_pass, "update": self._trained.update}
                position["step"] = self.state.global_step
                write_atomically(folder / STREAM_POSITION, json.dumps(position).encode())
            (folder / COMPLETE).touch()


def _is_stream(dataset: Any) -> bool:
    return dataset is not None and not has_length(dataset)


def _read_position(checkpoint: Path) -> tuple[Position, int]:
    """The update of the stream to continue with, and how many were trained before."""
    path = checkpoint / STREAM_POSITION
    if not path.is_file():
        raise ValueError(f"{checkpoint} was not trained on a stream: it does not say where to continue in one.")
    latest = json.loads(path.read_text(encoding="utf-8"))
    return Position(latest["pass"], latest["update"] + 1), latest["step"]


def is_finished(checkpoint: Path, args: TranslationTrainingArguments) -> bool:
    """True if a checkpoint is the last one of its run, which `Trainer.train` would train one step too far."""
    state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
    steps_per_epoch = state.max_steps / max(state.num_train_epochs, 1)
    steps = args.max_steps if args.max_steps > 0 else round(steps_per_epoch * args.num_train_epochs)
    return state.global_step >= steps


class _Epochs(TrainerCallback):
    """Tells the trainer's sampler which epoch begins, which Accelerate's wrappers do not always pass on."""

    def __init__(self, trainer: TranslationTrainer) -> None:
        self._trainer = trainer

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer.start_epoch(int(state.epoch or 0))


class _FurtherCheckpoints(TrainerCallback):
    """Saves after the updates of `save_also`."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step in args.save_also:
            control.should_save = True


def _word_dropout(
    args: TranslationTrainingArguments, side: Side, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> WordDropout | None:
    rate = getattr(args, f"{side}_word_dropout")
    if rate == 0:
        return None
    replacement: Any = "random"
    if args.word_dropout_token is not None:
        replacement = tokenizer.convert_tokens_to_ids(args.word_dropout_token)
        if tokenizer.convert_ids_to_tokens(replacement) != args.word_dropout_token:
            raise ValueError(f"word_dropout_token {args.word_dropout_token!r} is not in the tokenizer's vocabulary.")
    size = vocabulary_sizes(model)[side]
    return WordDropout(rate, replacement, size, frozenset(tokenizer.all_special_ids))


def _model_inputs(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: inputs[name] for name in ("input_ids", "attention_mask", "decoder_input_ids")}


def _cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Sum over tokens. logits: [batch, length, V]; labels: [batch, length]."""
    return F.cross_entropy(
        logits.flatten(0, 1).float(),
        labels.flatten(),
        ignore_index=IGNORED_LABEL,
        label_smoothing=smoothing,
        reduction="sum",
    )


def _fold(*parts: int | str) -> int:
    """A seed of 63 bits from several numbers or names."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
