"""Training on a stream: every pair once in a pass, whole updates, the same ones for any number of processes."""

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from tiny_tokenizer import tiny_tokenizer
from toy_corpus import toy_pairs
from training_script import build_trainer, toy_dataset
from transformers import TrainerCallback

from hf_lrp.data.pairs import load_pairs
from hf_lrp.training.encoding import encode_pairs
from hf_lrp.training.streaming import Position, TokenBudgetStream
from hf_lrp.training.trainer import TranslationTrainer

STREAM = {"stream": True, "stream_buffer": 20, "save_strategy": "steps", "save_steps": 1}


def collate(rows: list[Any]) -> dict[str, Any]:
    return {"examples": [row["example"] for row in rows], "lengths": [len(row["input_ids"]) for row in rows]}


def stream(rows: Any = None, **settings: Any) -> TokenBudgetStream:
    options: dict[str, Any] = {"tokens": 20, "batches_per_update": 4, "seed": 3, "buffer": 20} | settings
    return TokenBudgetStream(toy_dataset() if rows is None else rows, collate, **options)


def passes(batches: TokenBudgetStream, number: int) -> list[list[dict[str, Any]]]:
    """The micro-batches of the first passes, by pass."""
    taken = itertools.takewhile(lambda batch: batch["position"][0] < number, batches)
    return [list(group) for _, group in itertools.groupby(taken, lambda batch: batch["position"][0])]


def test_every_pair_is_in_every_pass_once_and_updates_are_whole() -> None:
    first = passes(stream(), 2)
    for batches in first:
        assert sorted(example for batch in batches for example in batch["examples"]) == list(range(48))
        assert all(len(batch["lengths"]) * max(batch["lengths"]) <= 24 for batch in batches)
        sizes = Counter(batch["position"][1] for batch in batches)
        assert list(sizes) == list(range(len(batches) // 4)) and set(sizes.values()) == {4}
        early = {example for batch in batches for example in batch["examples"] if batch["position"][1] == 0}
        assert early < set(range(20)), "the first update is of the first buffer"
    assert [batch["examples"] for batch in first[0]] != [batch["examples"] for batch in first[1]]
    assert passes(stream(), 2) == first
    assert passes(stream(seed=4), 2) != first


def test_sentences_of_a_buffer_are_batched_by_length() -> None:
    one = passes(stream(buffer=1000), 1)[0]
    assert max(max(batch["lengths"]) - min(batch["lengths"]) for batch in one) <= 1


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_share_every_update(processes: int) -> None:
    parts = [passes(stream(process=i, processes=processes), 2) for i in range(processes)]
    whole = passes(stream(), 2)
    for number, batches in enumerate(whole):
        shared = [part[number] for part in parts]
        assert [batch for turn in zip(*shared, strict=True) for batch in turn] == batches


def test_a_stream_starts_where_it_is_told() -> None:
    whole = [batch for batches in passes(stream(), 3) for batch in batches]
    for start in (Position(0, 3), Position(1, 0), Position(1, 4), Position(0, len(whole) // 3 // 4)):
        later = stream(start=start, skipped=5)
        assert [next(iterator) for iterator in [iter(later)] for _ in range(5)] == [None] * 5
        expected = [batch for batch in whole if batch["position"] >= start][:8]
        assert list(itertools.islice(later, 5, 13)) == expected


def test_streams_that_cannot_be_trained_on() -> None:
    with pytest.raises(ValueError, match="The stream has no pair to train on"):
        next(iter(stream(rows=[])))
    with pytest.raises(ValueError, match="3 sentences are too few for 4 micro-batches per update"):
        next(iter(stream(rows=toy_dataset(3))))
    with pytest.raises(ValueError, match="after 40 updates of a pass over the stream, which now has .*not the same"):
        next(iter(stream(start=Position(0, 40))))


def test_a_stream_of_text_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a file to lower losses; a process of its own that reads ahead changes nothing."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    path = tmp_path / "toy.tsv"
    path.write_text("".join(f"{english}\t{english}\n" for english, _ in toy_pairs(300, seed=1)), encoding="utf-8")
    encoded, report = encode_pairs(load_pairs(path, streaming=True), tiny_tokenizer())
    losses = []
    for workers in (0, 1):
        settings = {"max_steps": 20, "optim": "adamw_torch", "learning_rate": 0.01, "dropout": 0.1}
        frame = build_trainer(
            tmp_path / str(workers), **settings, stream_buffer=64, dataloader_num_workers=workers, device_tokens=80
        )
        trainer = TranslationTrainer(frame.model, frame.args, train_dataset=encoded)
        trainer.train()
        losses.append(list(losses_of(trainer).values()))
    assert losses[0] == losses[1] and len(losses[0]) == 20
    assert sum(losses[0][-5:]) < 0.9 * sum(losses[0][:5])
    assert 0 < report.read <= 300


def losses_of(trainer: TranslationTrainer) -> dict[int, float]:
    return {log["step"]: log["loss"] for log in trainer.state.log_history if "loss" in log}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"source_word_dropout": 0.2}, id="mle"),
        pytest.param({"minimum_risk": True, "candidates": 3}, id="mrt", marks=pytest.mark.slow),
    ],
)
def test_a_continued_run_has_the_same_losses_in_any_pass(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Stopped in the first pass, at its end, in the second."""
    settings = STREAM | {"dropout": 0.3, "max_steps": 7, "learning_rate": 0.05} | settings
    whole = build_trainer(tmp_path, **settings)
    whole.train()
    found = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("*/stream.json")}
    assert [found[f"checkpoint-{step}"]["step"] for step in range(1, 8)] == list(range(1, 8))
    last = max(position["step"] for position in found.values() if position["pass"] == 0)
    assert 2 < last < 6, "the example has no second pass"
    for step in (2, last, 6) if "minimum_risk" not in settings else (last,):
        again = build_trainer(tmp_path / str(step), **(settings | {"save_strategy": "no"}))
        again.train(resume_from_checkpoint=tmp_path / f"checkpoint-{step}")
        assert losses_of(again) == losses_of(whole)
        for name, tensor in whole.model.state_dict().items():
            assert torch.equal(again.model.state_dict()[name], tensor), name


def test_resuming_from_the_last_whole_checkpoint(tmp_path: Path) -> None:
    settings = STREAM | {"max_steps": 4}
    with pytest.raises(ValueError, match="There is no whole checkpoint"):
        build_trainer(tmp_path, **settings).train(resume_from_checkpoint=True)
    build_trainer(tmp_path, **settings).train()
    for step in (3, 4):
        (tmp_path / f"checkpoint-{step}" / "incomplete").touch()
    steps: list[int] = []

    class Steps(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            steps.append(state.global_step)

    build_trainer(tmp_path, callbacks=[Steps()], **settings).train(resume_from_checkpoint=True)
    assert steps == [3, 4]


def test_what_a_stream_needs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_steps how many updates"):
        build_trainer(tmp_path, stream=True, max_steps=-1)
    with pytest.raises(ValueError, match="stream_buffer must be positive"):
        build_trainer(tmp_path, stream=True, stream_buffer=0)
    build_trainer(tmp_path, max_steps=2, save_strategy="steps", save_steps=1).train()
    with pytest.raises(ValueError, match="checkpoint-1 was not trained on a stream"):
        build_trainer(tmp_path, max_steps=2, stream=True).train(resume_from_checkpoint=tmp_path / "checkpoint-1")
