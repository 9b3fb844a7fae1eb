"""Verdicts: which method answers a question best, by paired draws of sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from judgement.measures import Row
from judgement.questions import BASELINE, DRAWS, FEWEST_SENTENCES, LEVEL, Question

Against = Literal["better", "worse", "alike", "open"]


class Figure(NamedTuple):
    """A figure on the test half, and the ends of its interval of 95 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Standing:
    """One method's answer to a question on one model.

    Attributes:
        figure: on the test half.
        difference: to the baseline on the same sentences, positive where the method is better; None for the baseline.
        p: of the difference, after Holm's correction; None for the baseline.
        against: the verdict. Better, worse: p below the level and a difference of at least the minimum; alike: the
            whole interval within the minimum; open: neither.
        further: figures without a verdict.
    """

    figure: Figure
    difference: Figure | None
    p: float | None
    against: Against | None
    further: tuple[Figure, ...]


@dataclass(frozen=True)
class Answer:
    """What all methods answer to a question on one model.

    Attributes:
        standings: by method, the best on the test half first.
        first: the method that came first on the development half.
        winner: that method, if it is better than every other by the rule, on the test half; else None.
        ahead: by how much it leads the best of the others there, with the interval; negative if it does not.
        rivals: the others that it is not better than.
        beside: by how much what is not a method (random orders, functions made for the question) leads it there.
        sentences: in the test half.
    """

    standings: Mapping[str, Standing]
    first: str
    winner: str | None
    ahead: Figure
    rivals: tuple[str, ...]
    beside: Mapping[str, Figure]
    sentences: int


def answer(
    question: Question, found: Mapping[str, Sequence[Row]], contestants: Sequence[str], draws: int = DRAWS
) -> Answer:
    """The answer from what was found.

    Args:
        found: by method, what was found for each sentence; the same sentences in the same order.
        contestants: the methods that can win, with the baseline. The others (random order, ...) stand in the table.
        draws: of sentences.
    """
    numbers = {len(rows) for rows in found.values()}
    if len(numbers) != 1:
        raise ValueError(f"{question.name}: methods have different numbers of sentences: {sorted(numbers)}.")
    development, test = np.arange(0, *numbers, 2), np.arange(1, *numbers, 2)
    sign = 1 if question.higher else -1
    drawn = np.stack([test] + [np.random.default_rng(k).choice(test, len(test)) for k in range(draws)])
    computed = {name: question.measure(rows)(drawn) for name, rows in found.items()}
    early = {name: sign * question.measure(found[name])(development) for name in contestants}
    first = max(early, key=lambda name: early[name])

    def compare(one: str, other: str) -> np.ndarray:
        return sign * (computed[one] - computed[other])

    others = [name for name in found if name != BASELINE]
    differences = {name: compare(name, BASELINE) for name in others}
    adjusted = holm({name: p_value(values[1:]) for name, values in differences.items() if name in contestants})
    standings = {}
    for name in sorted(found, key=lambda name: -sign * computed[name][0]):
        further = tuple(_figure(measure(found[name])(drawn)) for _, measure in question.further)
        if name == BASELINE:
            standings[name] = Standing(_figure(computed[name]), None, None, None, further)
            continue
        difference, p = _figure(differences[name]), adjusted.get(name)
        against = _against(difference, p, question.minimum) if p is not None else None
        standings[name] = Standing(_figure(computed[name]), difference, p, against, further)

    leads = {name: compare(first, name) for name in contestants if name != first}
    lead_p = holm({name: p_value(values[1:]) for name, values in leads.items()})
    beaten = {name for name, lead in leads.items() if lead_p[name] < LEVEL and lead[0] >= question.minimum}
    rivals = tuple(name for name in leads if name not in beaten)
    closest = min(leads, key=lambda name: leads[name][0])
    winner = first if not rivals and len(test) >= FEWEST_SENTENCES else None
    beside = {name: _figure(compare(name, first)) for name in found if name not in contestants}
    return Answer(standings, first, winner, _figure(leads[closest]), rivals, beside, len(test))


def p_value(differences: np.ndarray) -> float:
    """Two-sided, from draws of a difference: how often it has the other sign; never 0."""
    known = differences[~np.isnan(differences)]
    smaller = min(np.count_nonzero(known <= 0), np.count_nonzero(known >= 0))
    return min(1.0, 2 * (smaller + 1) / (len(known) + 1))


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """P-values adjusted for their number (Holm 1979)."""
    adjusted, highest = {}, 0.0
    for number, name in enumerate(sorted(values, key=lambda name: values[name])):
        highest = max(highest, min(1.0, (len(values) - number) * values[name]))
        adjusted[name] = highest
    return adjusted


def _figure(values: np.ndarray) -> Figure:
    low, high = np.nanquantile(values[1:], (0.025, 0.975))
    return Figure(float(values[0]), float(low), float(high))


def _against(difference: Figure, p: float, minimum: float) -> Against:
    if p < LEVEL and abs(difference.value) >= minimum:
        return "better" if difference.value > 0 else "worse"
    return "alike" if -minimum < difference.low and difference.high < minimum else "open"
