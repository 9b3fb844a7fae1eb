"""Stages of training: where a series over checkpoints stops falling, and where its rise slows down.

In the paper, R(source) and the entropies fall at first, then rise, then hardly change. The end of the first stage is
the minimum of the smoothed series; the end of the second is where the rate of the rise falls under a share of its
maximum and stays there. A point is reported only where it stands out from the noise of the series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FEWEST = 5  # checkpoints
SLOW = 0.2  # a rate under this share of the largest one is slow
CLEAR = 6.0  # a fall or rise of this many standard deviations of the noise is none of it
LEAST = 0.05  # nor is it a trifle where it is this share of the series' whole range


@dataclass(frozen=True)
class Stages:
    """The stages that a series shows.

    Attributes:
        first_end: the step where the series stops falling and begins to rise; None if it does not do both.
        second_end: the step where the rise becomes slow; None if it does not, or there is no rise.
        fall: from the highest value before `first_end` to the minimum, of medians of three; nan without one.
        rise: from the minimum to the highest value after it; nan without one.
        noise: standard deviation of single values around their neighbours.
        reason: why a point is missing; empty if both are there.
    """

    first_end: float | None
    second_end: float | None
    fall: float
    rise: float
    noise: float
    reason: str


def find_stages(steps: Sequence[float] | np.ndarray, values: Sequence[float] | np.ndarray) -> Stages:
    """The turning points of a series, such as R(source) over the checkpoints of a training run.

    Args:
        steps: `[K]`, growing; distances may differ.
        values: `[K]`.
    """
    x, y = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or (np.diff(x) <= 0).any() or not np.isfinite(y).all():
        raise ValueError("steps must grow, and there must be one finite value for each.")
    if len(x) < FEWEST:
        return _none(np.nan, f"there are {len(x)} checkpoints; {FEWEST} are needed")
    noise = _noise(x, y)
    # One odd checkpoint is no turning point: it counts as the median of itself and its neighbours.
    medians = _medians(y)
    needed = max(CLEAR * noise, LEAST * (medians.max() - medians.min()))
    y = np.where(np.abs(y - medians) > needed, medians, y)
    smooth = _smooth(y)
    lowest = int(smooth.argmin())
    if lowest in (0, len(x) - 1):
        return _none(noise, f"the lowest value is at the {'last' if lowest else 'first'} checkpoint")
    bottom = medians[lowest - 1 : lowest + 2].min()
    fall, rise = medians[: lowest + 1].max() - bottom, medians[lowest:].max() - bottom
    if min(fall, rise) <= needed:
        which = "fall" if fall <= rise else "rise"
        return _none(noise, f"its {which} of {min(fall, rise):.2g} does not stand out ({needed:.2g} would)")
    slow = _slowdown(x[lowest:], y[lowest:], smooth[lowest:], noise)
    second = None if slow is None else float(x[lowest + slow])
    reason = "" if second is not None else "the rise has not slowed down by the last checkpoint"
    return Stages(float(x[lowest]), second, float(fall), float(rise), noise, reason)


def _none(noise: float, reason: str) -> Stages:
    return Stages(None, None, np.nan, np.nan, noise, reason)


def _smooth(y: np.ndarray) -> np.ndarray:
    """Weighted means of neighbours, more of them in long series; near the ends of fewer, so that ends do not move."""
    reach = max(1, len(y) // 20)
    smooth = np.empty_like(y)
    for i in range(len(y)):
        width = min(reach, i, len(y) - 1 - i)
        weights = width + 1.0 - np.abs(np.arange(-width, width + 1))
        smooth[i] = np.average(y[i - width : i + width + 1], weights=weights)
    return smooth


def _medians(y: np.ndarray) -> np.ndarray:
    """Medians of each value and its two neighbours; the first and last value as they are."""
    return np.concatenate([y[:1], np.median([y[:-2], y[1:-1], y[2:]], axis=0), y[-1:]])


def _noise(x: np.ndarray, y: np.ndarray) -> float:
    """Standard deviation of values around the line between their two neighbours, by the median of the distances."""
    weight = (x[2:] - x[1:-1]) / (x[2:] - x[:-2])  # of the left neighbour
    distances = np.abs(y[1:-1] - weight * y[:-2] - (1 - weight) * y[2:])
    scaled = distances / np.sqrt(1 + weight**2 + (1 - weight) ** 2)
    few = 1 + 4 / len(scaled)  # a median of few may be far too small
    return float(1.4826 * few * np.median(scaled))


def _slowdown(x: np.ndarray, y: np.ndarray, smooth: np.ndarray, noise: float) -> int | None:
    """Where a rise from the first value on becomes slow and stays so: there and, surely, on average after it."""
    rates = np.gradient(smooth, x)
    fastest = int(rates.argmax())
    limit = SLOW * rates[fastest]
    shortest = max(3, len(x) // 4)  # a third stage of fewer checkpoints cannot be told from a pause
    for i in range(fastest + 1, len(x) - shortest + 1):
        if rates[i] <= limit and _highest_slope(x[i:], y[i:], noise) <= limit:
            return i
    return None


def _highest_slope(x: np.ndarray, y: np.ndarray, noise: float) -> float:
    """The slope of the line through the points, and two standard errors of it."""
    centred = x - x.mean()
    squares = (centred**2).sum()
    return float((centred * y).sum() / squares + 2 * noise / np.sqrt(squares))
