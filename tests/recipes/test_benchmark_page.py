"""Tables of the benchmark, from made-up results whose ratios are done by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import benchmark_page
import pytest

BASELINE = "forward + T backward, to embeddings only"
VERSIONS = {"compiled part": "in use, avx2", "python": "3.12", "torch": "2.13", "transformers": "5.22"}
CACHE = {"level": "2", "type": "Unified", "size": "1024K", "shared_cpu_list": "0"}


def made_up(name: str, speed: float = 1.0) -> dict[str, Any]:
    """Results of a machine on which explaining takes ``speed`` times as long as on the first one."""

    def seconds(**tasks: list[float]) -> dict[str, Any]:
        return {"seconds": {task.replace("_", " "): values for task, values in tasks.items()}, "foreign": 0.0}

    ours = [value * speed for value in (0.20, 0.30, 0.40)]
    alone = {"seconds": {BASELINE: [1.0] * 3, "explain": ours}}
    single = {"seconds": {"loop of single calls": [2.0], "list": [1.0]}}
    three = {"seconds": {"three explain calls": [4.0], "explain_prefixes": [3.0]}}
    comparison = {**alone["seconds"], "explain, R(source) alone": [0.1] * 3, "inseq input_x_gradient": [3.0] * 3}
    risk = {"candidates": 50, "sentences": 59, "seconds": {"minimum_risk_step": 6.0, "naive": 24.0}}
    measured: dict[str, Any] = {
        "comparison: Transformer base": {"seconds": comparison},
        "growth: Transformer base": [
            {"length": length, "memory": 2**20 * length, "seconds": {BASELINE: [4.0], "explain": [length / 40]}}
            for length in (40, 160)
        ],
        "memory: Transformer base": [{"length": 200, "limit": None, "bytes": 900 * 2**20}],
        "many: Transformer base": {
            "targets given": single,
            "translations generated": single,
            "candidates": {"10": single},
            "prefixes": {"10": three, "20": three},
        },
        "analyze: Transformer base": {"rates": {"1 process": [2.0, 4.0]}, "shares": {"generation": 0.25}},
        "families": seconds(marian=[1.0], t5=[1.25]),
        "decoder only": alone,
        "speech": {"seconds": {"all": [5.0], "R(source) alone": [0.5]}},
        "before and after": {
            "tasks": {
                "analyze": {"sentences": 12, "seconds": {"before": [4.0, 6.0], "after": [2.0, 4.0]}},
                "score": {"sentences": 10, "seconds": {"before": [5.0], "after": [4.0]}},
            },
            "largest difference of shares": {"explain 20 23": 3e-7},
        },
        "training": {
            "likelihood": {
                "tokens": 900,
                "seconds": {"TranslationTrainer": 0.1},
                "speed against Seq2SeqTrainer": 1.0,
                "steps between looks": 500,
                "share of looks in training time": {"a look": 0.003},
            },
            "minimum risk": risk | {"speed against the naive version": 4.0, "shares of time": {"risk": 0.01}},
        },
    }
    sections = {
        section: {
            "result": found,
            "products": {"one thread": 50.0, "all threads": 99.0},
            "minutes": 2.0,
            "foreign": 0.1,
        }
        for section, found in measured.items()
    }
    machine = {"name": name, "processor": "P", "cores": 2, "memory": 2**34, "caches": [CACHE], "versions": VERSIONS}
    settings = {"models": ["Transformer base"], "threads": 2, "before": "aaa"}
    return {"started": "2026", "commit": "bbb", "machine": machine, "settings": settings, "sections": sections}


def table(name: str, *results: dict[str, Any]) -> str:
    return benchmark_page.Benchmark(results).table(name)


def test_a_sentence_is_told_with_medians_and_the_range_of_ratios() -> None:
    text = table("sentence", made_up("one"))
    line = "| the same down to the embeddings only, without gradients of weights | 1 s, 0.30 × (0.20 to 0.40) |"
    assert line in text and "| `explain` | 0.3 s, 1 |" in text
    assert "| inseq `input_x_gradient` | 3 s, 0.10 × (0.07 to 0.13) |" in text
    assert "| one forward pass |  |" in text  # not measured


def test_machines_stand_side_by_side() -> None:
    text = table("sentence", made_up("one"), made_up("other", 2.0))
    assert "| what: seconds, explain takes | one: Transformer base | other: Transformer base |" in text
    assert "| 1 s, 0.30 × (0.20 to 0.40) | 1 s, 0.60 × (0.40 to 0.80) |" in text
    text = table("machines", made_up("one"), made_up("other"))
    assert "| processor | P, 2 cores, 16 GiB | P, 2 cores, 16 GiB |" in text
    assert "| caches | L2 1024K (cores 0) |" in text and "| other processes, cores on average | 0.10 |" in text
    assert "| minutes | 20 | 20 |" in text


def test_goals_say_what_is_reached() -> None:
    text = table("goals", made_up("one"), made_up("other", 2.0))
    gradients = "against one forward and T backward passes"
    assert f"| `explain`, S = 20, T = 23, {gradients} | at most 0.3 × | 0.3 ×: yes | 0.6 ×: **no** |" in text
    assert f"the highest of each model, {gradients} | at most 0.35 × | 1 ×: **no** |" in text
    assert f"| R(source) alone, S = 20, T = 23, {gradients} | at most 0.17 × | 0.1 ×: yes |" in text
    assert "| at least 6 × | 10 ×: yes | 5 ×: **no** |" in text
    assert f"| decoder only, {gradients} | at most 0.5 × | 0.3 ×: yes | 0.6 ×: **no** |" in text
    assert "| at least 1.3 × | 1.75 ×: yes |" in text and "| at least 1.5 × | 1.25 ×: **no** |" in text
    assert "| at most 1024 MiB | 900 MiB: yes |" in text


def test_growth_memory_and_lists() -> None:
    text = table("growth", made_up("one"))
    assert "| 40 | 1 s, 0.25 ×, 40 MiB |" in text and "| 160 | 4 s, 1.00 ×, 160 MiB |" in text
    assert "to the power 1.00 (Transformer base)" in text
    assert "| not given | 900 MiB (S = T = 200) |" in table("memory", made_up("one"))
    text = table("many", made_up("one"))
    assert "| a list of 20, targets given, against a loop of single calls | 0.50 × |" in text
    assert "| 10 translations of one source as a list, S = T = 10, against a loop of single calls | 0.50 × |" in text
    assert "| `explain_prefixes`, S = T = 20, against three calls of `explain` | 0.75 × |" in text


def test_other_tables() -> None:
    one = made_up("one")
    assert "| t5 | 1.25 × |" in table("families", one)
    assert "| Whisper tiny, all | 5 s |" in table("other models", one)
    text = table("analyze", one)
    assert "| sentences per second, 1 process | 3.00 (2.00 to 4.00) |" in text and "| 25% |" in text
    text = table("before and after", one)
    assert "| task | one: `aaa` to `bbb` |" in text and "| largest difference of shares | 3.0e-07 |" in text
    assert "| `analyze` | 2.4 to 4 sentences per second, 1.75 × (1.50 to 2.00) |" in text
    text = table("training", one)
    assert "9,000 tokens per second, 1.00 × as fast" in text and "59 sentences in 6 s, 4.0 × as fast" in text


def test_sections_that_were_not_run_leave_gaps() -> None:
    empty = made_up("empty") | {"sections": {}}
    for name in benchmark_page.TABLES:
        assert table(name, empty).startswith(("There are no results.", "| "))
        both = table(name, empty, made_up("one")).splitlines()
        columns = {line.count(" | ") for line in both if line.startswith("| ")}
        assert len(both) > 2 and len(columns) == 1


def test_a_page_is_filled_and_the_rest_stays(tmp_path: Path) -> None:
    page, results = tmp_path / "page.md", tmp_path / "results.json"
    results.write_text(json.dumps(made_up("one")))
    names = list(benchmark_page.TABLES)
    page.write_text(
        "Before.\n" + "".join(f"<!-- table {name} -->\nold\n<!-- end -->\nAfter {name}.\n" for name in names)
    )
    arguments = ["--results", str(results), "--page", str(page)]
    benchmark_page.main(arguments)
    text = page.read_text()
    assert "old" not in text and text.startswith("Before.") and all(f"After {name}." in text for name in names)
    benchmark_page.main(arguments)
    assert page.read_text() == text


def test_the_page_of_this_project_has_every_table() -> None:
    text = benchmark_page.PAGE.read_text(encoding="utf-8")
    assert [text.count(f"<!-- table {name} -->") for name in benchmark_page.TABLES] == [1] * len(benchmark_page.TABLES)


@pytest.mark.skipif(not benchmark_page.kept_results(), reason="no results are kept")
def test_the_page_of_this_project_tells_what_its_results_tell() -> None:
    results = [json.loads(path.read_bytes()) for path in benchmark_page.kept_results()]
    text = benchmark_page.PAGE.read_text(encoding="utf-8")
    assert benchmark_page.Benchmark(results).fill(text) == text, "start recipes/benchmark/benchmark_page.py"
