"""The paper's claims on runs that are made to agree or to disagree with them."""

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import example_run
import numpy as np
import pytest
from example_run import make_sentence, write_run

from hf_lrp.analysis.run import store
from hf_lrp.result.intervals import Estimate

LENGTHS = (9, 12)


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "recipes"))
    return importlib.import_module("claims")


def made(number: int, prefix: str, totals: np.ndarray, peak: np.ndarray, use: np.ndarray) -> store.Sentence:
    """A sentence with given R(source) [T], focus on one source token [T] (more is less entropy) and use [S]."""
    sentence = make_sentence(number, prefix, lengths=LENGTHS)
    positions, steps = LENGTHS
    noise = 1 + 0.01 * np.random.default_rng(number).random((steps, positions))
    focused = np.eye(positions)[np.arange(steps) % positions]
    shares = (1 - peak[:, None]) * use / use.sum() * noise + peak[:, None] * focused
    shares *= totals[:, None] / shares.sum(1, keepdims=True)
    before = np.tril(np.ones((steps, steps)), -1)
    target = (1 - totals)[:, None] * before / np.maximum(before.sum(1, keepdims=True), 1)
    return replace(sentence, source=shares.astype(np.float32), target=target.astype(np.float32))


def as_the_paper(number: int, prefix: str = "reference", **_: Any) -> store.Sentence:
    steps, positions = LENGTHS[1], LENGTHS[0]
    totals = np.linspace(0.95, 0.8, steps)
    totals[0], totals[-1] = 1.0, 0.6
    totals = {"reference": totals, "model": totals + 0.02, "random": totals - 0.2}[prefix].clip(0, 1)
    totals[0] = 1.0
    time = np.arange(steps) / (steps - 1)
    peak = 0.1 + np.abs(time - 0.62)
    peak[-1] = 0.1
    if prefix == "model":
        peak = peak + 0.1
    if prefix == "random":
        peak = np.full(steps, 0.1)
    use = np.linspace(1.2, 0.8, positions)
    use[-3:] = 2.0
    return made(number, prefix, totals, peak, use)


def reversed_in_time(number: int, prefix: str = "reference", **_: Any) -> store.Sentence:
    """R(source) that grows, with as much of it for random prefixes and the end of the source hardly used."""
    steps, positions = LENGTHS[1], LENGTHS[0]
    totals = np.linspace(0.5, 0.8, steps)
    totals[0], totals[-1] = 1.0, 0.95
    if prefix == "model":
        totals[1:] -= 0.1
    use = np.linspace(0.8, 1.2, positions)
    use[-3:] = 0.1
    peak = np.full(steps, 0.05) if prefix == "model" else np.linspace(0.1, 0.6, steps)
    return made(number, prefix, totals, peak, use)


def verdicts(claims: list[Any]) -> dict[str, str]:
    return {claim.name: claim.verdict for claim in claims}


def run_of(folder: Path, monkeypatch: pytest.MonkeyPatch, sentence: Any) -> store.Run:
    monkeypatch.setattr(example_run, "make_sentence", sentence)
    run = write_run(folder, number=8, lengths=LENGTHS)
    monkeypatch.undo()
    return run


def test_claims_hold_where_the_shares_are_as_in_the_paper(tmp_path: Path, recipe: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        run = run_of(tmp_path / "run", patch, as_the_paper)
    found = verdicts(recipe.check_model(run))
    assert found == dict.fromkeys(("C1", "C2", "C3", "C4", "C5", "C6", "C7"), "holds")


def test_claims_do_not_hold_where_the_shares_are_the_other_way_round(tmp_path: Path, recipe: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        run = run_of(tmp_path / "run", patch, reversed_in_time)
    found = verdicts(recipe.check_model(run))
    assert {found[name] for name in ("C1", "C2", "C3", "C4", "C6")} == {"does not hold"}
    assert found["C7"] != "holds"


def test_objectives_and_amounts_are_compared_with_the_first(tmp_path: Path, recipe: Any) -> None:
    def shifted(by: float, focus: float) -> Any:
        def sentence(number: int, prefix: str = "reference", **_: Any) -> store.Sentence:
            totals = np.full(LENGTHS[1], 0.7 + by)
            totals[0] = 1.0
            return made(number, prefix, totals, np.full(LENGTHS[1], 0.3 + focus), np.ones(LENGTHS[0]))

        return sentence

    changes = {"base": (0, 0), "source": (-0.002, -0.05), "target": (0.05, -0.05), "mrt": (0.1, 0.1)}
    with pytest.MonkeyPatch.context() as patch:
        runs = {name: run_of(tmp_path / name, patch, shifted(*change)) for name, change in changes.items()}
    assert verdicts(recipe.check_objectives(*runs.values())) == dict.fromkeys(("C8", "C9", "C10"), "holds")
    less = recipe.check_objectives(runs["base"], runs["source"], runs["mrt"], runs["target"])
    assert verdicts(less)["C10"] == "does not hold"  # another model uses the source more than that of minimum risk
    assert verdicts(recipe.check_growth([runs["base"], runs["target"], runs["mrt"]])) == {"C11": "holds"}
    assert verdicts(recipe.check_growth([runs["mrt"], runs["base"]])) == {"C11": "does not hold"}


def test_training_that_falls_and_rises(tmp_path: Path, recipe: Any) -> None:
    levels = [(0.9, 0.1), (0.6, 0.5), (0.7, 0.4), (0.74, 0.36), (0.745, 0.355), (0.75, 0.35)]

    def at(level: float, focus: float) -> Any:
        def sentence(number: int, prefix: str = "reference", **_: Any) -> store.Sentence:
            totals = level + (1 - level) * np.linspace(0.5, 0.0, LENGTHS[1])
            totals[0] = 1.0
            found = made(number, prefix, totals, np.full(LENGTHS[1], focus), np.ones(LENGTHS[0]))
            return replace(found, correct=np.arange(LENGTHS[1]) < 4)

        return sentence

    with pytest.MonkeyPatch.context() as patch:
        runs = [run_of(tmp_path / f"step-{n}", patch, at(*level)) for n, level in enumerate(levels)]
    found = verdicts(recipe.check_training(runs))
    assert found["C12"] == found["C13"] == found["C15"] == "holds"
    assert found["C14"] == "does not hold"  # late positions change most here
    assert verdicts(recipe.check_training(runs[1:]))["C13"] == "does not hold"  # it only rises


@pytest.mark.parametrize(
    ("estimate", "expected", "verdict"),
    [
        ((0.2, 0.1, 0.3), "positive", "holds"),
        ((0.2, -0.1, 0.3), "positive", "not decided"),
        ((-0.2, -0.3, -0.1), "positive", "does not hold"),
        ((-0.2, -0.3, -0.1), "negative", "holds"),
        ((0.0, 0.0, 0.0), "negative", "does not hold"),
        ((0.001, -0.004, 0.006), "about zero", "holds"),
        ((0.05, 0.04, 0.06), "about zero", "does not hold"),
        ((0.01, 0.002, 0.02), "about zero", "not decided"),
    ],
)
def test_verdicts(recipe: Any, estimate: tuple[float, float, float], expected: Any, verdict: str) -> None:
    assert recipe.Statement("s", Estimate(*estimate), expected).verdict == verdict


def test_a_table_has_every_statement(recipe: Any) -> None:
    statement = recipe.Statement("a - b", Estimate(0.25, 0.125, 0.5), "positive")
    claim = recipe.Claim("C0", "a is more than b", (statement, statement))
    assert recipe.as_markdown([claim]).count("+0.2500 [+0.1250, +0.5000]") == 2
    assert [row["low"] for row in recipe.as_rows([claim])] == [0.125, 0.125]
