"""Figures over sentences, in a form that can be computed again for every draw of sentences.

A measure takes what was found for each sentence, a mapping of names to lists of numbers, and returns a function from
the numbers of the drawn sentences, `[n]`, to the figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

Row: TypeAlias = Mapping[str, Sequence[float]]
Measure: TypeAlias = Callable[[Sequence[Row]], Callable[[np.ndarray], float]]


def mean_of(name: str) -> Measure:
    """The mean over sentences of each sentence's mean; sentences without a value are left out."""

    def prepare(rows: Sequence[Row]) -> Callable[[np.ndarray], float]:
        means = np.array([_mean(row[name]) for row in rows])
        return lambda drawn: _mean(means[drawn])

    return prepare


def rank_correlation(first: str, second: str, classes: str) -> Measure:
    """Spearman's correlation over tokens within each class, then the mean over classes, weighted by their tokens."""

    def prepare(rows: Sequence[Row]) -> Callable[[np.ndarray], float]:
        columns = [np.array([row[first], row[second], row[classes]], dtype=np.float64) for row in rows]

        def figure(drawn: np.ndarray) -> float:
            x, y, label = np.concatenate([columns[number] for number in drawn], axis=1)
            found = [
                (np.count_nonzero(label == one), _spearman(x[label == one], y[label == one])) for one in set(label)
            ]
            found = [(number, value) for number, value in found if np.isfinite(value)]
            return sum(number * value for number, value in found) / sum(number for number, _ in found)

        return figure

    return prepare


def area_under_curve(scores: str, labels: str) -> Measure:
    """AUROC over tokens: how often one that is marked scores higher than one that is not; ties count half."""

    def prepare(rows: Sequence[Row]) -> Callable[[np.ndarray], float]:
        columns = [np.array([row[scores], row[labels]], dtype=np.float64) for row in rows]

        def figure(drawn: np.ndarray) -> float:
            score, label = np.concatenate([columns[number] for number in drawn], axis=1)
            marked = label > 0
            positives, negatives = np.count_nonzero(marked), np.count_nonzero(~marked)
            if not positives or not negatives:
                return np.nan
            return (ranks(score)[marked].sum() - positives * (positives + 1) / 2) / (positives * negatives)

        return figure

    return prepare


def alignment_error_rate(name: str = "") -> Measure:
    """AER (Och and Ney 2003): 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), over the links of all sentences together.

    Args:
        name: which of a sentence's counts are taken, if there are several.
    """

    def prepare(rows: Sequence[Row]) -> Callable[[np.ndarray], float]:
        kinds = ("in_sure", "in_possible", "links", "sure")
        counts = np.array([[row[name + kind][0] for kind in kinds] for row in rows])

        def figure(drawn: np.ndarray) -> float:
            in_sure, in_possible, links, sure = counts[drawn].sum(axis=0)
            return 1 - (in_sure + in_possible) / (links + sure)

        return figure

    return prepare


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1 on; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[places]


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    if len(x) < 3:
        return np.nan
    x, y = ranks(x), ranks(y)
    deviations = x.std() * y.std()
    return float(((x - x.mean()) * (y - y.mean())).mean() / deviations) if deviations > 0 else np.nan


def _mean(values: Sequence[float] | np.ndarray) -> float:
    kept = np.asarray(values, dtype=np.float64)
    kept = kept[~np.isnan(kept)]
    return float(kept.mean()) if len(kept) else np.nan
