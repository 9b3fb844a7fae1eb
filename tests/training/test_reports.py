"""What is measured while training reaches the trackers that `report_to` names; each test needs its tracker."""

from pathlib import Path
from typing import Any

import pytest
from training_script import build_trainer

from hf_lrp.training import ContributionCallback

SENTENCES = ["the cat sees the dog", "she is not in the house"]


def train_and_report(output: Path, tracker: str) -> Any:
    """A trainer that evaluated and looked at contributions at update 2 and 4."""
    trainer = build_trainer(output, report_to=tracker, eval_strategy="steps", eval_steps=2)
    trainer.add_callback(ContributionCallback(trainer, SENTENCES, SENTENCES, every=2, prefixes=["reference"]))
    trainer.train()
    return trainer


def logged(trainer: Any, name: str) -> list[tuple[int, float]]:
    return [(log["step"], log[name]) for log in trainer.state.log_history if name in log]


def test_tensorboard(tmp_path: Path) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    trainer = train_and_report(tmp_path, "tensorboard")
    (folder,) = {file.parent for file in tmp_path.rglob("events.out.tfevents.*")}
    events = accumulators.EventAccumulator(str(folder))
    events.Reload()
    for tag, name in (
        ("train/loss", "loss"),
        ("eval/loss", "eval_loss"),
        ("train/contributions/reference/source_total", "contributions/reference/source_total"),
    ):
        expected = logged(trainer, name)
        assert [event.step for event in events.Scalars(tag)] == [step for step, _ in expected]
        assert [event.value for event in events.Scalars(tag)] == pytest.approx([value for _, value in expected])


def test_weights_and_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    trainer = train_and_report(tmp_path, "wandb")
    try:
        summary = dict(wandb.run.summary)
        settings = dict(wandb.run.config)
    finally:
        wandb.finish()
    assert settings["source_tokens"] == trainer.args.source_tokens
    for tag, name in (
        ("eval/loss", "eval_loss"),
        ("train/contributions/reference/source_total", "contributions/reference/source_total"),
    ):
        assert summary[tag] == pytest.approx(logged(trainer, name)[-1][1])
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
