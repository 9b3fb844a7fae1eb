"""The most telling place of a translation, in one plain sentence: where the source counts least.

`usual_z` and `is_unusual` are the one criterion for flags: of lists, and of pages by word and by piece.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hf_lrp.models.words import looks_special
from hf_lrp.results.intervals import student_quantile
from hf_lrp.results.quantities import defined_mean

UNUSUAL = -2.0  # standard deviations from what is usual: words below it are flagged
_SEEN = 0.0005  # a difference that three decimals show
_LEAST = 3  # words in a row that are called the rest of a translation
_SPREAD = 5  # other words that show how much a sentence's words differ anyway
_LEVEL = 0.05  # how often a word stands out by chance, where all words of a sentence are alike


class Telling(NamedTuple):
    """`row`: the index of the step that is spoken of; `sentence`: what to say, with `{}` for the `word` of the step.

    The word stands apart, so that a page can keep right-to-left words from reordering the sentence.
    """

    row: int
    sentence: str
    word: str


@dataclass(frozen=True, eq=False)
class Curve:
    """R_t(source) of a translation word by word, and what is usual.

    Attributes:
        words: `[W]`, what is written.
        total: `[W]`, R_t(source), the mean over a word's pieces.
        mean, deviation: `[W]`, of R_t(source) in the model's own translations at these words; nan where not known.
        counts: `[W]`, whether a word may be spoken of: not the first step, no special token, no punctuation.
        z: `[W]`, from `usual_z`; nan where not known.
    """

    words: Sequence[str]
    total: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    counts: np.ndarray
    z: np.ndarray


def usual_z(total: np.ndarray, mean: np.ndarray, deviation: np.ndarray, words: Sequence[int]) -> np.ndarray:
    """How many deviations above what is usual each word is, `[W]`: the mean over its pieces; nan where not known.

    Args:
        total, mean, deviation: `[T]`, R_t(source) by piece, and of the model's own translations.
        words: `[T]`, the number of each piece's word, rising from 0 or any other number.
    """
    return by_word((total - mean) / deviation, words)


def by_word(values: np.ndarray, words: Sequence[int]) -> np.ndarray:
    """The mean over each word's pieces, `[W]` for `[T]`, without nan; nan where nothing else is there."""
    numbers = np.asarray(words)
    return np.array([float(defined_mean(values[numbers == word])) for word in dict.fromkeys(numbers.tolist())])


def is_unusual(z: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """Which words are flagged, `[W]`: clearly below what is usual, and neither punctuation nor special tokens."""
    return np.array([may_be_spoken_of(text) for text in texts]) & (np.nan_to_num(z, nan=math.inf) < UNUSUAL)


def may_be_spoken_of(text: str) -> bool:
    """Whether a word is neither punctuation nor a special token."""
    return any(map(str.isalnum, text)) and not looks_special(text)


def most_telling(curve: Curve, flagged: np.ndarray) -> Telling | None:
    """Where R(source) is furthest below what is usual, or lowest where that is not known; None if there is neither.

    Args:
        flagged: `[W]`, from `is_unusual`.
    """
    z = np.where(curve.counts, curve.z, np.nan)
    if np.isnan(z).all():
        return _lowest(curve)
    start = _start_of_rest(flagged, z)
    if start is not None:
        level, usual, spread = (values[start:].mean() for values in (curve.total, curve.mean, curve.deviation))
        said = f"From “{{}}” on the model relies on its own words: R(source) is {level:.2f}"
        return Telling(start, f"{said}, against {usual:.2f} ± {spread:.2f} as usual.", curve.words[start])
    row = int(np.nanargmin(z))
    numbers = (
        f"R(source) is {curve.total[row]:.2f}, against {curve.mean[row]:.2f} ± {curve.deviation[row]:.2f} as usual"
    )
    if flagged[row]:
        said = "At “{}” the model relies more than usual on its own words"
    else:
        said = "Nothing stands out: the source counts as usual throughout. Closest to being low is “{}”"
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
    """Where nothing is known of other translations: a word stands out if the other words do not explain it."""
    if np.count_nonzero(curve.counts) < 2:
        return None
    row = int(np.argmin(np.where(curve.counts, curve.total, np.inf)))
    others = curve.counts.copy()
    others[row] = False
    rest = curve.total[others]
    average = f"{curve.total[row]:.2f}, against {rest.mean():.2f} on average at the other words"
    if stands_out(curve.total[row], rest):
        return Telling(row, f"The source counts least at “{{}}”: R(source) is {average}.", curve.words[row])
    said = f"Nothing stands out: R(source) is lowest at “{{}}”, {average}, no more than words of this sentence differ."
    return Telling(row, said, curve.words[row])


def stands_out(lowest: float, others: np.ndarray) -> bool:
    """Whether the lowest of some values is lower than the spread of the others explains: Grubbs' test, one-sided.

    False where the others are too few to show how much values differ.
    """
    count = len(others)
    if count < _SPREAD:
        return False
    spread = float(np.std(others, ddof=1)) * math.sqrt(1 + 1 / count)
    distance = float(others.mean()) - lowest
    return distance > max(spread * student_quantile(count - 1, 1 - 2 * _LEVEL / (count + 1)), _SEEN)


def _start_of_rest(flagged: np.ndarray, z: np.ndarray) -> int | None:
    """Where the last words start that are all flagged, if they are enough; words that do not count are passed over."""
    places = np.flatnonzero(~np.isnan(z))
    usual = np.flatnonzero(~flagged[places])
    rest = places[usual[-1] + 1 if len(usual) else 0 :]
    return int(rest[0]) if len(rest) >= _LEAST else None
