"""The part of benchmark.py about goals: what is aimed at, and whether a run's results reach it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmark_sentences import BASELINE
from benchmark_times import ratios

MIB = 2**20
Result = dict[str, Any]  # what benchmark.py writes


def section_of(result: Result, name: str) -> Any:
    """What a section has measured; None if it was not run."""
    found = result["sections"].get(name)
    return None if found is None else found["result"]


def of_models(result: Result, kind: str) -> list[Any]:
    """What the sections of a kind have measured, model by model."""
    found = (section_of(result, f"{kind}: {model}") for model in result["settings"]["models"])
    return [each for each in found if each is not None]


def gains(found: dict[str, Any], task: str) -> list[float]:
    """How many times as fast a task is after as before, round by round."""
    seconds = found["tasks"][task]["seconds"]
    return [before / after for before, after in zip(seconds["before"], seconds["after"], strict=True)]


class Goal(NamedTuple):
    """Something measured that should be at most, or at least, so much; the worst of several values counts."""

    text: str
    limit: float
    at_most: bool
    unit: str
    values: Callable[[Result], list[float]]

    @property
    def wanted(self) -> str:
        return f"at {'most' if self.at_most else 'least'} {self.limit:g} {self.unit}"

    def tell(self, result: Result) -> str:
        """What was measured, and whether it is enough."""
        values = self.values(result)
        if not values:
            return ""
        worst = max(values) if self.at_most else min(values)
        reached = worst <= self.limit if self.at_most else worst >= self.limit
        return f"{', '.join(f'{value:.3g}' for value in values)} {self.unit}: {'yes' if reached else '**no**'}"


def _in_comparison(task: str, against: str) -> Callable[[Result], list[float]]:
    def values(result: Result) -> list[float]:
        found = [each for each in of_models(result, "comparison") if {task, against} <= set(each["seconds"])]
        return [statistics.median(ratios(each, task, against)) for each in found]

    return values


def _in_growth(result: Result) -> list[float]:
    return [
        max(statistics.median(ratios(row, "explain", BASELINE)) for row in rows)
        for rows in of_models(result, "growth")
    ]


def _gain_of(task: str) -> Callable[[Result], list[float]]:
    def values(result: Result) -> list[float]:
        found = section_of(result, "before and after")
        return [] if found is None or task not in found["tasks"] else [statistics.median(gains(found, task))]

    return values


def _in_decoder_only(result: Result) -> list[float]:
    found = section_of(result, "decoder only")
    return [] if found is None else [statistics.median(ratios(found, "explain", BASELINE))]


def _in_memory(result: Result) -> list[float]:
    return [row["bytes"] / MIB for rows in of_models(result, "memory") for row in rows if row["limit"] is None]


GRADIENTS = "against one forward and T backward passes"
GOALS = (
    Goal(f"`explain`, S = 20, T = 23, {GRADIENTS}", 0.30, True, "×", _in_comparison("explain", BASELINE)),
    Goal(f"the same, S = T from 10 to 160, the highest of each model, {GRADIENTS}", 0.35, True, "×", _in_growth),
    Goal(
        f"R(source) alone, S = 20, T = 23, {GRADIENTS}",
        0.17,
        True,
        "×",
        _in_comparison("explain, R(source) alone", BASELINE),
    ),
    Goal("inseq's time against that of `explain`", 6, False, "×", _in_comparison("inseq input_x_gradient", "explain")),
    Goal(f"decoder only, {GRADIENTS}", 0.5, True, "×", _in_decoder_only),
    Goal("`analyze`, sentences per second, after against before", 1.3, False, "×", _gain_of("analyze")),
    Goal("`score`, sentences per second, after against before", 1.5, False, "×", _gain_of("score")),
    Goal("memory, S = T = 200, without a limit", 1024, True, "MiB", _in_memory),
)
