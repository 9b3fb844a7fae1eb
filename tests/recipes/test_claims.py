"""The paper's claims on folders of runs that are made to agree or to disagree with them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import claims
import example_run
import numpy as np
import pytest
from claims.intervals import Interval
from claims.objectives import BASELINE, MINIMUM_RISK, SOURCE_DROPOUT, TARGET_DROPOUT
from claims.verdicts import Wanted, at_least, at_most, within
from example_run import make_sentence, write_run

from hf_lrp.corpus.manifest import RunError
from hf_lrp.corpus.run import Run
from hf_lrp.corpus.shards import Row

TOKENS, STEPS = 9, 12
SENTENCES = 24

MakeSentence = Callable[..., Row]


def made(number: int, prefix: str, totals: np.ndarray, peak: np.ndarray, use: np.ndarray, seed: int = 0) -> Row:
    """A sentence with given R(source) [T], focus on one source token [T] (more is less entropy) and use [S]."""
    sentence = make_sentence(number, prefix, lengths=(TOKENS, STEPS))
    noise = 1 + 0.01 * np.random.default_rng([number, seed]).random((STEPS, TOKENS))
    focused = np.eye(TOKENS)[np.arange(STEPS) % TOKENS]
    shares = (1 - peak[:, None]) * use / use.sum() * noise + peak[:, None] * focused
    shares *= totals[:, None] / shares.sum(1, keepdims=True)
    before = np.tril(np.ones((STEPS, STEPS)), -1)
    target = (1 - totals)[:, None] * before / np.maximum(before.sum(1, keepdims=True), 1)
    return replace(sentence, source=shares.astype(np.float32), target=target.astype(np.float32))


def as_the_paper(number: int, prefix: str = "reference", **_: Any) -> Row:
    totals = np.linspace(0.95, 0.8, STEPS)
    totals[-1] = 0.6
    totals += {"reference": 0.0, "model": 0.02, "random": -0.2}[prefix]
    totals[0] = 1.0
    use = np.linspace(1.2, 0.8, TOKENS)
    use[-3:] = 2.0
    place = np.arange(STEPS) / (STEPS - 1)
    peak = 0.1 + 0.8 * np.abs(place - 0.62)
    peak[-2:] = 0.1
    if prefix == "model":
        peak = peak + 0.1
    if prefix == "random":
        peak, use = np.zeros(STEPS), np.ones(TOKENS)
    return made(number, prefix, totals, peak, use)


def reversed_in_time(number: int, prefix: str = "reference", **_: Any) -> Row:
    """R(source) that grows, with as much of it for random prefixes and the end of the source hardly used."""
    totals = np.linspace(0.5, 0.8, STEPS)
    totals[0], totals[-1] = 1.0, 0.95
    if prefix == "model":
        totals[1:] -= 0.1
    use = np.linspace(0.8, 1.2, TOKENS)
    use[-3:] = 0.1
    peak = np.full(STEPS, 0.05) if prefix == "model" else np.linspace(0.1, 0.6, STEPS)
    return made(number, prefix, totals, peak, use)


def at_level(level: float, focus: float, seed: int = 0, early: float = 0.0) -> MakeSentence:
    """Sentences whose R(source) and focus are the same at all steps, except for what is added to early ones."""

    def sentence(number: int, prefix: str = "reference", **_: Any) -> Row:
        totals = level + early * np.linspace(1, 0, STEPS)
        totals[0] = 1.0
        found = made(number, prefix, totals, np.full(STEPS, focus), np.ones(TOKENS), seed)
        return replace(found, predicted_ids=np.where(np.arange(STEPS) < 4, found.target_ids, found.target_ids + 1))

    return sentence


def run_of(folder: Path, sentence: MakeSentence, number: int = SENTENCES, **manifest: Any) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example_run, "make_sentence", sentence)
        return write_run(folder, number=number, lengths=(TOKENS, STEPS), **manifest)


def verdicts(found: list[claims.Claim]) -> dict[str, str]:
    return {claim.name: claim.verdict for claim in found}


# ---- one model


def test_claims_hold_where_the_shares_are_as_in_the_paper(tmp_path: Path) -> None:
    found = claims.check_model({1: run_of(tmp_path / "run", as_the_paper)})
    assert verdicts(found) == dict.fromkeys(("C1", "C2", "C3", "C4", "C5", "C6", "C7"), "holds")


def test_claims_do_not_hold_where_the_shares_are_the_other_way_round(tmp_path: Path) -> None:
    found = verdicts(claims.check_model({1: run_of(tmp_path / "run", reversed_in_time)}))
    assert {found[name] for name in ("C1", "C2", "C3", "C4", "C6", "C7")} == {"does not hold"}


def test_few_sentences_decide_nothing(tmp_path: Path) -> None:
    found = claims.check_model({1: run_of(tmp_path / "run", as_the_paper, number=8)})
    assert set(verdicts(found).values()) == {"not decided"}
    assert found[0].reason == "8 sentences can be compared; 20 are needed"


def test_mixed_lengths_can_be_checked(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", number=30, lengths=None)
    found = claims.check_model({1: run})
    assert [claim.name for claim in found] == [f"C{number}" for number in range(1, 8)]
    assert verdicts(found)["C1"] == "holds"  # the shares are random, and there are more and more of prefixes
    assert verdicts(found)["C2"] == "does not hold"


def test_seeds_that_disagree_decide_nothing(tmp_path: Path) -> None:
    falling, rising = (run_of(tmp_path / name, at_level(0.5, 0.3, early=e)) for name, e in (("a", 0.3), ("b", -0.2)))
    for one in (falling, rising):
        assert verdicts(claims.check_model({1: one}))["C1"] == ("holds" if one is falling else "does not hold")
    both = claims.check_model({1: falling, 2: rising})[0]
    assert both.verdict == "not decided" and "reaches across 0.01" in both.reason


# ---- several models


def kinds(folder: Path, seeds: tuple[int, ...], **levels: tuple[float, float]) -> dict[str, dict[int, Run]]:
    """Runs of the four kinds: R(source) and focus by the short names of kinds, a little different for each seed."""
    names = {"base": BASELINE, "source": SOURCE_DROPOUT, "target": TARGET_DROPOUT, "risk": MINIMUM_RISK}
    return {
        names[name]: {
            seed: run_of(folder / f"{name}-{seed}", at_level(level + 0.001 * (seed % 2), focus, seed))
            for seed in seeds
        }
        for name, (level, focus) in levels.items()
    }


@pytest.fixture(scope="module")
def objectives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, Run]]:
    """As the paper says of model prefixes: two seeds of each kind, three of target word dropout and the baseline."""
    folder = tmp_path_factory.mktemp("objectives")
    runs = kinds(folder, (1, 2, 3), base=(0.7, 0.3), target=(0.75, 0.25))
    return runs | kinds(folder, (1, 2), source=(0.7, 0.25), risk=(0.8, 0.4))


def test_objectives_are_compared_with_the_baseline(objectives: dict, tmp_path: Path) -> None:
    found = verdicts(claims.check_objectives(objectives))
    assert found == {"C8": "holds", "C9": "holds", "C10": "does not hold"}  # source dropout lowers nothing here
    lower = objectives | kinds(tmp_path, (1, 2), source=(0.65, 0.25))
    assert verdicts(claims.check_objectives(lower)) == {"C8": "does not hold", "C9": "holds", "C10": "holds"}


def test_one_seed_does_not_decide_between_models(objectives: dict) -> None:
    runs = {kind: {1: seeds[1]} for kind, seeds in objectives.items()}
    found = [*claims.check_objectives(runs), *claims.check_growth({10: runs[BASELINE], 100: runs[MINIMUM_RISK]})]
    assert verdicts(found) == dict.fromkeys(("C8", "C9", "C10", "C11"), "not decided")
    assert all("one seed" in claim.reason for claim in found)


def test_models_that_have_not_converged_are_not_compared(objectives: dict) -> None:
    found = claims.check_objectives(objectives, unconverged=[TARGET_DROPOUT])
    assert verdicts(found)["C8"] == verdicts(found)["C9"] == "not decided"
    assert "not converged: target word dropout" in found[0].reason
    amounts = {10: objectives[BASELINE], 1000: objectives[MINIMUM_RISK]}
    assert claims.check_growth(amounts, unconverged=[10])[0].reason == "not converged: 10 pairs"


def test_seeds_that_only_one_kind_has_are_left_out(objectives: dict) -> None:
    first, *_ = claims.check_objectives(objectives)
    assert {statement.text: statement.interval.seeds for statement in first.statements} == {
        "R(source), minimum risk - baseline": 2,
        "R(source), target word dropout - baseline": 3,
        "R(source), source word dropout - baseline": 2,
    }


def test_more_data(objectives: dict, tmp_path: Path) -> None:
    between = kinds(tmp_path, (1, 2), target=(0.75, 0.35))
    amounts = {100: objectives[BASELINE], 1_000: between[TARGET_DROPOUT], 10_000: objectives[MINIMUM_RISK]}
    (found,) = claims.check_growth(amounts)
    assert found.verdict == "holds"
    assert found.statements[0].interval.value == pytest.approx(0.05, abs=1e-4)  # per tenfold data
    (turned,) = claims.check_growth(dict(zip((10_000, 1_000, 100), amounts.values(), strict=True)))
    assert turned.verdict == "does not hold"


def test_runs_of_other_sentences_or_tokens_are_refused(tmp_path: Path) -> None:
    runs = {1: run_of(tmp_path / "a", as_the_paper)}
    runs[2] = run_of(tmp_path / "b", as_the_paper, tokenizer={"class": "Other", "sha256": "1" * 64})
    with pytest.raises(RunError, match="same tokenizer|same tokens"):
        claims.check_model(runs)


# ---- training

UPDATES = (100, 200, 400, 800, 1_200, 1_600, 2_400, 3_200, 4_800, 6_400, 8_000, 10_000, 12_000, 14_000, 16_000)
VALLEY = (0.8, 0.7, 0.62, 0.6, 0.63, 0.67, 0.73, 0.745, 0.747, 0.748, 0.748, 0.749, 0.749, 0.75, 0.75)


def checkpoints(folder: Path, levels: tuple[float, ...]) -> dict[int, Run]:
    """Checkpoints whose entropies follow R(source), and whose early positions change more."""
    return {
        step: run_of(
            folder / str(step), at_level(level, 0.9 - level, early=0.6 * (level - 0.6)), prefixes=["reference"]
        )
        for step, level in zip(UPDATES, levels, strict=True)
    }


def test_training_that_falls_and_rises(tmp_path: Path) -> None:
    found = {claim.name: claim for claim in claims.check_training({1: checkpoints(tmp_path, VALLEY)})}
    of_stages = {statement.text.split(",")[0]: statement.verdict for statement in found["C13"].statements[:3]}
    assert of_stages == {
        "R(source)": "holds",
        "source entropy": "holds",
        "target entropy": "does not hold",  # the prefix is used evenly throughout
    }
    assert found["C13"].statements[3].verdict == "holds"  # the slow third stage
    assert found["C12"].verdict == found["C14"].verdict == found["C15"].verdict == "holds"


def test_training_that_only_rises_has_no_first_stage(tmp_path: Path) -> None:
    rising = tuple(np.linspace(0.6, 0.8, len(UPDATES)))
    found = {claim.name: claim for claim in claims.check_training({1: checkpoints(tmp_path, rising)})}
    assert found["C13"].verdict == "does not hold"
    assert found["C15"].verdict == "not decided" and "no first stage" in found["C15"].reason


def test_trainings_need_the_same_checkpoints(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", as_the_paper)
    with pytest.raises(RunError, match="different numbers of updates"):
        claims.check_training({1: {100: run, 200: run}, 2: {100: run, 300: run}})


@pytest.mark.parametrize(("end", "converged"), [(2.0, True), (1.99, True), (1.9, False), (2.1, True)])
def test_convergence(end: float, converged: bool) -> None:
    updates = np.arange(1, 21) * 100
    losses = np.where(updates <= 1600, 4 - updates / 800, 2 + (end - 2) * (updates - 1600) / 400)
    assert claims.has_converged(list(updates), list(losses)) == converged


def test_convergence_needs_three_losses() -> None:
    assert claims.has_converged([100, 500, 1000], [3.0, 3.0, 3.0])
    with pytest.raises(ValueError, match="evaluate more often"):
        claims.has_converged([500, 1000], [3.0, 3.0])


@pytest.mark.parametrize(
    ("risks", "lowered"),
    [([-0.3, -0.31, -0.33], True), ([-0.3, -0.303], False), ([-0.3, -0.2], False), ([-0.3], False)],
)
def test_minimum_risk_must_have_lowered_the_risk(risks: list[float], lowered: bool) -> None:
    assert claims.has_lowered_risk(risks) == lowered


# ---- verdicts and tables


@pytest.mark.parametrize(
    ("value", "low", "high", "wanted", "verdict"),
    [
        (0.2, 0.15, 0.25, at_least(0.1), "holds"),
        (0.2, 0.05, 0.35, at_least(0.1), "not decided"),
        (0.05, 0.02, 0.08, at_least(0.1), "does not hold"),  # more than nothing, less than the minimum
        (-0.2, -0.25, -0.15, at_least(0.1), "does not hold"),
        (-0.2, -0.25, -0.15, at_most(-0.1), "holds"),
        (-0.05, -0.2, 0.1, at_most(-0.1), "not decided"),
        (0.001, -0.004, 0.006, within(0.01), "holds"),
        (0.05, 0.04, 0.06, within(0.01), "does not hold"),
        (0.01, 0.002, 0.02, within(0.01), "not decided"),
        (np.nan, np.nan, np.nan, within(0.01), "not decided"),
    ],
)
def test_verdicts(value: float, low: float, high: float, wanted: Wanted, verdict: str) -> None:
    statement = claims.Statement("s", Interval(value, low, high, 100, 3), wanted)
    assert statement.verdict == verdict
    assert bool(statement.reason) == (verdict != "holds")


def test_doubts_and_objections() -> None:
    high, low = Interval(0.2, 0.15, 0.25, 100, 3), Interval(0.0, -0.05, 0.05, 100, 3)
    verdict = [
        claims.Statement("s", interval, at_least(0.1), **reasons).verdict
        for interval in (high, low)
        for reasons in ({"doubt": "x"}, {"objection": "x"})
    ]
    assert verdict == ["not decided", "not decided", "not decided", "does not hold"]


def test_tables_have_every_statement() -> None:
    statement = claims.Statement("a - b", Interval(0.25, 0.125, 0.5, 40, 2), at_least(0.1))
    undefined = claims.Statement("c", Interval(np.nan, np.nan, np.nan, 40, 1), within(0.1), "no c")
    claim = claims.Claim("C0", "a is more than b", (statement, undefined))
    table = claims.as_markdown([claim])
    assert "+0.2500 [+0.1250, +0.5000] (40 sentences, 2 seeds) | at least 0.1 | holds" in table
    assert "within ± 0.1 | not decided | no c" in table and "**not decided**" in table
    rows = claims.as_rows([claim])
    assert [(row["low"], row["seeds"], row["reason"]) for row in rows] == [(0.125, 2, ""), (None, 1, "no c")]
