"""The benchmark runs and reports what it says."""

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import benchmark
import benchmark_checkouts
import benchmark_corpus
import benchmark_models
import benchmark_sentences
import benchmark_times
import pytest
import torch
from tiny_models import tiny_model
from transformers import AutoConfig, AutoModelForCausalLM, WhisperConfig

ROOT = Path(__file__).parents[2]
ENGLISH = "The cat sleeps.|I like tea.|Where is the station?|He reads a book.|It rains.|We are here.|She sings well."
FRENCH = "Le chat dort.|J'aime le thé.|Où est la gare ?|Il lit un livre.|Il pleut.|Nous sommes ici.|Elle chante bien."


@pytest.fixture
def small(monkeypatch):
    """The benchmark with models of no size."""
    subjects = importlib.import_module("benchmark_subjects")
    monkeypatch.setattr(subjects, "VOCABULARY", 39)
    for module in (subjects, benchmark_models):
        monkeypatch.setattr(module, "transformer_base", lambda family="marian": tiny_model(max_position_embeddings=64))
    llama = dict(hidden_size=12, intermediate_size=20, num_hidden_layers=2, vocab_size=40, num_attention_heads=2)
    alone = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **llama, num_key_value_heads=1)).eval()
    monkeypatch.setattr(benchmark_models, "decoder_only", lambda: alone)
    speech = dict(d_model=12, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2)
    sizes = dict(encoder_ffn_dim=8, decoder_ffn_dim=8, max_source_positions=10, vocab_size=51865)
    monkeypatch.setattr(benchmark_models, "WhisperConfig", lambda: WhisperConfig(**speech, **sizes))
    monkeypatch.setattr(benchmark_sentences, "peak_memory", lambda *_: 123 * 2**20)  # in a process of its own
    monkeypatch.setattr(benchmark, "product_rates", lambda: {"one thread": 50.0, "all threads": 99.0})
    return ["--quick", "--threads", str(torch.get_num_threads())]


def write_corpus(folder: Path, repeats: int = 1) -> list[str]:
    """Two files of sentences."""
    paths = []
    for name, text in (("a.en", ENGLISH), ("a.fr", FRENCH)):
        (folder / name).write_text("\n".join(text.split("|") * repeats) + "\n")
        paths.append(str(folder / name))
    return paths


def test_a_trial_run_measures_every_section(small, tmp_path, capsys):
    output = tmp_path / "figures.json"
    benchmark.main(["--output", str(output), "--machine", "this machine", *small])
    figures = json.loads(output.read_text())
    kinds = ("comparison", "growth", "memory", "many")
    models = [f"{kind}: Transformer base" for kind in kinds]
    assert list(figures["sections"]) == [*models, "families", "decoder only", "speech"]
    results = {name: section["result"] for name, section in figures["sections"].items()}
    comparison = results["comparison: Transformer base"]
    assert {"forward", "forward + T backward", "explain", "explain, R(source) alone"} <= set(comparison["seconds"])
    assert all(len(values) == 1 and values[0] > 0 for values in comparison["seconds"].values())
    assert [row["length"] for row in results["growth: Transformer base"]] == [10, 20]
    assert set(results["families"]["seconds"]) == {*benchmark_models.BART_LIKE, *benchmark_models.OTHERS}
    many = results["many: Transformer base"]
    assert set(many["candidates"]["10"]["seconds"]) == {"loop of single calls", "list"}
    assert many["prefixes"]["10"]["seconds"]["explain_prefixes"][0] > 0
    assert figures["commit"]
    assert figures["machine"]["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert figures["machine"]["name"] == "this machine" and figures["machine"]["processor"]
    assert all(section["foreign"] >= 0 and section["minutes"] > 0 for section in figures["sections"].values())
    shown = capsys.readouterr().out
    assert "explain takes" in shown and "aimed at" in shown and "123 MiB" in shown


def test_an_interrupted_run_goes_on_with_what_is_missing(small, tmp_path, monkeypatch):
    output = tmp_path / "figures.json"
    calls = []

    def section(name, fails=False):
        def run():
            calls.append(name)
            if fails:
                raise KeyboardInterrupt
            return {"steps": 1, "seconds": {"all": [1.0], "R(source) alone": [0.5], "explain": [1.0]}, "foreign": 0.0}

        return run

    plans = iter([{"speech": section("speech"), "x": section("x", fails=True)}, {"speech": section("speech")}])
    monkeypatch.setattr(benchmark, "plan", lambda _: next(plans))
    with pytest.raises(KeyboardInterrupt):
        benchmark.main(["--output", str(output), *small])
    benchmark.main(["--output", str(output), *small])
    assert calls == ["speech", "x"]
    assert list(json.loads(output.read_text())["sections"]) == ["speech"]


def test_results_of_another_commit_are_not_added_to(small, tmp_path, monkeypatch):
    output = tmp_path / "figures.json"
    monkeypatch.setattr(benchmark, "plan", lambda _: {})
    output.write_text(json.dumps({"commit": "another", "machine": {}, "settings": {}, "sections": {}}))
    with pytest.raises(SystemExit, match="another commit, machine, settings: give another --output"):
        benchmark.main(["--output", str(output), *small])


def test_an_unknown_section_is_refused_before_anything_is_measured(small, tmp_path, capsys):
    with pytest.raises(SystemExit):
        benchmark.main(["--output", str(tmp_path / "figures.json"), "--sections", "familes", *small])
    assert "there is no section familes: comparison: Transformer base, " in capsys.readouterr().err


def test_tasks_take_turns_and_the_first_round_warms_up():
    calls = []
    measured = benchmark_times.take_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert calls == ["a", "b"] * 3
    assert {name: len(values) for name, values in measured["seconds"].items()} == {"a": 2, "b": 2}
    kept = benchmark_times.take_turns({"a": lambda: None}, 3, warm_up=False)
    assert len(kept["seconds"]["a"]) == 3


def test_ratios_are_taken_within_rounds():
    measured = {"seconds": {"a": [1.0, 4.0, 3.0], "b": [2.0, 4.0, 12.0]}}
    assert benchmark_times.ratios(measured, "a", "b") == [0.5, 1.0, 0.25]
    assert benchmark_times.medians(measured) == {"a": 3.0, "b": 4.0}


def test_foreign_load_is_what_others_do(monkeypatch):
    moments = iter([(10.0, 100.0, 5.0), (14.0, 109.0, 8.0)])  # now, all processors, own
    monkeypatch.setattr(benchmark_times, "moment", lambda: next(moments))
    with benchmark_times.foreign_load() as load:
        pass
    assert load == {"foreign": (9.0 - 3.0) / 4.0}


def test_own_work_and_that_of_children_is_not_foreign(monkeypatch):
    monkeypatch.setattr(benchmark_times, "busy_seconds", benchmark_times.own_seconds)  # nobody else on the machine
    before = benchmark_times.own_seconds()
    with benchmark_times.foreign_load() as load:
        subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)
        sum(range(10**6))
    assert benchmark_times.own_seconds() > before and load["foreign"] < 0.2


def test_peak_memory_sees_what_is_freed_again(small, monkeypatch):
    def hungry(model, tokenizer, source, target, max_memory=None):
        if len(source) > 2:  # not the call that warms up
            held = torch.ones(50 * 2**20)  # 200 MiB
            time.sleep(0.1)
            assert held[0] == 1

    monkeypatch.setattr(benchmark_sentences, "explain", hungry)
    threads = torch.get_num_threads()
    assert 150 * 2**20 < benchmark_sentences.peak_memory_here(None, 12, None, threads) < 400 * 2**20


def test_a_checkout_runs_in_a_process_of_its_own(tmp_path):
    """This checkout, with the embedded model."""
    settings = {"checkpoint": None, "data": write_corpus(tmp_path, repeats=2), "sizes": []}
    with benchmark_checkouts.Side(ROOT, settings) as side:
        assert side.sentences == {"analyze": 12, "score": 14}
        assert side.ask("score")["seconds"] > 0
        with pytest.raises(RuntimeError, match="ended with exit code 1"):
            side.ask("something else")


def test_analyze_and_score_are_what_users_call(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark_checkouts, "ANALYZED", 2)
    tasks = benchmark_checkouts.corpus_tasks(None, write_corpus(tmp_path, repeats=2), tmp_path)
    assert {name: number for name, (number, _) in tasks.items()} == {"analyze": 2, "score": 14}
    tasks["analyze"][1]()
    tasks["score"][1]()
    assert len((tmp_path / "scores.tsv").read_text().splitlines()) == 1 + 14


def test_checkouts_take_turns_and_their_shares_are_compared(monkeypatch):
    class Side:
        """Stands in for a process: the second one is twice as fast and computes something else."""

        def __init__(self, folder, settings):
            self.number = int(folder.name)
            self.sentences = {"explain 4 5": 1}

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def ask(self, task):
            shares = [0.25, 0.75] if self.number == 1 else [0.25, 0.5]
            return {"seconds": 2.0 / self.number, "shares": shares if task.startswith("shares") else None}

    monkeypatch.setattr(benchmark_checkouts, "Side", Side)
    found = benchmark_checkouts.compare_checkouts(Path("1"), Path("2"), None, None, 3, sizes=[(4, 5)])
    assert found["tasks"]["explain 4 5"]["seconds"] == {"before": [2.0] * 3, "after": [1.0] * 3}
    assert found["largest difference of shares"] == {"explain 4 5": 0.25}


def test_explaining_is_asked_for_with_and_without_shares(small):
    tasks = benchmark_checkouts.explain_tasks([(4, 5)])
    assert {name: number for name, (number, _) in tasks.items()} == {"explain 4 5": 1, "shares 4 5": 0}
    assert tasks["explain 4 5"][1]() is None
    shares = tasks["shares 4 5"][1]()
    assert len(shares) == 5 * 4 + 5 * 5 and sum(shares) == pytest.approx(5, abs=1e-4)


def test_a_folder_that_is_no_checkout_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is no checkout: it has no folder hf_lrp"):
        benchmark_checkouts.Side(tmp_path, {})


def test_processes_are_timed_from_the_selection_to_the_last_shard(monkeypatch):
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

    monkeypatch.setattr(benchmark_corpus.subprocess, "run", analyze)
    monkeypatch.setattr(benchmark_corpus.Run, "open", lambda folder: SimpleNamespace(number=36))
    monkeypatch.setattr(benchmark_corpus, "where_time_goes", lambda *_: {"generation": 1.0})
    found = benchmark_corpus.measure_analyze("model", ["a", "b"], 36, rounds=2)
    rates = {"1 process": [4, 4], "2 processes": [4, 4], "1 process without the compiled part": [4, 4]}
    assert found["rates"] == rates and found["shares"] == {"generation": 1.0}
    assert "--num_processes" not in commands[0]
    assert commands[1][commands[1].index("--num_processes") + 1] == "2"


def test_the_time_of_an_evaluation_is_divided(tmp_path):
    """On the embedded model: parts are shares of the whole, and the way back takes some of it."""
    shares = benchmark_corpus.where_time_goes(None, write_corpus(tmp_path), 4)
    assert set(shares) == {*benchmark_corpus.PARTS, "selection, results, writing"}
    assert sum(shares.values()) == pytest.approx(1)
    assert all(0 <= share <= 1 for share in shares.values())
    assert shares["decoder, back"] > 0 and shares["encoder, back"] > 0 and shares["generation"] > 0


def test_the_compiled_part_is_off_only_inside(monkeypatch):
    for before in (None, "plain"):
        if before is not None:
            monkeypatch.setenv("HF_LRP_COMPILED", before)
        else:
            monkeypatch.delenv("HF_LRP_COMPILED", raising=False)
        with benchmark_corpus.compiled_off():
            assert os.environ["HF_LRP_COMPILED"] == "off"
        assert os.environ.get("HF_LRP_COMPILED") == before
