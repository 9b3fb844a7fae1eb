"""C12 to C15: checkpoints of a training, one training per seed, on the same sentences with reference prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from claims import sizes
from claims.curves import mean_where, thirds
from claims.intervals import Interval, mean_interval, ratio_values
from claims.verdicts import Claim, Statement, at_least, at_most, within
from hf_lrp.corpus.stages import Stages, find_stages


@dataclass(frozen=True, eq=False)
class Training:
    """Checkpoints of trainings that differ in the seed.

    Attributes:
        seeds: the seeds.
        updates: `[checkpoints]`, the number of updates before each.
        source_total, source_entropy, target_entropy, correct: `[seeds, checkpoints, sentences, steps]`, nan after the
            end of a sentence.
        divergence: `[seeds, checkpoints, sentences]`, KL to the last checkpoint, mean over steps.
    """

    seeds: tuple[int, ...]
    updates: np.ndarray
    source_total: np.ndarray
    source_entropy: np.ndarray
    target_entropy: np.ndarray
    correct: np.ndarray
    divergence: np.ndarray

    def series(self, quantity: str) -> np.ndarray:
        """`[seeds, checkpoints, sentences]`, means over the steps from the second on, the same at all checkpoints."""
        values = getattr(self, quantity)
        return mean_where(values, np.arange(values.shape[-1]) > 0)


def contributions_converge_early(training: Training) -> Claim:
    """C12, in updates: where there is no checkpoint at the point in question, on the line between its neighbours."""
    updates, divergence = training.updates, training.divergence
    point = sizes.EARLY * updates[-1]
    after = int(np.searchsorted(updates, point))
    before = max(after - 1, 0)
    share = (point - updates[before]) / (updates[after] - updates[before]) if after > before else 0.0
    then = (1 - share) * divergence[:, before] + share * divergence[:, after]
    doubt = ""
    if updates[0] > sizes.BEGINNING * updates[-1]:
        doubt = f"the first checkpoint is after {updates[0] / updates[-1]:.0%} of the updates: too late"
    text = f"KL to the last checkpoint after {sizes.EARLY:.0%} of the updates / after {updates[0]:.0f} updates"
    interval = mean_interval(ratio_values(then, divergence[:, 0]))
    statement = Statement(text, interval, at_most(sizes.DIVERGENCE_LEFT), doubt)
    return Claim("C12", "contributions converge early in training", (statement,))


# ---- C13


def training_has_stages(training: Training) -> Claim:
    """C13. A valley of a minimum depth in each series, where `find_stages` sees one, and then slow changes."""
    quantities = (
        ("source_total", "R(source)", sizes.CONTRIBUTION),
        ("source_entropy", "source entropy", sizes.ENTROPY),
        ("target_entropy", "target entropy", sizes.TARGET_ENTROPY),
    )
    statements = [_valley(training, quantity, name, size) for quantity, name, size in quantities]
    statements.append(_third_stage(training))
    return Claim("C13", "R(source) and entropies fall, then rise, then change slowly", tuple(statements))


def _valley(training: Training, quantity: str, name: str, size: float) -> Statement:
    """The depth of the valley: the smaller of the fall before and the rise after."""
    series = training.series(quantity)
    found = _stages(training, quantity)
    depths = np.stack([_depth(values, training.updates, stages) for values, stages in zip(series, found, strict=True)])
    objection = "; ".join(
        f"{_seed_name(training, number)}{stages.reason}"
        for number, stages in enumerate(found)
        if stages.first_end is None
    )
    text = f"{name}, depth of the valley between a fall and a rise"
    return Statement(text, mean_interval(depths), at_least(size), objection=objection)


def _stages(training: Training, quantity: str) -> list[Stages]:
    return [find_stages(training.updates, np.nanmean(values, axis=1)) for values in training.series(quantity)]


def _depth(values: np.ndarray, updates: np.ndarray, stages: Stages) -> np.ndarray:
    """`[sentences]`, from values `[checkpoints, sentences]`: the lower of the two sides minus the bottom.

    Where no turning point stands out from the noise between checkpoints, the deepest valley there is: too deep rather
    than not deep enough, so that it counts against the claim only if it is shallow all the same.
    """
    means = np.nanmean(values, axis=1)
    smooth = np.concatenate([means[:1], np.median([means[:-2], means[1:-1], means[2:]], axis=0), means[-1:]])
    left, right = np.maximum.accumulate(smooth), np.maximum.accumulate(smooth[::-1])[::-1]
    if stages.first_end is None:
        bottom = int(np.argmax(np.minimum(left, right) - smooth))
    else:
        bottom = int(np.flatnonzero(updates == stages.first_end)[0])
    start, end = int(smooth[: bottom + 1].argmax()), bottom + int(smooth[bottom:].argmax())
    return values[start if left[bottom] < right[bottom] else end] - values[bottom]


def _third_stage(training: Training) -> Statement:
    """The rate of R(source) after the end of the rise, as a share of the rate of the rise."""
    series, updates = training.series("source_total"), training.updates
    text = "R(source), rate after the rise as a share of the rate of the rise"
    rates = []
    for number, (values, stages) in enumerate(zip(series, _stages(training, "source_total"), strict=True)):
        if stages.first_end is None or stages.second_end is None:
            nothing = Interval(np.nan, np.nan, np.nan, values.shape[1], len(series))
            return Statement(text, nothing, within(sizes.LATER_RATE), _seed_name(training, number) + stages.reason)
        first, second = (int(np.flatnonzero(updates == end)[0]) for end in (stages.first_end, stages.second_end))
        rise, later = (
            (values[after] - values[before]) / (updates[after] - updates[before])
            for before, after in ((first, second), (second, len(updates) - 1))
        )
        rates.append((later, rise))
    later, rise = (np.stack(side) for side in zip(*rates, strict=True))
    return Statement(text, mean_interval(ratio_values(later, rise)), within(sizes.LATER_RATE))


def _seed_name(training: Training, number: int) -> str:
    return f"seed {training.seeds[number]}: " if len(training.seeds) > 1 else ""


# ---- C14 and C15


def early_positions_change_most(training: Training) -> Claim:
    """C14. Changes add up over checkpoints a doubling of the updates apart, so that saving more often adds none."""
    chosen = doublings(training.updates)
    values = training.source_total[:, chosen]
    changes = sum(np.abs(values[:, later] - values[:, before]) for before, later in pairwise(range(len(chosen))))
    early, middle, late = thirds(np.asarray(changes), first=2, spared=1)
    wanted = at_least(sizes.CHANGE_RATIO)
    statements = (
        Statement(
            "change of R(source), early third / middle third", mean_interval(ratio_values(early, middle)), wanted
        ),
        Statement("change of R(source), early third / late third", mean_interval(ratio_values(early, late)), wanted),
    )
    return Claim("C14", "early target positions change most during training", statements)


def doublings(updates: Sequence[float] | np.ndarray) -> list[int]:
    """The first checkpoint, each next one after at least twice as many updates, and the last."""
    chosen = [0]
    for number, update in enumerate(updates):
        if update >= 2 * max(updates[chosen[-1]], 1):
            chosen.append(number)
    if chosen[-1] != len(updates) - 1:
        chosen[-1 if len(chosen) > 1 else len(chosen) :] = [len(updates) - 1]
    return chosen


def early_positions_are_accurate(training: Training) -> Claim:
    """C15, at the turning point of R(source). The last two steps, final punctuation and the end, are left out."""
    stages = _stages(training, "source_total")
    doubt = "; ".join(
        f"{_seed_name(training, number)}no first stage: {found.reason}"
        for number, found in enumerate(stages)
        if found.first_end is None
    )
    # Without a first stage, the last checkpoint stands in: the doubt keeps it from counting.
    ends = [
        len(training.updates) - 1 if s.first_end is None else int(np.flatnonzero(training.updates == s.first_end)[0])
        for s in stages
    ]
    correct = np.stack([values[end] for values, end in zip(training.correct, ends, strict=True)])
    early, middle, late = thirds(correct, first=1, spared=2)
    wanted = at_least(sizes.ACCURACY)
    statements = (
        Statement(
            "accuracy at the end of the first stage, early third - middle third",
            mean_interval(early - middle),
            wanted,
            doubt,
        ),
        Statement(
            "accuracy at the end of the first stage, early third - late third",
            mean_interval(early - late),
            wanted,
            doubt,
        ),
    )
    return Claim("C15", "at the end of the first stage, early positions have the highest accuracy", statements)


def check_training_curves(training: Training) -> list[Claim]:
    """C12 to C15."""
    return [
        contributions_converge_early(training),
        training_has_stages(training),
        early_positions_change_most(training),
        early_positions_are_accurate(training),
    ]
