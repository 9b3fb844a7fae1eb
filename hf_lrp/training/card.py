"""The model card of a training run: what was trained, and how."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from transformers import Seq2SeqTrainingArguments

from hf_lrp.data.files import write_atomically
from hf_lrp.training.arguments import TranslationTrainingArguments

_UNTRUE = ("- train_batch_size:", "- total_train_batch_size:")  # sentences: updates have tokens
_SCORES = ("eval_loss", "eval_expected_risk", "eval_bleu", "eval_chrf")


def write_model_card(
    folder: str | os.PathLike[str], args: TranslationTrainingArguments, history: Sequence[Mapping[str, Any]]
) -> None:
    """Put into the card that `Trainer` wrote what it does not know: our settings, held-out scores, contributions."""
    path = Path(folder) / "README.md"
    lines = [line for line in path.read_text(encoding="utf-8").split("\n") if not line.startswith(_UNTRUE)]
    theirs = {each.name for each in fields(Seq2SeqTrainingArguments)}
    ours = [each.name for each in fields(args) if each.name not in theirs]
    settings = [f"- {name}: {getattr(args, name)}" for name in ours]
    measured: dict[str, Any] = {}
    for log in history:
        measured |= {name: log[name] for name in log if name in _SCORES or name.startswith("contributions/")}
    values = [f"- {name}: {value:.4f}" for name, value in measured.items()]
    sections = ["## Translation training with hf_lrp", "", *settings, ""]
    if values:
        sections += ["### Held-out sentences, at the end", "", *values, ""]
    write_atomically(path, "\n".join([*lines, "", *sections]).encode())
