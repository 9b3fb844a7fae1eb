"""The recipe that tells detached translations from real ones: its parts by hand, and a run on a tiny model."""

import importlib.util
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_checkpoint import save_checkpoint

RECIPE = Path(__file__).parents[2] / "recipes" / "score" / "detached_translations.py"
NOUNS = ["cat", "dog", "house", "street"]
PAIRS = [(f"the {a} {verb} the {b}", f"a {b} was {a}") for verb in ("sees", "eats") for a in NOUNS for b in NOUNS]


@pytest.fixture(scope="module")
def recipe() -> Any:
    spec = importlib.util.spec_from_file_location("detached_translations", RECIPE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_partners_are_others_of_about_the_same_length(recipe):
    translations = [[1] * 9, [1] * 2, [2] * 10, [3] * 3, [4] * 20]
    partners = recipe.partners_by_length(translations)
    assert sorted(partners) == [0, 1, 2, 3, 4]
    assert all(partner != number for number, partner in enumerate(partners))
    assert (partners[1], partners[3]) == (3, 1) and {partners[0], partners[2], partners[4]} == {0, 2, 4}


def test_kinds_of_translations(recipe):
    sentences = [recipe.Sentence([1], [10, 11, 12, 13], [7], 1), recipe.Sentence([2], [20, 21, 22], [8], 0)]
    assert recipe.translation_of(sentences, 0, "own") == ([10, 11, 12, 13], [False] * 4)
    assert recipe.translation_of(sentences, 0, "detached") == ([20, 21, 22], [True] * 3)
    assert recipe.translation_of(sentences, 0, "half") == ([10, 11, 21, 22], [False, False, True, True])
    assert recipe.translation_of(sentences, 0, "reference") == ([7], [False])


def test_auroc_agrees_with_counting_pairs(recipe):
    rng = np.random.default_rng(0)
    low, high = rng.integers(0, 6, size=30).astype(float), rng.integers(2, 9, size=40).astype(float)
    wins = sum((a < b) + (a == b) / 2 for a in low for b in high)
    assert recipe.auroc(low, high) == pytest.approx(wins / (30 * 40))
    assert recipe.auroc(np.array([1.0, 2.0]), np.array([3.0])) == 1
    points = recipe.roc(low, high)
    area = sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(points))
    assert area == pytest.approx(recipe.auroc(low, high))
    assert points[0].tolist() == [0, 0] and points[-1].tolist() == [1, 1]


def test_intervals_hold_the_estimate_and_narrow_with_more_sentences(recipe):
    rng = np.random.default_rng(0)
    pairs = [([rng.normal()], [rng.normal(1)]) for _ in range(400)]
    few, many = recipe.bootstrap_auroc(pairs[:40]), recipe.bootstrap_auroc(pairs)
    assert few.low < few.value < few.high and many.low < many.value < many.high
    assert many.high - many.low < (few.high - few.low) / 2
    assert recipe.bootstrap_auroc([([0.0], [1.0])] * 5) == (1, 1, 1)


def test_evaluation_finds_what_is_there(recipe):
    """Measurements in which the source's share falls where a translation is detached, and log-probability does not."""
    rng = np.random.default_rng(0)
    number, steps = 40, 10
    sentences = [recipe.Sentence([1], [2] * steps, [], (n + 1) % number) for n in range(number)]
    measured = {}
    for n in range(number):
        for kind in ("own", "detached", "half"):
            is_detached = np.array(recipe.translation_of(sentences, n, kind)[1])
            total = 0.8 - 0.3 * is_detached + rng.normal(0, 0.05, steps)
            measured[n, kind] = recipe.Measured(total, rng.normal(-1, 0.3, steps), is_detached)
    results, _ = recipe.evaluate(sentences, measured)
    found = results["comparisons"]
    assert set(found) == {"detached from own", "half from own", "detached tokens within a sentence"}
    assert found["detached from own"]["score"]["value"] == 1
    assert found["detached tokens within a sentence"]["score"]["value"] > 0.99
    assert 0.3 < found["detached tokens within a sentence"]["log_probability"]["value"] < 0.7
    assert results["tokens_below_threshold"]["detached"] > 0.99 and results["tokens_below_threshold"]["own"] < 0.1
    assert results["sentences"] == {"calibration": 20, "test": 20}


def test_a_run_is_written_and_goes_on(recipe, tmp_path, monkeypatch, capsys):
    model = str(save_checkpoint(tmp_path / "model"))
    (tmp_path / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    arguments = [model, "--data", str(tmp_path / "pairs.tsv"), "--output", str(tmp_path / "run"), "--number", "24"]
    arguments += ["--lengths", "4", "8"]
    explain, calls = recipe.explain, []

    def limited(*args, **options):
        calls.append(args)
        if len(calls) == 10:
            raise KeyboardInterrupt
        return explain(*args, **options)

    monkeypatch.setattr(recipe, "explain", limited)
    with pytest.raises(KeyboardInterrupt):
        recipe.main(arguments)
    recipe.main(arguments)
    assert len(calls) == 1 + 24 + 12 * 2  # the tiny tokenizer does not decode to text that it splits in the same way
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    estimate = results["comparisons"]["detached from own"]["score"]
    assert 0 <= estimate["low"] <= estimate["value"] <= estimate["high"] <= 1
    assert (tmp_path / "run" / "roc.png").stat().st_size > 10_000
    output = capsys.readouterr().out
    assert "references are left out" in output and "detached from own" in output
    with pytest.raises(SystemExit, match="other settings"):
        recipe.main([*arguments, "--seed", "1"])
