"""A small training run, on one or more processes."""

import functools
import json
import os
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sudden_end import kill_before
from tiny_models import tiny_model
from tiny_tokenizer import tiny_tokenizer

from hf_lrp.models.checkpoints import last_whole_checkpoint
from hf_lrp.training.arguments import TranslationTrainingArguments
from hf_lrp.training.minimum_risk.arguments import MinimumRiskTrainingArguments
from hf_lrp.training.minimum_risk.trainer import MinimumRiskTrainer
from hf_lrp.training.trainer import TranslationTrainer


@functools.cache
def toy_dataset(number: int = 48, seed: int = 0) -> Dataset:
    """Sentences of random words and their copies, with lengths from 2 to 7."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for example in range(number):
        length = int(torch.randint(1, 7, (), generator=generator))
        ids = [*torch.randint(2, 26, (length,), generator=generator).tolist(), 1]
        sizes = {"source_length": len(ids), "target_length": len(ids)}
        rows.append({"input_ids": ids, "labels": ids, "example": example, **sizes})
    return Dataset.from_list(rows)


def build_trainer(
    output: Path,
    callbacks: list | None = None,
    stream: bool = False,
    minimum_risk: bool = False,
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> Any:
    """A tiny model without dropout and a trainer for it; `options` are further ones of the trainer."""
    defaults = {
        "source_tokens": 80,
        "device_tokens": 20,
        "max_steps": 4,
        **({} if "schedule_scale" in settings else {"learning_rate": 0.1}),
        "optim": "sgd",
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 3,
        "dataloader_pin_memory": False,
    }
    model_settings = {"dropout": settings.pop("dropout", 0.0), "attention_dropout": 0.0, "activation_dropout": 0.0}
    trainer, arguments = (
        (MinimumRiskTrainer, MinimumRiskTrainingArguments)
        if minimum_risk
        else (TranslationTrainer, TranslationTrainingArguments)
    )
    usual = {
        "model": tiny_model(**model_settings),
        "train_dataset": toy_dataset().to_iterable_dataset() if stream else toy_dataset(),
        "eval_dataset": toy_dataset(8, seed=1),
        "processing_class": tiny_tokenizer(),
        "callbacks": callbacks,
    }
    return trainer(args=arguments(output_dir=str(output), **(defaults | settings)), **(usual | (options or {})))


def train(output: Path, settings: dict[str, Any]) -> None:
    """Train, from the last whole checkpoint on if there is one, and write the weights and the losses."""
    trainer = build_trainer(output, **settings)
    trainer.train(resume_from_checkpoint=last_whole_checkpoint(output))
    if trainer.is_world_process_zero():
        trainer.model.save_pretrained(output / "final")
        losses = {log["step"]: log["loss"] for log in trainer.state.log_history if "loss" in log}
        (output / "losses.json").write_text(json.dumps(losses))


def train_until(pattern: str, output: Path, settings: dict[str, Any]) -> None:
    """The same, killed before a file or folder appears that matches the pattern."""
    kill_before(pattern)
    train(output, settings)


def train_together(rank: int, processes: int, port: int, output: Path, settings: dict[str, Any]) -> None:
    """The same as one of several processes, as `accelerate launch` and torchrun start them."""
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": True}
    os.environ.update({name: str(value) for name, value in (places | store | {"ACCELERATE_USE_CPU": "true"}).items()})
    train(output, settings)
