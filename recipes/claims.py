"""The findings of Voita, Sennrich and Titov (2021) as claims that are checked on runs, each with its numbers.

A claim is one or more statements. A statement is a mean over sentences with its 95 % bootstrap interval, and what the
paper says of it: it is positive, negative, or about zero. It holds if the whole interval agrees, does not hold if the
whole interval disagrees, and is not decided otherwise. "About zero" means within `SMALL`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from hf_lrp.analysis.measures.metrics import DIVERGENCE, Table, influence_divergence, paired_difference, read_table
from hf_lrp.analysis.run.store import Run
from hf_lrp.result.intervals import Estimate, bootstrap_mean

Expected = Literal["positive", "negative", "about zero"]
Verdict = Literal["holds", "does not hold", "not decided"]
SMALL = 0.01


@dataclass(frozen=True)
class Statement:
    """One number and what the paper says of it."""

    text: str
    estimate: Estimate
    expected: Expected

    @property
    def verdict(self) -> Verdict:
        """Whether the interval agrees with the paper."""
        low, high = self.estimate.low, self.estimate.high
        if self.expected == "about zero":
            return _verdict(low > -SMALL and high < SMALL, low > SMALL or high < -SMALL)
        return _verdict(low > 0, high <= 0) if self.expected == "positive" else _verdict(high < 0, low >= 0)


@dataclass(frozen=True)
class Claim:
    """A finding of the paper, with the statements that it was checked by."""

    name: str
    text: str
    statements: tuple[Statement, ...]

    @property
    def verdict(self) -> Verdict:
        """Holds if all statements do, does not hold if one does not."""
        verdicts = [statement.verdict for statement in self.statements]
        return _verdict(all(v == "holds" for v in verdicts), "does not hold" in verdicts)


def _verdict(agrees: bool, disagrees: bool) -> Verdict:
    return "holds" if agrees else "does not hold" if disagrees else "not decided"


# ---- one model


def check_model(run: Run) -> list[Claim]:
    """C1 to C7, on a run with equal lengths and all three prefix types."""
    tables = {prefix: read_table(run, prefix) for prefix in ("reference", "model", "random")}
    reference, source = tables["reference"].values, tables["reference"].values["source_total"]
    length = source.shape[1]
    inner = slice(1, length - 1)  # without the first step and the end of the sentence
    return [
        Claim(
            "C1", "R(source) falls as generation goes on", (_early_late(source[:, inner], "R(source)", "positive"),)
        ),
        Claim("C2", "a large drop of R(source) at the last step", (_last_step(source[:, 1:]),)),
        Claim("C3", "the end of the source is used most, then its beginning", _use(tables["reference"])),
        Claim("C4", "source entropy rises until about 2/3 of the translation, then falls", _rise_and_fall(reference)),
        Claim(
            "C5",
            "target entropy grows with the prefix",
            (_early_late(reference["target_entropy"][:, 2:], "target entropy", "negative"),),
        ),
        Claim(
            "C6",
            "model prefixes: more source, lower source entropy than reference prefixes",
            _differences(tables["model"], tables["reference"], "model - reference", "positive", "negative"),
        ),
        Claim("C7", "random prefixes: less source at every position, source entropy about constant", _random(tables)),
    ]


def _early_late(values: np.ndarray, name: str, expected: Expected) -> Statement:
    """The mean of the first third of the positions minus that of the last third."""
    third = max(1, values.shape[1] // 3)
    difference = np.nanmean(values[:, :third], axis=1) - np.nanmean(values[:, -third:], axis=1)
    return Statement(f"{name}, first third - last third of the steps", bootstrap_mean(difference), expected)


def _last_step(source: np.ndarray) -> Statement:
    steps = np.diff(source, axis=1)
    excess = steps[:, -1] - steps[:, :-1].mean(axis=1)
    return Statement("change of R(source) at the last step - mean change before", bootstrap_mean(excess), "negative")


def _use(table: Table) -> tuple[Statement, ...]:
    use = table.source_position
    rest = use[:, :-3]
    last = bootstrap_mean(use[:, -3:].mean(axis=1) - rest.mean(axis=1))
    half = rest.shape[1] // 2
    early = bootstrap_mean(rest[:, :half].mean(axis=1) - rest[:, -half:].mean(axis=1))
    return (
        Statement("use of the last three source tokens - of the others", last, "positive"),
        Statement("of the others: first half - second half", early, "positive"),
    )


def _rise_and_fall(values: dict[str, np.ndarray]) -> tuple[Statement, ...]:
    entropy = values["source_entropy"]
    length = entropy.shape[1]
    start, peak, fall = 1, round(2 * length / 3) - 1, max(length - 3, 0)  # the last two: punctuation, end
    return (
        Statement("at 2/3 - at the second step", bootstrap_mean(entropy[:, peak] - entropy[:, start]), "positive"),
        Statement("at 2/3 - at the last word", bootstrap_mean(entropy[:, peak] - entropy[:, fall]), "positive"),
        Statement(
            "at the end of the sentence - at the last word",
            bootstrap_mean(entropy[:, -1] - entropy[:, fall]),
            "positive",
        ),
    )


def _random(tables: dict[str, Table]) -> tuple[Statement, ...]:
    by_position, _ = paired_difference(tables["random"], tables["reference"], "source_total")
    weakest = int(np.nanargmax(by_position.high))  # the position that comes closest to no drop
    entropy = {prefix: table.values["source_entropy"][:, 1:] for prefix, table in tables.items()}
    spread = np.nanstd(entropy["random"], axis=1) - np.nanstd(entropy["reference"], axis=1)
    weakest_drop = Estimate(by_position.value[weakest], by_position.low[weakest], by_position.high[weakest])
    _, higher = paired_difference(tables["random"], tables["reference"], "source_entropy")
    return (
        Statement(f"R(source), random - reference, where it is least (step {weakest + 1})", weakest_drop, "negative"),
        Statement("source entropy, random - reference", higher, "positive"),
        Statement("variation of source entropy over steps, random - reference", bootstrap_mean(spread), "negative"),
    )


def _differences(
    table: Table, other: Table, name: str, contribution: Expected | None, entropy: Expected | None
) -> tuple[Statement, ...]:
    """Statements on the paired differences of R(source) and of source entropy."""
    wanted = {"source_total": ("R(source)", contribution), "source_entropy": ("source entropy", entropy)}
    return tuple(
        Statement(f"{words}, {name}", paired_difference(table, other, quantity)[1], expected)
        for quantity, (words, expected) in wanted.items()
        if expected is not None
    )


# ---- training objectives


def check_objectives(base: Run, source_dropout: Run, target_dropout: Run, minimum_risk: Run) -> list[Claim]:
    """C8 to C10, on runs of the same sentences with model and random prefixes."""
    runs = {
        "baseline": base,
        "source dropout": source_dropout,
        "target dropout": target_dropout,
        "MRT": minimum_risk,
    }
    model, random = (_compare(runs, prefix) for prefix in ("model", "random"))
    return [
        Claim(
            "C8",
            "model prefixes: MRT and target-side word dropout raise R(source), source-side does not change it",
            (
                *model("MRT", "positive", None),
                *model("target dropout", "positive", None),
                *model("source dropout", "about zero", None),
            ),
        ),
        Claim(
            "C9",
            "model prefixes: only MRT lowers source entropy, word dropout raises it",
            (
                *model("MRT", None, "negative"),
                *model("target dropout", None, "positive"),
                *model("source dropout", None, "positive"),
            ),
        ),
        Claim(
            "C10",
            "random prefixes: MRT uses the source most, in the most focused way; target-side word dropout raises "
            "R(source), source-side lowers it",
            (
                *random("MRT", "positive", "negative"),
                *random("MRT", "positive", "negative", other="target dropout"),
                *random("MRT", "positive", "negative", other="source dropout"),
                *random("target dropout", "positive", None),
                *random("source dropout", "negative", None),
            ),
        ),
    ]


def _compare(runs: dict[str, Run], prefix: str) -> Callable[..., tuple[Statement, ...]]:
    """A function that compares one of the runs with another."""
    tables = {name: read_table(run, prefix) for name, run in runs.items()}

    def compare(
        name: str, contribution: Expected | None, entropy: Expected | None, other: str = "baseline"
    ) -> tuple[Statement, ...]:
        return _differences(tables[name], tables[other], f"{name} - {other}", contribution, entropy)

    return compare


# ---- amount of data


def check_growth(runs: Sequence[Run]) -> list[Claim]:
    """C11, on runs of the same sentences from the least to the most data."""
    statements = []
    for prefix in ("reference", "model"):
        least, most = (read_table(run, prefix) for run in (runs[0], runs[-1]))
        name = f"{runs[-1].name} - {runs[0].name} ({prefix} prefixes)"
        statements += _differences(most, least, name, "positive", "negative")
    return [Claim("C11", "more data: more source, lower source entropy", tuple(statements))]


# ---- stages of training


def check_training(runs: Sequence[Run], prefix: str = "reference") -> list[Claim]:
    """C12 to C15, on the checkpoints of a training, from the first to the last, all on the same sentences."""
    tables = [read_table(run, prefix) for run in runs]
    lowest = int(np.argmin([np.nanmean(table.means["source_total"]) for table in tables]))
    changes = [
        np.abs(later.values["source_total"] - earlier.values["source_total"])[:, 1:]
        for earlier, later in pairwise(tables)
    ]
    accuracy = tables[lowest].values["accuracy"]
    return [
        Claim("C12", "contributions converge early in training", (_convergence(runs, prefix),)),
        Claim(
            "C13",
            "R(source) and entropies fall, then rise",
            (*_fall_and_rise(tables, lowest, "source_total"), *_fall_and_rise(tables, lowest, "source_entropy")),
        ),
        Claim(
            "C14",
            "early target positions change most during training",
            (_early_late(np.sum(changes, axis=0), "change of R(source) between checkpoints", "positive"),),
        ),
        Claim(
            "C15",
            "at the end of the first stage, early positions have the highest accuracy",
            (_early_late(accuracy, f"accuracy at {runs[lowest].name}", "positive"),),
        ),
    ]


def _convergence(runs: Sequence[Run], prefix: str) -> Statement:
    """By a third of the checkpoints, less than a fifth of the divergence from the last one is left."""
    early = runs[len(runs) // 3]
    first, then = (influence_divergence(run, runs[-1], prefix).means[DIVERGENCE] for run in (runs[0], early))
    text = f"a fifth of the divergence at {runs[0].name} - the divergence at {early.name}"
    return Statement(text, bootstrap_mean(first / 5 - then), "positive")


def _fall_and_rise(tables: Sequence[Table], lowest: int, quantity: str) -> tuple[Statement, ...]:
    """The first and the last checkpoint are above the one where R(source) is lowest."""
    name = {"source_total": "R(source)", "source_entropy": "source entropy"}[quantity]
    middle = tables[lowest]
    return tuple(
        Statement(f"{name}, {table.name} - {middle.name}", paired_difference(table, middle, quantity)[1], "positive")
        for table in (tables[0], tables[-1])
    )


# ---- results


def as_rows(claims: Iterable[Claim]) -> list[dict[str, object]]:
    """Claims as plain values, one row per statement."""
    return [
        {
            "claim": claim.name,
            "text": claim.text,
            "verdict": claim.verdict,
            "statement": statement.text,
            "value": float(statement.estimate.value),
            "low": float(statement.estimate.low),
            "high": float(statement.estimate.high),
            "expected": statement.expected,
            "statement verdict": statement.verdict,
        }
        for claim in claims
        for statement in claim.statements
    ]


def as_markdown(claims: Iterable[Claim]) -> str:
    """A table with one row per statement."""
    lines = ["| claim | | statement | measured | expected | |", "| --- | --- | --- | --- | --- | --- |"]
    for claim in claims:
        for number, statement in enumerate(claim.statements):
            first = f"{claim.name} {claim.text} | **{claim.verdict}**" if number == 0 else " | "
            value, low, high = statement.estimate
            measured = f"{value:+.4f} [{low:+.4f}, {high:+.4f}]"
            lines.append(f"| {first} | {statement.text} | {measured} | {statement.expected} | {statement.verdict} |")
    return "\n".join(lines) + "\n"
