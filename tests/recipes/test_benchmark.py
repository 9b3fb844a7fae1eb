"""The benchmark runs and reports what it says."""

import importlib.util
import json
import time
from pathlib import Path

import pytest
import torch
from tiny_models import tiny_model

SCRIPT = Path(__file__).parents[2] / "recipes" / "benchmark.py"


@pytest.fixture
def benchmark(monkeypatch):
    spec = importlib.util.spec_from_file_location("benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "transformer_base", lambda family="marian": tiny_model(max_position_embeddings=64))
    monkeypatch.setattr(module, "VOCABULARY", 39)
    monkeypatch.setattr(module, "peak_memory", lambda *_: 123 * 2**20)  # measured in a process of its own
    return module


def test_a_quick_run_writes_all_figures(benchmark, tmp_path, capsys):
    threads = torch.get_num_threads()
    benchmark.main(["--output", str(tmp_path / "figures.json"), "--quick", "--threads", str(threads)])
    figures = json.loads((tmp_path / "figures.json").read_text())
    result = figures["Transformer base"]
    assert set(result["comparison"]["seconds"]) >= {"forward", "forward + T backward", "explain"}
    assert all(value > 0 for value in result["comparison"]["seconds"].values())
    assert [row["length"] for row in result["growth"]] == [10, 20]
    assert set(figures["families"]) == {*benchmark.BART_LIKE, *benchmark.OTHERS}
    output = capsys.readouterr().out
    assert "explain takes" in output and "of Marian's" in output


def test_peak_memory_sees_what_is_freed_again(benchmark, monkeypatch):
    def hungry(model, tokenizer, source, target, max_memory=None):
        if len(source) > 2:  # not the call that warms up
            held = torch.ones(50 * 2**20)  # 200 MiB
            time.sleep(0.1)
            assert held[0] == 1

    monkeypatch.setattr(benchmark, "explain", hungry)
    assert 150 * 2**20 < benchmark._peak_memory(None, 12, None, torch.get_num_threads()) < 400 * 2**20
