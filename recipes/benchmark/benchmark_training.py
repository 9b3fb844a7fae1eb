"""Measure training, as ratios within one run.

    python recipes/benchmark/benchmark_training.py --output training.json [--pairs tatoeba-en-fr.tsv] [--quick]

With the model of configs/tatoeba-mini-base.yaml: tokens per second against transformers' own Seq2SeqTrainer on the
same micro-batches; a step of minimum risk training against what one writes first, and where its time goes; and the
cost of looking at contributions while a model trains. Without pairs, the corpus that the project makes itself is
taken, which the trained model does not know, so that its samples have less in common than usual.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

RECIPES = Path(__file__).parents[1]
sys.path += [str(RECIPES / folder) for folder in ("training", "toy")]

import torch
from benchmark_times import medians, take_turns
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from toy_corpus import toy_pairs
from train import read_config
from transformers import (
    DataCollatorForSeq2Seq,
    MarianMTModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerControl,
)

from hf_lrp.data.files import write_atomically
from hf_lrp.data.pairs import load_pairs
from hf_lrp.models.configs import IGNORED_LABEL
from hf_lrp.models.loading import load_checkpoint
from hf_lrp.training.arguments import TranslationTrainingArguments
from hf_lrp.training.batching import TokenBudgetBatchSampler, collate
from hf_lrp.training.encoding import encode_pairs
from hf_lrp.training.minimum_risk.arguments import MinimumRiskTrainingArguments
from hf_lrp.training.minimum_risk.loss import minimum_risk_step
from hf_lrp.training.minimum_risk.risks import negative_sentence_bleu
from hf_lrp.training.minimum_risk.trainer import MinimumRiskTrainer
from hf_lrp.training.monitoring import ContributionCallback
from hf_lrp.training.tokenization import translation_config
from hf_lrp.training.trainer import TranslationTrainer

CONFIGS = RECIPES / "training" / "configs"
SEED = 1
OURS, PLAIN = "TranslationTrainer", "Seq2SeqTrainer"
QUIET = {"report_to": "none", "disable_tqdm": True, "save_strategy": "no", "use_cpu": True, "seed": SEED}
SAME = {"learning_rate": 1e-4, "lr_scheduler_type": "constant", "dataloader_pin_memory": False}


class Material(NamedTuple):
    """A trained model of the mini size, one of the same size as it starts, and pairs to train on."""

    trained: PreTrainedModel
    untrained: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    texts: Dataset
    encoded: Dataset


def prepare(number: int, path: Path | None) -> Material:
    """The embedded model, a new one with its vocabulary, and so many pairs."""
    trained, tokenizer = load_checkpoint(None)
    torch.manual_seed(SEED)
    untrained = MarianMTModel(
        translation_config(tokenizer, **read_config(CONFIGS / "tatoeba-mini-base.yaml")["model"])
    )
    if path is None:
        rows = [{"source": s, "target": t, "example": n} for n, (s, t) in enumerate(toy_pairs(number, SEED))]
        texts = Dataset.from_list(rows)
    else:
        found = load_pairs(path)
        texts = found.shuffle(SEED).select(range(min(number, len(found))))
    return Material(trained, untrained, tokenizer, texts, encode_pairs(texts, tokenizer, workers=1)[0])


# Maximum likelihood


class PlainTrainer(Seq2SeqTrainer):
    """transformers' own, on given micro-batches."""

    batches: list[list[int]]

    def get_train_dataloader(self) -> DataLoader:
        loader = DataLoader(self.train_dataset, batch_sampler=self.batches, collate_fn=self.data_collator)
        return self.accelerator.prepare(loader)


def build_trainers(material: Material, folder: str, updates: int) -> dict[str, Seq2SeqTrainer]:
    """Both trainers, with copies of the same model, the same micro-batches and the same settings."""
    training = read_config(CONFIGS / "tatoeba-mini-base.yaml")["training"]
    names = ("source_tokens", "device_tokens", "label_smoothing_factor")
    arguments = TranslationTrainingArguments(
        output_dir=folder, max_steps=updates, **{name: training[name] for name in names}, **QUIET, **SAME
    )
    ours = TranslationTrainer(
        copy.deepcopy(material.untrained),
        arguments,
        train_dataset=material.encoded,
        processing_class=material.tokenizer,
    )
    model = copy.deepcopy(material.untrained)
    model.accepts_loss_kwargs = False  # Marian takes any argument, so that Trainer believes it scales its loss
    shared = ("adam_beta2", "adam_epsilon", "label_smoothing_factor", "gradient_accumulation_steps", "max_steps")
    plain = PlainTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(
            output_dir=folder, **{name: getattr(arguments, name) for name in shared}, **QUIET, **SAME
        ),
        train_dataset=material.encoded.select_columns(["input_ids", "labels"]),
        data_collator=DataCollatorForSeq2Seq(material.tokenizer, model=model),
        processing_class=material.tokenizer,
    )
    plain.batches = list(sampler(material, arguments.device_tokens))
    return {OURS: ours, PLAIN: plain}


def sampler(material: Material, tokens: int) -> TokenBudgetBatchSampler:
    """The micro-batches of the first epoch."""
    lengths = (material.encoded["source_length"][:], material.encoded["target_length"][:])
    return TokenBudgetBatchSampler(*lengths, tokens=tokens, batches_per_update=1, seed=SEED)


def look(trainer: Any, model: PreTrainedModel, material: Material, folder: str) -> tuple[Callable[[], None], int]:
    """A task that looks at contributions once, as the mini config has it, and the steps between two looks."""
    settings = read_config(CONFIGS / "tatoeba-mini-base.yaml")["contributions"]
    sample = material.texts[: settings["sentences"]]
    watched = SimpleNamespace(
        model=model,
        processing_class=material.tokenizer,
        args=trainer.args,
        log=trainer.log,
        is_deepspeed_enabled=False,
    )
    callback = ContributionCallback(
        watched, sample["source"], sample["target"], every=settings["every"], path=Path(folder) / "looks.jsonl"
    )
    state = SimpleNamespace(global_step=settings["every"], max_steps=-1, epoch=0.0, is_world_process_zero=True)
    return lambda: callback.on_step_end(trainer.args, state, TrainerControl()), settings["every"]


def compare_trainers(material: Material, updates: int, repeats: int) -> dict[str, Any]:
    """Both trainers, and looks at contributions, taking turns."""
    with tempfile.TemporaryDirectory() as folder:
        trainers: dict[str, Any] = build_trainers(material, folder, updates)
        batches = trainers[PLAIN].batches[:updates]
        tokens = sum(len(row["input_ids"]) + len(row["labels"]) for b in batches for row in material.encoded.select(b))
        looks = {
            f"a look at a model, {name}": look(trainers[OURS], model, material, folder)
            for name, model in (("trained", material.trained), ("untrained", material.untrained))
        }
        every = next(iter(looks.values()))[1]
        tasks: dict[str, Callable[[], Any]] = {name: trainer.train for name, trainer in trainers.items()}
        times = medians(take_turns(tasks | {name: task for name, (task, _) in looks.items()}, repeats))
    step = times[OURS] / updates
    return {
        "updates": updates,
        "tokens": tokens,
        "seconds": times,
        "speed against Seq2SeqTrainer": times[PLAIN] / times[OURS],
        "steps between looks": every,
        "share of looks in training time": {name: times[name] / (times[name] + every * step) for name in looks},
    }


# Minimum risk


def naive_minimum_risk_step(
    model: PreTrainedModel, batch: dict[str, Tensor], number: int, alpha: float, seed: int
) -> Tensor:
    """What one writes first: `generate` and the model on each source repeated for each candidate, all at once.

    Not deduplicated, so that its loss is another one; it serves to compare times.
    """
    config = model.config
    references = [row[row != IGNORED_LABEL] for row in batch["labels"]]
    torch.manual_seed(seed)
    model.eval()
    sampled = model.generate(
        input_ids=batch["input_ids"].repeat_interleave(number, dim=0),
        attention_mask=batch["attention_mask"].repeat_interleave(number, dim=0),
        do_sample=True,
        top_k=0,
        top_p=1.0,
        num_beams=1,
        use_cache=True,
        suppress_tokens=[config.pad_token_id],
        max_length=max(7 * len(row) // 5 + 4 for row in references),  # with the start token
    )
    model.train()
    rows: list[Tensor] = []
    for row, reference in zip(sampled[:, 1:].split(number), references, strict=True):
        rows += [_cut(ids, 7 * len(reference) // 5 + 3, config.eos_token_id) for ids in row] + [reference]
    labels = pad_sequence(rows, batch_first=True, padding_value=IGNORED_LABEL)
    logits = model(
        input_ids=batch["input_ids"].repeat_interleave(number + 1, dim=0),
        attention_mask=batch["attention_mask"].repeat_interleave(number + 1, dim=0),
        decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels),
    ).logits
    chosen = logits.log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    log_probabilities = (chosen * (labels != IGNORED_LABEL)).sum(-1).view(len(references), number + 1)
    risks = []
    for group in torch.arange(len(rows)).split(number + 1):
        ids = [[i for i in rows[k].tolist() if i != config.eos_token_id] for k in group.tolist()]
        risks.append([negative_sentence_bleu([candidate], ids[-1])[0] for candidate in ids])
    return ((alpha * log_probabilities).softmax(-1) * torch.tensor(risks)).sum()


def _cut(ids: Tensor, limit: int, end: int) -> Tensor:
    """Up to the first end, which is kept, or the limit."""
    ids = ids[:limit]
    found = (ids == end).nonzero()
    return ids[: int(found[0]) + 1] if len(found) else ids


def compare_minimum_risk(material: Material, batches: int, repeats: int) -> dict[str, Any]:
    """Micro-batches of the mini config, forward and backward, in both ways."""
    training = read_config(CONFIGS / "tatoeba-mini-mrt.yaml")["training"]
    number, alpha = training["candidates"], training["alpha"]
    model = copy.deepcopy(material.trained).train()
    rows = [
        material.encoded.select(b).to_list() for b in islice(sampler(material, training["device_tokens"]), batches)
    ]
    special = (model.config.pad_token_id, model.config.decoder_start_token_id)
    inputs = [collate(batch, *special) for batch in rows]
    chunk_tokens = MinimumRiskTrainingArguments.scoring_tokens  # what the trainer takes unless it is told
    settings: dict[str, Any] = {"candidates": number, "alpha": alpha, "chunk_tokens": chunk_tokens}
    distinct = []

    def ours() -> None:
        for batch in inputs:
            output = minimum_risk_step(model, batch, **settings, seed=SEED)
            output.loss.backward()
            model.zero_grad()
            distinct.append(output.statistics.means()["distinct"])

    def naive() -> None:
        for batch in inputs:
            naive_minimum_risk_step(model, batch, number, alpha, SEED).backward()
            model.zero_grad()

    times = medians(take_turns({"minimum_risk_step": ours, "naive": naive}, repeats))
    return {
        "candidates": number,
        "distinct candidates with the reference": statistics.mean(distinct),
        "sentences": sum(map(len, rows)),
        "seconds": times,
        "speed against the naive version": times["naive"] / times["minimum_risk_step"],
    }


class TimedTrainer(MinimumRiskTrainer):
    """Counts sentences, and the seconds of backward passes."""

    sentences = 0
    backward_seconds = 0.0

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        self.sentences += len(inputs["labels"])
        return super().training_step(model, inputs, num_items_in_batch)

    def time_backward(self) -> None:
        backward = self.accelerator.backward

        def timed(*arguments: Any, **options: Any) -> None:
            start = time.perf_counter()
            backward(*arguments, **options)
            self.backward_seconds += time.perf_counter() - start

        self.accelerator.backward = timed


def divide_minimum_risk(material: Material, updates: int) -> dict[str, float]:
    """Shares of the time of minimum risk training as the mini config has it, optimizer and all."""
    training = read_config(CONFIGS / "tatoeba-mini-mrt.yaml")["training"]
    names = ("candidates", "alpha", "source_tokens", "device_tokens")
    with tempfile.TemporaryDirectory() as folder:
        arguments = MinimumRiskTrainingArguments(
            output_dir=folder,
            max_steps=updates,
            logging_steps=updates,
            **{name: training[name] for name in names},
            **QUIET,
            **SAME,
        )
        model = copy.deepcopy(material.trained)
        trainer = TimedTrainer(model, arguments, train_dataset=material.encoded, processing_class=material.tokenizer)
        trainer.time_backward()
        total = trainer.train().metrics["train_runtime"]
    log = next(log for log in trainer.state.log_history if "sampling_seconds" in log)
    sampling, scoring, risk = (log[f"{name}_seconds"] * trainer.sentences for name in ("sampling", "scoring", "risk"))
    parts = {"sampling": sampling, "scoring and backward": scoring + trainer.backward_seconds, "risk": risk}
    return {name: value / total for name, value in parts.items()} | {"rest": 1 - sum(parts.values()) / total}


# Reports


def measure(quick: bool, pairs: Path | None) -> dict[str, Any]:
    """Everything about training."""
    material = prepare(200 if quick else 5000, pairs)
    repeats = 2 if quick else 8
    return {
        "likelihood": compare_trainers(material, updates=2 if quick else 5, repeats=repeats),
        "minimum risk": compare_minimum_risk(material, 1 if quick else 3, repeats)
        | {"shares of time": divide_minimum_risk(material, 1 if quick else 5)},
    }


def show(results: dict[str, Any], console: Console) -> None:
    """Print the figures."""
    likelihood, risk = results["likelihood"], results["minimum risk"]
    table = Table(title="training, the mini model")
    for column in ("what", "seconds", "tokens per second"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for name, value in likelihood["seconds"].items():
        rate = f"{likelihood['tokens'] / value:,.0f}" if name in (OURS, PLAIN) else ""
        table.add_row(f"{name}, {likelihood['updates']} updates" if rate else name, f"{value:.2f}", rate)
    for name, value in risk["seconds"].items():
        table.add_row(f"{name}, {risk['sentences']} sentences, {risk['candidates']} candidates", f"{value:.2f}", "")
    console.print(table)
    console.print(f"{OURS} against {PLAIN}: {likelihood['speed against Seq2SeqTrainer']:.2f} x as fast")
    for name, share in likelihood["share of looks in training time"].items():
        console.print(f"{name}, every {likelihood['steps between looks']} steps: {share:.2%} of training time")
    console.print(
        f"minimum_risk_step against the naive version: {risk['speed against the naive version']:.1f} x as fast; its "
        "time: " + ", ".join(f"{name} {share:.0%}" for name, share in risk["shares of time"].items())
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="JSON file for the figures")
    parser.add_argument("--pairs", type=Path, help="TSV file of the embedded model's training data, Tatoeba")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="fewer repeats and updates")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    results = measure(options.quick, options.pairs)
    show(results, Console())
    write_atomically(options.output, (json.dumps(results, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
