"""Means over sentences with bootstrap confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

DRAWS = 1000
CONFIDENCE = 0.95
BLOCK = 2**20  # numbers of drawn sentences in memory at a time


FEW = 20  # sentences: intervals from fewer are rough


class Estimate(NamedTuple):
    """A mean over sentences and the ends of its interval: floats, or arrays `[P]`; nan where nothing is defined."""

    value: Any
    low: Any
    high: Any


class Written(NamedTuple):
    """An estimate as tables show it, to three digits; a dash for what is not defined."""

    value: str
    ends: str  # of the interval; empty without one
    excludes_zero: bool  # by the ends as they are written, so that no mark contradicts them

    def __str__(self) -> str:
        return f"{self.value} {self.ends}".rstrip()


def write_estimate(estimate: Estimate, sign: str = "") -> Written:
    """Text of an estimate that is floats; sign: "+" for differences, whose plus is written."""
    if math.isnan(estimate.value):
        return Written("–", "", False)
    value, low, high = (f"{round(number, 3) + 0.0:{sign}.3f}" for number in estimate)  # no -0.000
    if math.isnan(estimate.low):  # one sentence
        return Written(value, "", False)
    return Written(value, f"[{low}, {high}]", float(low) > 0 or float(high) < 0)


def bootstrap_mean(
    values: np.ndarray, *, draws: int = DRAWS, confidence: float = CONFIDENCE, seed: int = 0
) -> Estimate:
    """The mean over sentences, with an expanded percentile interval from drawing sentences with replacement.

    Sentences, not steps, are drawn: the steps of a sentence are not independent. The same seed gives the same draws
    for all columns, and the same numbers whatever the number of threads. In memory are `draws` · P floats, copies of
    the values, and a block of draws.

    Args:
        values: `[n]` or `[n, P]`, one row per sentence; nan where a sentence has no value, which is left out.
        draws: how often n sentences are drawn.
        confidence: how often the interval holds the mean; of the draws' means, a few more lie in it where sentences
            are few.
        seed: makes the draws repeatable.

    Returns:
        floats for `[n]`, arrays `[P]` for `[n, P]`; one sentence has no interval.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim not in (1, 2) or not len(values):
        raise ValueError(f"values must be [n] or [n, P] with at least one sentence, got shape {list(values.shape)}.")
    if draws < 1 or not 0 < confidence < 1:
        raise ValueError(f"draws must be at least 1 and confidence between 0 and 1, got {draws} and {confidence}.")
    # One row per column, so that sums run over neighbours in memory.
    columns = np.ascontiguousarray(values.reshape(len(values), -1).T)
    defined = ~np.isnan(columns)
    filled = np.where(defined, columns, 0.0)
    counted = None if defined.all() else defined.astype(np.float64)
    mean = _weighted_means(filled, counted, np.ones((1, len(values))))[0]
    means = np.concatenate([_weighted_means(filled, counted, w) for w in _draw(len(values), draws, seed)])
    low, high = _percentiles(means, defined.sum(axis=1), confidence)
    if values.ndim == 1:
        return Estimate(float(mean[0]), float(low[0]), float(high[0]))
    return Estimate(mean, low, high)


def say_if_few(number: int) -> str:
    """A sentence for readers of intervals, where these are of few sentences; else nothing."""
    if number >= FEW:
        return ""
    if number == 1:
        return "There is one sentence, so there are no intervals."
    return f"Intervals from {number} sentences are rough, and too narrow for rates near 0 or 1."


def _draw(number: int, draws: int, seed: int) -> Iterator[np.ndarray]:
    """How often each of `number` sentences is drawn, in blocks `[some of the draws, number]`."""
    rng = np.random.default_rng(seed)
    block = max(1, BLOCK // number)
    for first in range(0, draws, block):
        size = min(block, draws - first)
        drawn = rng.integers(number, size=(size, number)) + number * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * number)
        yield counts.reshape(size, number).astype(np.float64)


def _weighted_means(filled: np.ndarray, counted: np.ndarray | None, weights: np.ndarray) -> np.ndarray:
    """Means `[D, P]` of values `[P, n]` with weights `[D, n]`; nan where no sentence with a weight counts."""
    # einsum without `optimize` does not call BLAS, whose sums depend on shapes and threads.
    totals = np.einsum("dn,pn->dp", weights, filled)
    counts = weights.sum(axis=1, keepdims=True) if counted is None else np.einsum("dn,pn->dp", weights, counted)
    return np.divide(totals, counts, out=np.full_like(totals, np.nan), where=counts > 0)


def _percentiles(means: np.ndarray, numbers: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the interval of each column of `[draws, P]`, over the draws that have a mean; nan for one sentence."""
    ends = np.full((2, means.shape[1]), np.nan)
    for number in np.unique(numbers[numbers > 1]):
        columns, tail = numbers == number, _tail(int(number), confidence)
        ends[:, columns] = np.nanquantile(means[:, columns], (tail, 1 - tail), axis=0)
    return ends[0], ends[1]


def _tail(number: int, confidence: float) -> float:
    """The share of the draws' means that lies outside each end, for a number of sentences.

    Less than (1 - confidence) / 2: means of draws vary less than means of new sentences would, and that their own
    spread is estimated must be allowed for, as Student's t does (the expanded percentile interval of Hesterberg 2015).
    """
    quantile = student_quantile(number - 1, confidence)
    return math.erfc(math.sqrt(number / (number - 1) / 2) * quantile) / 2


@lru_cache(maxsize=1024)
def student_quantile(freedom: int, confidence: float) -> float:
    """The t that |t| of Student's distribution stays under with this probability, for whole degrees of freedom.

    Not scipy's, which is exact to the same digits: transformers imports much of scipy wherever it is installed.
    """
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        if _student_probability(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan(high)


def _student_probability(angle: float, freedom: int) -> float:
    """P(|t| < √freedom tan angle): the finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    odd = freedom % 2
    if freedom == 1:
        return 2 * angle / math.pi
    places = np.arange(1, (freedom - odd) // 2)
    ratios = (2 * places - 1 + odd) / (2 * places + odd) * math.cos(angle) ** 2
    total = math.sin(angle) * (1.0 + math.fsum(np.cumprod(ratios)))
    return 2 / math.pi * (angle + math.cos(angle) * total) if odd else total
