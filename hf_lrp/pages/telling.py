"""The most telling place of a translation, in one plain sentence: where the source counts least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

UNUSUAL = 2.0  # standard deviations from what is usual
_SEEN = 0.0005  # a difference that three decimals show
_LEAST = 3  # words in a row that are called the rest of a translation
_BELOW = 1.0  # standard deviations that each of these is below what is usual


class Telling(NamedTuple):
    """`row`: the index of the step that is spoken of; `sentence`: what to say, with `{}` for the `word` of the step.

    The word stands apart, so that a page can keep right-to-left words from reordering the sentence.
    """

    row: int
    sentence: str
    word: str


@dataclass(frozen=True, eq=False)
class Curve:
    """R_t(source) of a translation, and what is usual.

    Attributes:
        words: `[T]`, what is written at each step.
        total: `[T]`, R_t(source).
        counts: `[T]`, whether a step may be spoken of: not the first, and no special token.
        mean, deviation: `[T]`, of R_t(source) in the model's own translations at these steps; nan where not known.
    """

    words: Sequence[str]
    total: np.ndarray
    counts: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray


def most_telling(curve: Curve) -> Telling | None:
    """Where R(source) is furthest below what is usual, or lowest where that is not known; None if there is neither."""
    if not curve.counts.any():
        return None
    z = np.where(curve.counts, (curve.total - curve.mean) / curve.deviation, np.nan)
    if np.isnan(z).all():
        return _lowest(curve)
    row = int(np.nanargmin(z))
    start = _start_of_rest(z)
    if start is not None:
        rest = slice(start, None)
        level, usual, spread = (
            np.nanmean(np.where(np.isnan(z), np.nan, v)[rest])
            for v in (
                curve.total,
                curve.mean,
                curve.deviation,
            )
        )
        sentence = (
            f"From “{{}}” on the model relies on its own words: R(source) is {level:.2f}, against {usual:.2f} ± "
            f"{spread:.2f} as usual."
        )
        return Telling(start, sentence, curve.words[start])
    numbers = (
        f"R(source) is {curve.total[row]:.2f}, against {curve.mean[row]:.2f} ± {curve.deviation[row]:.2f} as usual"
    )
    if z[row] < -UNUSUAL:
        said = "At “{}” the model relies more than usual on its own words"
    else:
        said = "The source counts as usual throughout. Closest to being low is “{}”"
    return Telling(row, f"{said}: {numbers}.", curve.words[row])


def most_different(
    words: Sequence[str], first: np.ndarray, second: np.ndarray, names: Sequence[str]
) -> Telling | None:
    """Where two curves of R(source), `[T]` at the same words, are furthest apart; None if they nowhere are.

    The names are put into the sentence as they are.
    """
    apart = np.abs(second - first)
    if not len(apart) or apart.max() < _SEEN:
        return None
    row = int(np.argmax(apart))
    totals = f"{first[row]:.3f} ({names[0]}) and {second[row]:.3f} ({names[1]})"
    sentence = f"The two differ most at “{{}}”: R(source) is {totals}."
    return Telling(row, sentence, words[row])


def _lowest(curve: Curve) -> Telling | None:
    row = int(np.argmin(np.where(curve.counts, curve.total, np.inf)))
    others = curve.counts.copy()
    others[row] = False
    if not others.any():
        return None
    average = f"{curve.total[others].mean():.2f} on average at the other words"
    sentence = f"The source counts least at “{{}}”: R(source) is {curve.total[row]:.2f}, against {average}."
    return Telling(row, sentence, curve.words[row])


def _start_of_rest(z: np.ndarray) -> int | None:
    """Where the last words start that are all below what is usual, on average clearly, if they are enough."""
    places = np.flatnonzero(~np.isnan(z))
    below = z[places] < -_BELOW
    first = len(places) if not below.any() else int(len(places) - np.argmin(below[::-1])) if not below.all() else 0
    rest = places[first:]
    clear = len(rest) >= _LEAST and z[rest].mean() < -UNUSUAL
    return int(rest[0]) if clear else None
