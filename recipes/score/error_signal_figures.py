"""The figures of error_signals.py: AUROC with intervals, what was chosen, and what flags find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from error_signal_cases import Case
from rich.console import Console
from rich.table import Table

DRAWS = 1000
USUAL_LENGTH = (0.7, 1.3)  # of the reference's length
RARITIES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)

Row = dict[str, Any]
Group = tuple[str, np.ndarray, np.ndarray]  # cluster; values; whether each is of the kind that should be high


def auroc(values: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> float:
    """How often a positive is higher than a negative, ties half; nan without both."""
    order = np.argsort(values, kind="stable")
    values, weights, positive = values[order], weights[order], positive[order]
    up, down = weights * positive, weights * ~positive
    _, starts = np.unique(values, return_index=True)
    ups, downs = (np.add.reduceat(side, starts) for side in (up, down))
    below = np.cumsum(downs) - downs
    total = up.sum() * down.sum()
    return float((ups * (below + downs / 2)).sum() / total) if total else float("nan")


def interval(groups: Sequence[Group], seed: int = 0) -> dict[str, Any]:
    """AUROC over all values, its 95 % interval from draws of clusters, and the numbers of both kinds."""
    names = sorted({name for name, *_ in groups})
    number = {name: n for n, name in enumerate(names)}
    values = np.concatenate([v for _, v, _ in groups] or [np.zeros(0)])
    positive = np.concatenate([p for *_, p in groups] or [np.zeros(0, bool)]).astype(bool)
    if not positive.any() or positive.all():
        return {"auroc": None, "positive": int(positive.sum()), "negative": int((~positive).sum())}
    cluster = np.concatenate([np.full(len(v), number[name]) for name, v, _ in groups])
    rng = np.random.default_rng(seed)
    draws = [np.bincount(rng.integers(len(names), size=len(names)), minlength=len(names)) for _ in range(DRAWS)]
    drawn = [auroc(values, positive, draw[cluster].astype(float)) for draw in draws]
    low, high = np.nanquantile(drawn, (0.025, 0.975))
    return {
        "auroc": round(auroc(values, positive, np.ones(len(values))), 4),
        "interval": [round(float(low), 4), round(float(high), 4)],
        "positive": int(positive.sum()),
        "negative": int((~positive).sum()),
        "clusters": len(names),
    }


def evaluate(cases: Sequence[Case], rows: Sequence[Row]) -> dict[str, Any]:
    """All figures; the reading of coverage is chosen on the chosen half."""
    kind = "omission" if any(case.kind == "omission" for case in cases) else "made omission"
    tried = {
        name: interval(_tokens(cases, rows, kind, True, lambda row, name=name: -_source(row, name)))
        for name in rows[0]["coverage"]
    }
    reading = max(tried, key=lambda name: tried[name]["auroc"] or 0.0)
    return {
        "reading": {"chosen on": kind, "tried": tried, "chosen": reading},
        "left out, by token": _left_out(cases, rows, reading),
        "without support, by token": _without_support(cases, rows),
        "let go of the source": _forced(cases, rows, reading),
        "sentences of MQM": _sentences(cases, rows, reading),
        "flags": _flags(cases, rows, reading),
    }


def _source(row: Row, reading: str) -> np.ndarray:
    return np.array(row["coverage"][reading])


def _tokens(
    cases: Sequence[Case], rows: Sequence[Row], kind: str, chosen: bool, signal: Callable[[Row], Any]
) -> list[Group]:
    """Tokens with text of the cases of a kind, and which are marked; a signal that is None leaves a case out."""
    groups = []
    for case, row in zip(cases, rows, strict=True):
        if case.kind != kind or case.chosen != chosen:
            continue
        values = signal(row)
        if values is None:
            continue
        side = row["sides"]["source" if "omission" in kind else "target"]
        spoken = np.array(side["spoken"])
        groups.append((case.cluster, np.asarray(values)[spoken], np.array(side["marked"])[spoken]))
    return groups


def _left_out(cases: Sequence[Case], rows: Sequence[Row], reading: str) -> Row:
    def both(row: Row) -> Any:
        return None if "erasure" not in row else _z(-_source(row, reading)) + _z(-np.array(row["erasure"]))

    signals: dict[str, Callable[[Row], Any]] = {
        "coverage": lambda row: -_source(row, reading),
        "mean weight": lambda row: -np.array(row["mean_weight"]),
        "coverage, where erasure is known": lambda row: -_source(row, reading) if "erasure" in row else None,
        "erasure": lambda row: -np.array(row["erasure"]) if "erasure" in row else None,
        "both": both,
    }
    return {
        kind: {name: interval(_tokens(cases, rows, kind, False, signal)) for name, signal in signals.items()}
        for kind in ("omission", "made omission")
    }


def _z(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / (values.std() or 1.0)


def _without_support(cases: Sequence[Case], rows: Sequence[Row]) -> Row:
    signals: dict[str, Callable[[Row], Any]] = {
        "-log p": lambda row: -np.array(row["log_probability"]),
        "-log p, where R(source) is known": lambda row: (
            -np.array(row["log_probability"]) if "source_total" in row else None
        ),
        "-log p over its mean with other sources": lambda row: -np.array(row["ratio"]) if "ratio" in row else None,
        "-largest weight of the step": lambda row: -np.array(row["step_weight"]),
        "-R(source)": lambda row: -np.array(row["source_total"]) if "source_total" in row else None,
    }
    return {
        kind: {name: interval(_tokens(cases, rows, kind, False, signal)) for name, signal in signals.items()}
        for kind in ("addition", "made addition", "mistranslation")
    }


def _mean(row: Row, name: str, side: str) -> float:
    values = np.array(row[name])[np.array(row["sides"][side]["text"])]
    return float(values.mean()) if len(values) else 0.0


def _coverage(row: Row, reading: str) -> float:
    values = _source(row, reading)[np.array(row["sides"]["source"]["text"])]
    return float(values.mean()) if len(values) else 0.0


def _by_sentence(reading: str) -> dict[str, Callable[[Row], float]]:
    return {
        "-coverage": lambda row: -_coverage(row, reading),
        "-mean of the steps' largest weight": lambda row: -_mean(row, "step_weight", "target"),
        "-log p": lambda row: -float(np.mean(row["log_probability"])),
        "-length ratio": lambda row: -row["length_ratio"],
    }


def _forced(cases: Sequence[Case], rows: Sequence[Row], reading: str) -> Row:
    found = [
        (case, row)
        for case, row in zip(cases, rows, strict=True)
        if case.group in ("forced, bad", "forced, good") and not case.chosen
    ]
    usual = [pair for pair in found if USUAL_LENGTH[0] <= pair[0].about["length"] <= USUAL_LENGTH[1]]
    slow = [(case, row) for case, row in found if "source_total" in row]
    share = {"-R(source)": lambda row: -float(np.mean(row["source_total"][1:]))}
    return {
        name: {
            signal: interval(
                [(c.cluster, np.array([value(r)]), np.array([c.group == "forced, bad"])) for c, r in chosen]
            )
            for signal, value in signals.items()
        }
        for name, chosen, signals in (
            ("all", found, _by_sentence(reading)),
            ("of usual length", usual, _by_sentence(reading)),
            ("where R(source) is known", slow, _by_sentence(reading) | share),
        )
    }


def _sentences(cases: Sequence[Case], rows: Sequence[Row], reading: str) -> Row:
    found = [(case, row) for case, row in zip(cases, rows, strict=True) if case.kind == "sentence" and not case.chosen]
    return {
        wrong: {
            signal: interval(
                [
                    (c.cluster, np.array([value(r)]), np.array([c.about[wrong]]))
                    for c, r in found
                    if c.about[wrong] or c.about["clean"]
                ]
            )
            for signal, value in _by_sentence(reading).items()
        }
        for wrong in ("omission", "major")
    }


# ---- flags


def _flags(cases: Sequence[Case], rows: Sequence[Row], reading: str) -> Row:
    """By signal, half, group and rarity, which share of marked words and of others is flagged."""

    def ratio(row: Row) -> Any:
        return np.array(row["ratio"]) if "ratio" in row else None

    def probability(row: Row) -> Any:
        return np.array(row["log_probability"])

    omissions, additions = ("omission", "made omission"), ("addition", "made addition", "mistranslation")
    flagging: dict[str, tuple[Callable[[Row], Any], str, str, tuple[str, ...]]] = {
        "coverage": (lambda row: _source(row, reading), "source", "own", omissions),
        "log p": (probability, "target", "own", additions),
        "log p, against sampled translations": (probability, "target", "sampled", additions),
        "log p over its mean with others": (ratio, "target", "own", additions),
        "log p over its mean with others, against sampled translations": (
            ratio,
            "target",
            "sampled",
            additions,
        ),
    }
    results: Row = {}
    for name, (signal, side, usual, kinds) in flagging.items():
        own = _flaggable(cases, rows, usual, True, side, signal)
        if own is None:
            continue
        limits = np.quantile(own[0], RARITIES)
        results[name] = {
            half: {
                kind: _flagged(found, limits)
                for kind in (*kinds, "own", "clean")
                if (found := _flaggable(cases, rows, kind, half == "chosen", side, signal)) is not None
            }
            for half in ("chosen", "reported")
        }
    return results


def _flaggable(
    cases: Sequence[Case], rows: Sequence[Row], group: str, chosen: bool, side: str, signal: Callable[[Row], Any]
) -> tuple[np.ndarray, np.ndarray] | None:
    """The values of the words of a group in one of the halves, and which are marked; None: there are none."""
    found = [
        _words(row, side, values)
        for case, row in zip(cases, rows, strict=True)
        if case.group == group and case.chosen == chosen and (values := signal(row)) is not None
    ]
    return (np.concatenate([v for v, _ in found]), np.concatenate([m for _, m in found])) if found else None


def _flagged(found: tuple[np.ndarray, np.ndarray], limits: np.ndarray) -> Row:
    values, marked = found
    shares = {
        str(rarity): {
            "of marked": _share(values[marked] < limit),
            "of others": _share(values[~marked] < limit),
            "flags that are right": _share(marked[values < limit]),
        }
        for rarity, limit in zip(RARITIES, limits, strict=True)
    }
    return shares | {"words": len(values), "marked": int(marked.sum())}


def _words(row: Row, side: str, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The means of the words that have letters, and which of them are marked."""
    about = row["sides"][side]
    numbers, spoken = np.array(about["words"]), np.array(about["spoken"])
    members = [numbers == word for word in range(numbers.max() + 1)]
    members = [own for own in members if spoken[own].any()]
    marked = np.array(about["marked"])
    return np.array([values[own].mean() for own in members]), np.array([bool(marked[own].any()) for own in members])


def _share(found: np.ndarray) -> float | None:
    return round(float(found.mean()), 4) if len(found) else None


def show(results: dict[str, Any]) -> None:
    """The figures as tables."""
    console = Console(width=140)
    console.print(results["reading"]["chosen"], "chosen on", results["reading"]["chosen on"])
    for name in ("left out, by token", "without support, by token", "let go of the source", "sentences of MQM"):
        table = Table("what", "signal", "AUROC", "positive", "negative", title=name)
        for what, signals in results[name].items():
            for signal, found in signals.items():
                if found["auroc"] is not None:
                    low, high = found["interval"]
                    score = f"{found['auroc']:.3f} [{low:.3f}, {high:.3f}]"
                    table.add_row(what, signal, score, str(found["positive"]), str(found["negative"]))
        console.print(table)
    console.print(results["flags"])
