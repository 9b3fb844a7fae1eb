"""The benchmark runs and reports what it says."""

import importlib.util
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny_models import tiny_model
from transformers import AutoConfig, AutoModelForCausalLM, WhisperConfig

SCRIPT = Path(__file__).parents[2] / "recipes" / "benchmark.py"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    spec = importlib.util.spec_from_file_location("benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "transformer_base", lambda family="marian": tiny_model(max_position_embeddings=64))
    monkeypatch.setattr(module, "VOCABULARY", 39)
    monkeypatch.setattr(module, "training", lambda *_: {"measured": "in test_benchmark_training"})
    models = importlib.import_module("benchmark_models")
    llama = dict(hidden_size=12, intermediate_size=20, num_hidden_layers=2, vocab_size=40, num_attention_heads=2)
    small = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **llama, num_key_value_heads=1)).eval()
    monkeypatch.setattr(models, "decoder_only", lambda: small)
    speech = dict(d_model=12, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2)
    sizes = dict(encoder_ffn_dim=8, decoder_ffn_dim=8, max_source_positions=10, vocab_size=51865)
    monkeypatch.setattr(models, "WhisperConfig", lambda: WhisperConfig(**speech, **sizes))
    monkeypatch.setattr(module, "peak_memory", lambda *_: 123 * 2**20)  # measured in a process of its own
    return module


def test_a_quick_run_writes_all_figures(benchmark, tmp_path, capsys):
    threads = torch.get_num_threads()
    benchmark.main(["--output", str(tmp_path / "figures.json"), "--quick", "--training", "--threads", str(threads)])
    figures = json.loads((tmp_path / "figures.json").read_text())
    result = figures["Transformer base"]
    names = {"forward", "forward + T backward", "explain", "explain, R(source) alone"}
    assert set(result["comparison"]["seconds"]) >= names
    assert figures["commit"] and figures["machine"]["torch"] == torch.__version__
    assert figures["decoder only"]["seconds"]["explain"] > 0 and figures["speech"]["seconds"]["all"] > 0
    assert all(value > 0 for value in result["comparison"]["seconds"].values())
    assert [row["length"] for row in result["growth"]] == [10, 20]
    assert figures["training"] == {"measured": "in test_benchmark_training"}
    assert set(figures["families"]) == {*benchmark.BART_LIKE, *benchmark.OTHERS}
    assert set(result["corpus"]["list"]["targets given"]) == {"loop of single calls", "list"}
    assert result["corpus"]["prefixes"]["10"]["explain_prefixes"] > 0
    output = capsys.readouterr().out
    assert "explain takes" in output and "of Marian's" in output
    assert "explain_prefixes, S = T = 10" in output


def test_peak_memory_sees_what_is_freed_again(benchmark, monkeypatch):
    def hungry(model, tokenizer, source, target, max_memory=None):
        if len(source) > 2:  # not the call that warms up
            held = torch.ones(50 * 2**20)  # 200 MiB
            time.sleep(0.1)
            assert held[0] == 1

    monkeypatch.setattr(benchmark, "explain", hungry)
    assert 150 * 2**20 < benchmark.peak_memory_here(None, 12, None, torch.get_num_threads()) < 400 * 2**20


def test_processes_are_timed_from_the_selection_to_the_last_shard(benchmark, monkeypatch):
    corpus = importlib.import_module("benchmark_corpus")
    commands = []

    def analyze(command, env, **_):
        commands.append(command)
        assert env["OMP_NUM_THREADS"] == "1"
        out = Path(command[command.index("--out") + 1])
        (out / "shards").mkdir(parents=True)
        for name, moment in {"selection": 1000, "shards/00000": 1009, "shards/00001": 1006}.items():
            path = out / f"{name}.json"
            path.touch()
            os.utime(path, (moment, moment))

    monkeypatch.setattr(corpus.subprocess, "run", analyze)
    monkeypatch.setattr(corpus.Run, "open", lambda folder: SimpleNamespace(number=36))
    assert corpus.sentences_per_second("model", ["a", "b"], 36, 1) == 4
    assert corpus.sentences_per_second("model", ["a", "b"], 36, 2) == 4
    assert "--num_processes" not in commands[0]
    assert commands[1][commands[1].index("--num_processes") + 1] == "2"


def test_the_time_of_an_evaluation_is_divided(benchmark, tmp_path):
    """On the embedded model: parts are shares of the whole, and the way back takes some of it."""
    corpus = importlib.import_module("benchmark_corpus")
    (tmp_path / "a.en").write_text("The cat sleeps.\nI like tea.\nWhere is the station?\nHe reads a book.\n")
    (tmp_path / "a.fr").write_text("Le chat dort.\nJ'aime le thé.\nOù est la gare ?\nIl lit un livre.\n")
    shares = corpus.where_time_goes(None, [str(tmp_path / "a.en"), str(tmp_path / "a.fr")], 4)
    assert set(shares) == {*corpus.PARTS, "selection, results, writing"}
    assert sum(shares.values()) == pytest.approx(1)
    assert all(0 <= share <= 1 for share in shares.values())
    assert shares["decoder, back"] > 0 and shares["encoder, back"] > 0 and shares["generation"] > 0


def test_the_compiled_part_is_off_only_inside(benchmark, monkeypatch):
    corpus = importlib.import_module("benchmark_corpus")
    for before in (None, "plain"):
        if before is not None:
            monkeypatch.setenv("HF_LRP_COMPILED", before)
        else:
            monkeypatch.delenv("HF_LRP_COMPILED", raising=False)
        with corpus.compiled_off():
            assert os.environ["HF_LRP_COMPILED"] == "off"
        assert os.environ.get("HF_LRP_COMPILED") == before
