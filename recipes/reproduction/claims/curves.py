"""Quantities by step for several seeds, and contrasts of them that do not depend on how long sentences are.

A mean over sentences of different length compares early steps of many with late steps of few, and a mean over the
steps of a shorter translation has fewer late steps in it. So everything here is either a contrast within a sentence,
which is zero for a flat curve of any length, or a difference between sentences of equal length at equal steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hf_lrp.results.quantities import defined_mean

USE = "source_use"  # source(k) -> target, beside the quantities by target step


@dataclass(frozen=True, eq=False)
class Curves:
    """What models of one kind, one per seed, do on the same sentences with one prefix type.

    Attributes:
        seeds: the seeds, in order.
        values: by quantity `[seeds, sentences, steps]`, nan after the end of a sentence; of `USE` by source position.
    """

    seeds: tuple[int, ...]
    values: Mapping[str, np.ndarray]

    def of(self, quantity: str, seeds: tuple[int, ...] | None = None) -> np.ndarray:
        """`[seeds, sentences, steps]` of all seeds or of these."""
        rows = range(len(self.seeds)) if seeds is None else [self.seeds.index(seed) for seed in seeds]
        return self.values[quantity][list(rows)]


def lengths_of(values: np.ndarray) -> np.ndarray:
    """`[...]`, the number of steps that `[..., steps]` has values for; 0 where it has none."""
    return (np.isfinite(values) * np.arange(1, values.shape[-1] + 1)).max(axis=-1)


def places(values: np.ndarray, first: int, spared: int) -> np.ndarray:
    """Where each step lies between `first` and the last but `spared`, from 0 to 1; nan for other steps.

    The middles of n steps lie at 1/(2n), 3/(2n), ..., so that thirds have the same number of steps where 3 divides n.
    """
    steps = np.arange(1, values.shape[-1] + 1)
    last = lengths_of(values)[..., None] - spared
    inside = (steps >= first) & (steps <= last)
    return np.where(inside, (steps - first + 0.5) / np.maximum(last - first + 1, 1), np.nan)


def mean_where(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """`[...]`, means of `[..., steps]` over chosen steps where they are defined; nan without any."""
    return defined_mean(np.where(chosen, values, np.nan))


def thirds(values: np.ndarray, first: int, spared: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means `[...]` over the early, middle and late third of the steps from `first` to the last but `spared`."""
    place = places(values, first, spared)
    early, late = place < 1 / 3, place > 2 / 3
    return mean_where(values, early), mean_where(values, (place >= 1 / 3) & (place <= 2 / 3)), mean_where(values, late)


def from_end(values: np.ndarray, back: int) -> np.ndarray:
    """`[...]`, the value at the last step (`back` 0) or so many before; nan for shorter sentences."""
    index = lengths_of(values) - 1 - back
    taken = np.take_along_axis(values, np.maximum(index, 0)[..., None], axis=-1)[..., 0]
    return np.where(index >= 0, taken, np.nan)


def continued(values: np.ndarray, first: int) -> np.ndarray:
    """`[...]`, where the straight line through the steps from `first` to the last but one would be at the last."""
    steps = np.arange(1.0, values.shape[-1] + 1)
    length = lengths_of(values)
    used = (steps >= first) & (steps < length[..., None])
    middle = mean_where(np.broadcast_to(steps, values.shape), used)
    away = np.where(used, steps - middle[..., None], 0.0)
    squares = (away**2).sum(axis=-1)
    product = (away * np.where(used, values, 0.0)).sum(axis=-1)
    slope = np.divide(product, squares, out=np.full(squares.shape, np.nan), where=squares > 0)
    return mean_where(values, used) + slope * (length - middle)


# ---- two kinds of models, or two prefix types


def difference(one: Curves, other: Curves, quantity: str) -> np.ndarray:
    """`[seeds, sentences]`, mean over steps from the second on of `one` - `other`, for the seeds that both have.

    nan for sentences whose two translations differ in length.
    """
    steps = step_differences(one, other, quantity, equal=True)
    return mean_where(steps, np.arange(steps.shape[-1]) > 0)


def step_differences(one: Curves, other: Curves, quantity: str, equal: bool) -> np.ndarray:
    """`[seeds, sentences, steps]`, `one` - `other` at steps that both have.

    Of sentences that differ in length, nothing if they must be `equal`, else the steps before the end of the shorter:
    what is last in one is not to be compared with what is in the middle of the other.
    """
    seeds = tuple(seed for seed in one.seeds if seed in other.seeds)
    mine, theirs = (side.of(quantity, seeds) for side in (one, other))
    own, its = lengths_of(mine), lengths_of(theirs)
    width = min(mine.shape[-1], theirs.shape[-1])
    last = np.where(own == its, own, 0 if equal else np.minimum(own, its) - 1)
    return np.where(np.arange(1, width + 1) <= last[..., None], mine[..., :width] - theirs[..., :width], np.nan)
