"""A Trainer for translation models: maximum likelihood, with or without word dropout."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Seq2SeqTrainer, TrainerCallback, TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, EvalLoopOutput, TrainOutput

from hf_lrp.models.checkpoints import (
    TRAINER_STATE,
    delete_old_checkpoints,
    is_whole,
    last_whole_checkpoint,
    mark_incomplete,
    mark_whole,
)
from hf_lrp.models.configs import IGNORED_LABEL, generation_config_of, position_limit, require_start_token
from hf_lrp.training.arguments import TranslationTrainingArguments
from hf_lrp.training.batching import TokenBudgetBatchSampler, collate, shift_right
from hf_lrp.training.card import write_model_card
from hf_lrp.training.examples import is_stream, prepare_examples
from hf_lrp.training.schedule import transformer_schedule
from hf_lrp.training.scores import TranslationScores
from hf_lrp.training.streaming import BEGINNING, Position, TokenBudgetStream, read_position, write_position
from hf_lrp.training.word_dropout import PairWordDropout


class TranslationTrainer(Seq2SeqTrainer):
    """Trains by maximum likelihood, with the same result for any number of processes.

    Takes what `Seq2SeqTrainer` takes, and data sets in the forms of
    `hf_lrp.training.examples.prepare_examples`. An update is the same micro-batches however many processes share
    them, losses are divided by what the whole update holds, and all that is random except dropout in the model depends
    on the seed, the epoch and the examples alone. The training set may be a stream, which is read again and again
    until `max_steps`.

    With `predict_with_generate`, held-out sentences are translated and BLEU and chrF reported, unless
    `compute_metrics` says otherwise.
    """

    args: TranslationTrainingArguments
    model: PreTrainedModel
    loss_is_scaled_for_ga = True  # by what the update holds, in compute_loss
    arguments_class: type[TranslationTrainingArguments] = TranslationTrainingArguments

    def __init__(
        self,
        model: Any = None,
        args: TranslationTrainingArguments | None = None,
        data_collator: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        model_init: Any = None,
        compute_loss_func: Any = None,
        compute_metrics: Any = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        preprocess_logits_for_metrics: Any = None,
    ) -> None:
        if not isinstance(args, self.arguments_class):
            raise TypeError(f"{type(self).__name__} needs args, {self.arguments_class.__name__}, not {args!r:.60}.")
        if is_stream(train_dataset) and args.max_steps <= 0:
            raise ValueError(
                "The end of a stream is not known in advance: say with max_steps how many updates to train."
            )
        self._sampler: TokenBudgetBatchSampler | None = None
        self._trained: Position | None = None  # the latest update of a stream
        self._checkpoint: Path | None = None  # that training continues from
        self._held_out: dict[str, tuple[float, float]] = {}  # sums over held-out sentences, and their weights
        if compute_metrics is None and args.predict_with_generate and processing_class is not None:
            compute_metrics = TranslationScores(processing_class)
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            model_init=model_init,
            compute_loss_func=compute_loss_func,
            compute_metrics=compute_metrics,
            callbacks=[_Epochs(self), _FurtherCheckpoints(), *(callbacks or [])],
            optimizers=optimizers,
            preprocess_logits_for_metrics=preprocess_logits_for_metrics,
        )
        self._special = self._special_tokens()
        self.data_collator = data_collator or partial(collate, **self._special)
        self.train_dataset = self._examples(train_dataset)
        self.eval_dataset = self._examples(eval_dataset)
        self._drop_words = PairWordDropout(args, self.model, processing_class)

    def _special_tokens(self) -> dict[str, Any]:
        padding = self.model.config.pad_token_id
        if padding is None:
            raise ValueError("model.config.pad_token_id is not set, so sentences cannot be padded. Set it.")
        return {"pad_token_id": padding, "decoder_start_token_id": require_start_token(self.model)}

    # Batches

    def _examples(self, dataset: Any) -> Any:
        """A data set, or several by name, as examples to train on; stored by the first process for the others."""
        if dataset is None or isinstance(dataset, str):
            return dataset
        if isinstance(dataset, dict) and dataset is not self.train_dataset:
            return {name: self._examples(each) for name, each in dataset.items()}
        columns = {"source": self.args.source_column, "target": self.args.target_column}
        with self.args.main_process_first(desc="encoding"):
            return prepare_examples(
                dataset, cast(Any, self.processing_class), **columns, max_length=position_limit(self.model)
            )

    def get_train_dataloader(self) -> DataLoader:
        """Micro-batches of about equal length; processes take turns."""
        if self.train_dataset is None:
            raise ValueError("Training needs a train_dataset.")
        if is_stream(self.train_dataset):
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
            start, steps = read_position(self._checkpoint)
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

    @property
    def _epoch(self) -> int:
        """Of the batch that is trained on; the pass over the data, if they are a stream."""
        if self._trained is not None:
            return self._trained.data_pass
        return self._sampler.epoch if self._sampler is not None else 0

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        return super().get_eval_dataloader(self._examples(eval_dataset))

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader:
        return super().get_test_dataloader(self._examples(test_dataset))

    # Losses

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, Tensor]], device: torch.device) -> Tensor | None:
        """Divisor of the losses of this update, over all processes."""
        if not batch_samples:
            return None
        count = torch.stack([self._count(batch) for batch in batch_samples]).sum()
        return self.accelerator.reduce(count.to(device), "sum")

    def _count(self, batch: dict[str, Tensor]) -> Tensor:
        """Target tokens of a micro-batch."""
        return batch["labels"].ne(IGNORED_LABEL).sum()

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """This micro-batch's part of the update's loss; in evaluation cross entropy per token, without smoothing."""
        inputs = self._with_decoder_input(inputs)
        if not model.training:
            loss, outputs = self._held_out_loss(model, inputs)
            return (loss, outputs) if return_outputs else loss
        if "position" in inputs:
            self._trained = Position(*inputs["position"])
        if num_items_in_batch is None:  # the micro-batch is an update of its own
            num_items_in_batch = cast(Tensor, self._get_num_items_in_batch([inputs], self.args.device))
        loss, outputs = self._training_loss(model, inputs, num_items_in_batch)
        loss = loss * self.args.world_size  # processes are averaged over
        return (loss, outputs) if return_outputs else loss

    def _with_decoder_input(self, inputs: dict[str, Any]) -> dict[str, Any]:
        if "decoder_input_ids" in inputs or "labels" not in inputs:
            return inputs
        return inputs | {"decoder_input_ids": shift_right(inputs["labels"], **self._special)}

    def _training_loss(self, model: nn.Module, inputs: dict[str, Any], items: Tensor | int) -> tuple[Tensor, Any]:
        """The micro-batch's sum of losses over the number of items in the update, and what the model returns."""
        outputs = model(**_model_inputs(self._drop_words(inputs, self._epoch)))
        if self.compute_loss_func is not None:
            return self.compute_loss_func(outputs, inputs["labels"], num_items_in_batch=items), outputs
        loss = F.cross_entropy(
            outputs.logits.flatten(0, 1).float(),
            inputs["labels"].flatten(),
            ignore_index=IGNORED_LABEL,
            label_smoothing=self.args.label_smoothing_factor,
            reduction="sum",
        )
        return loss / items, outputs

    # Evaluation

    def _held_out_loss(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Any]:
        """Cross entropy per token of a batch, noted sentence by sentence, and what the model returns."""
        outputs = model(**_model_inputs(inputs))
        labels = inputs["labels"]
        losses = F.cross_entropy(
            outputs.logits.transpose(1, 2).float(), labels, ignore_index=IGNORED_LABEL, reduction="none"
        ).sum(1)
        tokens = labels.ne(IGNORED_LABEL).sum(1)
        self._note("loss", losses, tokens)
        return losses.sum() / tokens.sum(), outputs

    def _note(self, name: str, values: Tensor, weights: Tensor) -> None:
        """Add what was measured on sentences, [batch] each, of all processes; none counts twice."""
        values, weights = self.accelerator.gather_for_metrics((values.detach(), weights))
        before = self._held_out.get(name, (0.0, 0.0))
        self._held_out[name] = before[0] + values.double().sum().item(), before[1] + float(weights.sum())

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[Any, Any, Any]:
        """As of `Seq2SeqTrainer`, with the same loss whether sentences are translated or not."""
        if not self.args.predict_with_generate or prediction_loss_only:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        inputs = cast(dict[str, Any], self._prepare_inputs(inputs))
        sources = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        options = dict(gen_kwargs or getattr(self, "_gen_kwargs", {}))
        if options.get("max_length") is None and options.get("max_new_tokens") is None:
            options |= self._generation_length(inputs)
        _, written, _ = super().prediction_step(model, sources, False, ignore_keys, **options)
        if "labels" not in inputs:
            return None, written, None
        with torch.no_grad(), self.compute_loss_context_manager():
            loss = self.compute_loss(model, inputs).detach()
        return loss, written, inputs["labels"]

    def _generation_length(self, inputs: dict[str, Any]) -> dict[str, int]:
        """How long translations may be where nobody says: as long as candidates of minimum risk, not 20 tokens."""
        known = generation_config_of(self.model)
        if (known.max_length or 20) != 20 or known.max_new_tokens is not None:
            return {}
        longest = inputs.get("labels", inputs["input_ids"]).shape[1]
        limit = position_limit(self.model)
        return {"max_length": min(7 * longest // 5 + 4, limit or 10**9)}

    def evaluation_loop(
        self,
        dataloader: DataLoader,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """As of `Trainer`, but losses are averaged over tokens, and no sentence counts twice on many processes."""
        self._held_out.clear()
        self.gather_function = self.accelerator.gather_for_metrics
        output = super().evaluation_loop(dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix)
        for name, (total, weight) in self._held_out.items():
            cast(dict, output.metrics)[f"{metric_key_prefix}_{name}"] = total / weight
        return output

    # Optimisation

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
        if self._checkpoint is not None and not is_whole(self._checkpoint):
            raise ValueError(f"{self._checkpoint} was not written to its end: resume from an earlier checkpoint.")
        folder = str(self._checkpoint) if self._checkpoint is not None else None
        return super().train(folder, trial, ignore_keys_for_eval)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """A checkpoint is marked as incomplete while it is written, and older ones are deleted when it is whole."""
        folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        if self.args.should_save:
            mark_incomplete(folder)
        self.accelerator.wait_for_everyone()
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self.args.save_total_limit = limit
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            if self._trained is not None:
                write_position(folder, self._trained, self.state.global_step)
            mark_whole(folder)
            delete_old_checkpoints(folder, limit, self.state.best_model_checkpoint)

    def create_model_card(self, *arguments: Any, **options: Any) -> None:
        """Write the card that `push_to_hub` pushes: what `Trainer` says, with what it does not know put right."""
        super().create_model_card(*arguments, **options)
        if self.is_world_process_zero():
            write_model_card(cast(str, self.args.output_dir), self.args, self.state.log_history)


def is_finished(checkpoint: Path, args: TranslationTrainingArguments) -> bool:
    """True if a checkpoint is the last one of its run, which `Trainer.train` would train one step too far."""
    state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE))
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


def _model_inputs(inputs: dict[str, Any]) -> dict[str, Any]:
    names = ("input_ids", "attention_mask", "decoder_input_ids")
    return {name: inputs[name] for name in names if name in inputs}
