"""Figures over sentences, in a form that can be computed again for many draws of sentences.

A measure takes what was found for each sentence, a mapping of names to lists of numbers, and returns a function from
the numbers of the drawn sentences, `[n]` or `[draws, n]`, to the figure, or to those of all draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

Row: TypeAlias = Mapping[str, Sequence[float]]
Measure: TypeAlias = Callable[[Sequence[Row]], Callable[[np.ndarray], Any]]


def mean_of(name: str) -> Measure:
    """The mean over sentences of each sentence's mean; sentences without a value are left out."""

    def prepare(rows: Sequence[Row]) -> Callable[[np.ndarray], Any]:
        means = np.array([_mean(np.asarray(row[name], dtype=np.float64)) for row in rows])
        return lambda drawn: _mean(means[drawn])

    return prepare


def rank_correlation(first: str, second: str, classes: str) -> Measure:
    """Spearman's correlation over tokens within each class, then the mean over classes, weighted by their tokens."""

    def prepare(rows: Sequence[Row]) -> Callable[[np.ndarray], Any]:
        x, y, label, sentence = _columns(rows, first, second, classes)

        def figure(drawn: np.ndarray) -> Any:
            times = _times(drawn, len(rows))[..., sentence]
            total = number = np.zeros(drawn.shape[:-1])
            for one in np.unique(label):
                own = label == one
                value = _spearman(x[own], y[own], times[..., own])
                weight = np.where(np.isfinite(value), times[..., own].sum(-1), 0)
                total, number = total + weight * np.nan_to_num(value), number + weight
            return total / number

        return figure

    return prepare


def area_under_curve(scores: str, labels: str) -> Measure:
    """AUROC over tokens: how often one that is marked scores higher than one that is not; ties count half."""

    def prepare(rows: Sequence[Row]) -> Callable[[np.ndarray], Any]:
        score, label, sentence = _columns(rows, scores, labels)
        marked = label > 0

        def figure(drawn: np.ndarray) -> Any:
            times = _times(drawn, len(rows))[..., sentence]
            up, down = times[..., marked].sum(-1), times[..., ~marked].sum(-1)
            above = (times * ranks(score, times))[..., marked].sum(-1) - up * (up + 1) / 2
            return np.divide(above, up * down, out=np.full(up.shape, np.nan), where=up * down > 0)[()]

        return figure

    return prepare


def alignment_error_rate(name: str = "") -> Measure:
    """AER (Och and Ney 2003): 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), over the links of all sentences together.

    Args:
        name: which of a sentence's counts are taken, if there are several.
    """

    def prepare(rows: Sequence[Row]) -> Callable[[np.ndarray], Any]:
        kinds = ("in_sure", "in_possible", "links", "sure")
        counts = np.array([[row[name + kind][0] for kind in kinds] for row in rows])

        def figure(drawn: np.ndarray) -> Any:
            in_sure, in_possible, links, sure = np.moveaxis(counts[drawn].sum(axis=-2), -1, 0)
            return 1 - (in_sure + in_possible) / (links + sure)

        return figure

    return prepare


def ranks(values: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
    """Ranks from 1 on; equal values share the mean of theirs.

    Args:
        values: `[n]`.
        times: how often each value is there, `[..., n]`; once by default.
    """
    times = np.ones(values.shape) if times is None else times
    order = np.argsort(values, kind="stable")
    _, starts, places = np.unique(values[order], return_index=True, return_inverse=True)
    together = np.add.reduceat(times[..., order], starts, axis=-1)
    shared = np.cumsum(together, axis=-1) - (together - 1) / 2
    found = np.empty(times.shape)
    found[..., order] = shared[..., places]
    return found


def _columns(rows: Sequence[Row], *names: str) -> list[np.ndarray]:
    """What all sentences have under these names, one after the other, and the number of each value's sentence."""
    columns = [np.concatenate([np.asarray(row[name], dtype=np.float64) for row in rows]) for name in names]
    return [*columns, np.repeat(np.arange(len(rows)), [len(row[names[0]]) for row in rows])]


def _times(drawn: np.ndarray, sentences: int) -> np.ndarray:
    """How often each sentence was drawn, `[..., sentences]`."""
    flat = drawn.reshape(-1, drawn.shape[-1])
    counts = np.stack([np.bincount(one, minlength=sentences) for one in flat])
    return counts.reshape(*drawn.shape[:-1], sentences).astype(np.float64)


def _spearman(x: np.ndarray, y: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Of values that are there several times; nan of fewer than three, and where one side is all the same."""
    number = times.sum(-1)
    some = np.maximum(number, 1)[..., None]
    x, y = ranks(x, times), ranks(y, times)
    x, y = (ranked - (times * ranked).sum(-1, keepdims=True) / some for ranked in (x, y))
    deviations = np.sqrt((times * x * x).sum(-1) * (times * y * y).sum(-1))
    known = (number >= 3) & (deviations > 1e-9)
    return np.divide((times * x * y).sum(-1), deviations, out=np.full(number.shape, np.nan), where=known)


def _mean(values: np.ndarray) -> Any:
    """Over the last axis, of what is known; nan where nothing is."""
    known = ~np.isnan(values)
    total, number = np.where(known, values, 0.0).sum(-1), known.sum(-1)
    return np.divide(total, number, out=np.full(number.shape, np.nan), where=number > 0)[()]
