"""The benchmark of training compares what is equal, and reports what it says."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from packaging.version import Version
from tiny_models import RELEASE, tiny_model
from tiny_tokenizer import tiny_tokenizer
from toy_corpus import toy_pairs
from transformers import TrainerCallback

from hf_lrp.training.encoding import encode_pairs

SMALL = {
    "source_tokens": 60,
    "device_tokens": 60,
    "candidates": 3,
    "alpha": 0.005,
    "label_smoothing_factor": 0.1,
    "objective": "mrt",
}


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = importlib.import_module("benchmark_training")
    config = {"training": SMALL, "contributions": {"every": 10, "sentences": 2}}
    monkeypatch.setattr(module, "read_config", lambda _: config)
    monkeypatch.setattr(module, "prepare", lambda *_: material(module))
    return module


def material(module: Any) -> Any:
    pairs = toy_pairs(40, seed=1)
    texts = Dataset.from_list([{"source": s, "target": t, "example": n} for n, (s, t) in enumerate(pairs)])
    model = tiny_model(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
    return module.Material(model, model, tiny_tokenizer(), texts, encode_pairs(texts, tiny_tokenizer(), workers=1)[0])


@pytest.mark.skipif(
    Version("5.8") > RELEASE, reason="this release of transformers does not log the gradient's norm here"
)
def test_both_trainers_compute_the_same(benchmark: Any, tmp_path: Path) -> None:
    class Always(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_log = True

    found = {}
    for name, trainer in benchmark.build_trainers(benchmark.prepare(0), str(tmp_path), updates=3).items():
        trainer.add_callback(Always())
        trainer.train()
        logs = [log for log in trainer.state.log_history if "loss" in log]
        found[name] = [log[quantity] for log in logs for quantity in ("loss", "grad_norm")]
    assert found[benchmark.PLAIN] == pytest.approx(found[benchmark.OURS], rel=1e-4)
    assert len(set(found[benchmark.OURS])) == 6


def test_given_pairs_are_drawn_from(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"I see {n}.\tJe vois {n}.\n" for n in range(30)))
    benchmark = importlib.import_module("benchmark_training")
    found = benchmark.prepare(20, path)
    assert len(set(found.texts["source"])) == len(found.encoded) == 20
    assert all(text.startswith("Je vois") for text in found.texts["target"])
    assert len(benchmark.prepare(99, path).texts) == 30


def test_a_quick_run_writes_all_figures(benchmark: Any, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "figures.json"
    benchmark.main(["--output", str(path), "--quick", "--threads", str(torch.get_num_threads())])
    figures = json.loads(path.read_text())
    likelihood, risk = figures["likelihood"], figures["minimum risk"]
    times = likelihood["seconds"]
    assert likelihood["speed against Seq2SeqTrainer"] == times[benchmark.PLAIN] / times[benchmark.OURS] > 0
    shares = likelihood["share of looks in training time"]
    step = times[benchmark.OURS] / likelihood["updates"]
    assert len(shares) == 2
    for name, share in shares.items():
        assert share == pytest.approx(times[name] / (times[name] + 10 * step))
    assert risk["candidates"] == 3 and risk["sentences"] > 1
    assert 1 < risk["distinct candidates with the reference"] <= 4
    parts = risk["shares of time"]
    assert set(parts) == {"sampling", "scoring and backward", "risk", "rest"}
    assert all(0 < share < 1 for share in parts.values())
    assert sum(parts.values()) == pytest.approx(1)
    output = capsys.readouterr().out
    assert "against Seq2SeqTrainer" in output and "against the naive version" in output
