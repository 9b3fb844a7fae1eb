"""C1 to C7: one kind of model, with reference, model and random prefixes."""

from __future__ import annotations

import numpy as np

from claims import sizes
from claims.curves import (
    USE,
    Curves,
    continued,
    difference,
    from_end,
    mean_where,
    places,
    step_differences,
    thirds,
)
from claims.intervals import CONFIDENCE, Interval, mean_and_half_width, mean_interval
from claims.verdicts import Claim, Statement, at_least, at_most, within


def source_falls(reference: Curves) -> Claim:
    """C1. The last step, the end of the sentence, is C2's."""
    early, _, late = thirds(reference.of("source_total"), first=2, spared=1)
    text = "R(source), early third - late third of the steps before the last"
    statement = Statement(text, mean_interval(early - late), at_least(sizes.CONTRIBUTION))
    return Claim("C1", "R(source) falls as generation goes on", (statement,))


def source_drops_at_end(reference: Curves) -> Claim:
    """C2. A drop from the step before alone might follow a peak at the final punctuation, or continue a steep fall."""
    source = reference.of("source_total")
    last = from_end(source, 0)
    wanted = at_least(sizes.LAST_DROP)
    statements = (
        Statement(
            "R(source) at the last step but one - at the last", mean_interval(from_end(source, 1) - last), wanted
        ),
        Statement(
            "where the trend of the steps before would lead - at the last",
            mean_interval(continued(source, 2) - last),
            wanted,
        ),
    )
    return Claim("C2", "a large drop of R(source) at the last step", statements)


def ends_are_used_most(reference: Curves) -> Claim:
    """C3. Each of the three last tokens by itself, then the rest."""
    use = reference.of(USE)
    rest = mean_where(use, np.isfinite(places(use, first=1, spared=3)))
    names = {0: "the end of the source", 1: "the token before it", 2: "the one before that"}
    statements = [
        Statement(
            f"use of {name} - mean of the others",
            mean_interval(from_end(use, back) - rest),
            at_least(sizes.USE_OF_TOKEN),
        )
        for back, name in names.items()
    ]
    place = places(use, first=1, spared=3)
    trend = mean_where(use, place < 0.5) - mean_where(use, place > 0.5)
    statements.append(
        Statement("of the others: first half - second half", mean_interval(trend), at_least(sizes.USE_TREND))
    )
    return Claim(
        "C3", "the end of the source and the two tokens before it are used most, then early tokens", tuple(statements)
    )


def source_entropy_rises_and_falls(reference: Curves) -> Claim:
    """C4. The last two steps, usually final punctuation and the end, are looked at by themselves."""
    entropy = reference.of("source_entropy")
    place = places(entropy, first=2, spared=2)
    start, late = mean_where(entropy, place < 1 / 4), mean_where(entropy, place > 5 / 6)
    peak = mean_where(entropy, (place >= 1 / 2) & (place <= 5 / 6))  # around 2/3
    before = mean_where(entropy, np.isfinite(place))
    wanted = at_least(sizes.ENTROPY)
    statements = (
        Statement("around 2/3 of the steps - first quarter", mean_interval(peak - start), wanted),
        Statement("around 2/3 of the steps - last sixth", mean_interval(peak - late), wanted),
        Statement(
            "at the last step but one - mean of the steps before", mean_interval(from_end(entropy, 1) - before), wanted
        ),
        Statement("at the last step - mean of the steps before", mean_interval(from_end(entropy, 0) - before), wanted),
    )
    return Claim(
        "C4", "source entropy rises until about 2/3 of the translation, then falls; it is high at the end", statements
    )


def target_entropy_grows(reference: Curves) -> Claim:
    """C5. From the third step on: the entropy of a single token is 0."""
    early, middle, late = thirds(reference.of("target_entropy"), first=3, spared=1)
    wanted = at_least(sizes.TARGET_ENTROPY_GROWTH)
    statements = (
        Statement("target entropy, middle third - early third", mean_interval(middle - early), wanted),
        Statement("target entropy, late third - middle third", mean_interval(late - middle), wanted),
    )
    return Claim("C5", "target entropy grows with the prefix", statements)


def own_prefixes_use_more_source(reference: Curves, own: Curves) -> Claim:
    """C6, on sentences whose translation is as long as the reference."""
    contribution, entropy = (
        mean_interval(difference(own, reference, name)) for name in ("source_total", "source_entropy")
    )
    statements = (
        Statement("R(source), model - reference prefixes", contribution, at_least(sizes.CONTRIBUTION)),
        Statement("source entropy, model - reference prefixes", entropy, at_most(-sizes.ENTROPY)),
    )
    return Claim("C6", "model prefixes: more source, lower source entropy than reference prefixes", statements)


def random_prefixes_use_less_source(reference: Curves, random: Curves) -> Claim:
    """C7, at matched steps."""
    drop, step = _smallest(-step_differences(random, reference, "source_total", equal=False))
    higher = step_differences(random, reference, "source_entropy", equal=False)
    entropy = random.of("source_entropy")
    parts = thirds(entropy, first=2, spared=1)
    mean = sum(parts) / 3
    statements = [
        Statement(
            f"R(source), reference - random prefixes, where it is least (step {step})",
            drop,
            at_least(sizes.LARGE_DROP),
        ),
        Statement(
            "source entropy, random - reference prefixes",
            mean_interval(mean_where(higher, np.arange(higher.shape[-1]) > 0)),
            at_least(sizes.ENTROPY),
        ),
    ]
    statements += [
        Statement(
            f"source entropy with random prefixes, {name} third - mean",
            mean_interval(part - mean),
            within(sizes.CONSTANT_ENTROPY),
        )
        for name, part in zip(("early", "middle", "late"), parts, strict=True)
    ]
    text = "random prefixes: a large drop of R(source) at every position; source entropy high and about constant"
    return Claim("C7", text, tuple(statements))


def _smallest(values: np.ndarray) -> tuple[Interval, int]:
    """The smallest of the means `[P]` from the second step on, as an interval, and its step.

    It is large if all are, each by its own interval; for one to be small, intervals allow for the choice among many.
    Steps that fewer than half of the sentences have are left out.
    """
    counts = np.isfinite(values).sum(axis=1).min(axis=0)
    used = (counts >= counts[1] / 2) & (np.arange(len(counts)) > 0)
    chosen = values[:, :, used]
    means, half = mean_and_half_width(chosen)
    _, wide = mean_and_half_width(chosen, 1 - (1 - CONFIDENCE) / len(means))
    least = int(means.argmin())
    low, high = (means - half).min(), (means + wide).min()
    interval = Interval(means[least], low, high, int(counts[used].min()), len(values))
    return interval, int(np.flatnonzero(used)[least]) + 1


def check_curves(reference: Curves, own: Curves, random: Curves) -> list[Claim]:
    """C1 to C7."""
    return [
        source_falls(reference),
        source_drops_at_end(reference),
        ends_are_used_most(reference),
        source_entropy_rises_and_falls(reference),
        target_entropy_grows(reference),
        own_prefixes_use_more_source(reference, own),
        random_prefixes_use_less_source(reference, random),
    ]
