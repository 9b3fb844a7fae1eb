"""C11: the amount of training data, as a trend over all amounts and seeds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

import numpy as np

from claims import sizes
from claims.curves import Curves, difference
from claims.intervals import CONFIDENCE, Interval, seed_means, sentence_half_width
from claims.objectives import doubt_of_comparison
from claims.verdicts import Claim, Statement, at_least, at_most
from hf_lrp.results.intervals import student_quantile


def more_data(curves: Mapping[str, Mapping[int, Curves]], unconverged: Collection[int] = ()) -> Claim:
    """C11.

    Args:
        curves: by prefix type, and by the number of training pairs.
        unconverged: numbers of pairs whose models are not.
    """
    statements = []
    for prefix, amounts in curves.items():
        for quantity, name, wanted in (
            ("source_total", "R(source)", at_least(sizes.CONTRIBUTION)),
            ("source_entropy", "source entropy", at_most(-sizes.ENTROPY)),
        ):
            interval = trend(amounts, quantity)
            doubt = doubt_of_comparison(
                interval.seeds, [f"{pairs:,} pairs" for pairs in amounts if pairs in unconverged]
            )
            statements.append(Statement(f"{name} per tenfold data, {prefix} prefixes", interval, wanted, doubt))
    return Claim("C11", "more data: more source, lower source entropy", tuple(statements))


def trend(amounts: Mapping[int, Curves], quantity: str) -> Interval:
    """The slope of a quantity over log10 of the number of pairs, with an interval over models and over sentences.

    The line is the same for all seeds, with a level for each; how far models are from it tells how much models differ
    that were trained alike. From one amount to the next, only sentences count whose two translations are equally long.
    """
    pairs = sorted(amounts)
    seeds = tuple(seed for seed in amounts[pairs[0]].seeds if all(seed in amounts[n].seeds for n in pairs))
    same = {n: Curves(seeds, {quantity: amounts[n].of(quantity, seeds)}) for n in pairs}
    rises = np.stack([difference(same[more], same[less], quantity) for less, more in pairwise(pairs)], axis=2)
    means, influence = seed_means(rises)  # [seeds, amounts - 1] and [seeds, sentences, amounts - 1]
    away = np.log10(pairs) - np.mean(np.log10(pairs))
    squares = (away**2).sum()
    # A slope is a sum of the levels' distances from the mean, and each level a sum of the rises before it.
    weights = np.cumsum(away[::-1])[::-1][1:] / squares
    slope = float((means @ weights).mean())
    levels = np.cumsum(np.concatenate([np.zeros((len(seeds), 1)), means], axis=1), axis=1)
    residuals = levels - levels.mean(axis=1, keepdims=True) - slope * away
    freedom = max(residuals.size - len(seeds) - 1, 1)
    deviation = np.sqrt((residuals**2).sum() / freedom / (len(seeds) * squares))
    of_sentences = sentence_half_width(
        (influence @ weights).mean(axis=0)[:, None], np.isfinite(rises).any(axis=(0, 2)).sum(keepdims=True), CONFIDENCE
    )
    half = float(np.hypot(student_quantile(freedom, CONFIDENCE) * deviation, of_sentences[0]))
    return Interval(slope, slope - half, slope + half, int(np.isfinite(rises).sum(axis=1).min()), len(seeds))
