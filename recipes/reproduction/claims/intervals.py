"""Means over sentences and seeds, with one interval for both.

Sentences are shared by all seeds, and a seed is a unit of its own: more sentences tell nothing of how much models
differ that were trained alike. The half-width of the interval is therefore √(a² + b²), where a is that of Student's t
over the seeds' means and b that over sentences. What varies with both counts twice, which makes it rather too wide.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hf_lrp.results.intervals import student_quantile

CONFIDENCE = 0.9  # each end is a one-sided bound of 95 %, and a verdict needs one end, or both for "within"


class Interval(NamedTuple):
    """A mean over seeds of means over sentences, the ends of its interval, and how many there are of each."""

    value: float
    low: float
    high: float
    sentences: int  # of the seed that has fewest
    seeds: int


NOTHING = Interval(np.nan, np.nan, np.nan, 0, 0)  # where there is nothing to measure


def mean_interval(values: np.ndarray, confidence: float = CONFIDENCE) -> Interval:
    """The interval of a mean.

    Args:
        values: `[seeds, sentences]`; nan where a sentence has no value.
        confidence: that the interval holds the mean over all seeds and sentences there could be.
    """
    value, half = mean_and_half_width(values[:, :, None], confidence)
    counts = np.isfinite(values).sum(axis=1)
    return Interval(
        float(value[0]), float(value[0] - half[0]), float(value[0] + half[0]), int(counts.min()), len(counts)
    )


def mean_and_half_width(values: np.ndarray, confidence: float = CONFIDENCE) -> tuple[np.ndarray, np.ndarray]:
    """Means `[P]` of values `[seeds, sentences, P]` and half the width of their intervals; nan without sentences."""
    means, influence = seed_means(values)
    sentences = np.isfinite(values).any(axis=0).sum(axis=0)
    of_seeds = np.zeros(values.shape[2])
    if len(values) > 1:
        deviation = means.std(axis=0, ddof=1) / np.sqrt(len(values))
        of_seeds = student_quantile(len(values) - 1, confidence) * deviation
    return means.mean(axis=0), np.hypot(of_seeds, sentence_half_width(influence.mean(axis=0), sentences, confidence))


def seed_means(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means `[seeds, P]` over sentences of `[seeds, sentences, P]`, and by how much each sentence moves them."""
    defined = np.isfinite(values)
    counts = defined.sum(axis=1)
    totals = np.where(defined, values, 0.0).sum(axis=1)
    means = np.divide(totals, counts, out=np.full(totals.shape, np.nan), where=counts > 0)
    influence = np.where(defined, values - means[:, None], 0.0) / np.maximum(counts, 1)[:, None]
    return means, influence


def sentence_half_width(influence: np.ndarray, sentences: np.ndarray, confidence: float) -> np.ndarray:
    """From how much each sentence moves a mean, `[sentences, P]`, and the numbers `[P]` of those that do."""
    few = np.maximum(sentences, 2)
    deviation = np.sqrt((influence**2).sum(axis=0) * few / (few - 1))
    quantiles = np.array([student_quantile(int(number) - 1, confidence) for number in few])
    return np.where(sentences > 1, quantiles * deviation, np.inf)


def ratio_values(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    """Values `[seeds, sentences]` whose mean per seed is the ratio of two means, and that vary as this ratio does."""
    defined = np.isfinite(numerators) & np.isfinite(denominators)
    above, below = (np.where(defined, side, np.nan) for side in (numerators, denominators))
    mean = np.nanmean(below, axis=1, keepdims=True)
    ratio = np.nanmean(above, axis=1, keepdims=True) / mean
    return ratio + (above - ratio * below) / mean
