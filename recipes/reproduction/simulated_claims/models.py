"""Models for which it is known whether C1 to C11 are true: per claim, a function from a world to what rules say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from claims import sizes
from claims.curves import USE, Curves
from claims.data_amount import more_data
from claims.objectives import (
    BASELINE,
    KINDS,
    MINIMUM_RISK,
    SOURCE_DROPOUT,
    TARGET_DROPOUT,
    own_prefixes_entropy,
    own_prefixes_source,
    random_prefixes,
)
from claims.one_model import (
    ends_are_used_most,
    own_prefixes_use_more_source,
    random_prefixes_use_less_source,
    source_drops_at_end,
    source_entropy_rises_and_falls,
    source_falls,
    target_entropy_grows,
)
from claims.verdicts import Claim

from simulated_claims.world import ENTROPY_SCALE, World, by_thirds, falling, flat

# ---- one model


def falls(world: World) -> Claim:
    fall = world.first(0.03, sizes.CONTRIBUTION)
    curve = by_thirds(-fall / 2, -fall, 2, 1)
    return source_falls(world.curves(source_total=world.draw(lambda t, length: 0.85 + curve(t, length))))


def drops_at_end(world: World) -> Claim:
    drop = world.first(0.035, sizes.LAST_DROP)
    last, before = (0.0, drop) if world.case == "part" else (drop, 0.0)  # in part: only a peak before the end
    slope = 0.0 if world.case == "smallest" else 0.0025  # on a flat curve, both statements are at their minimum

    def curve(t: np.ndarray, length: np.ndarray) -> np.ndarray:
        return 0.85 - slope * t - last * (t == length) + before * (t == length - 1)

    return source_drops_at_end(world.curves(source_total=world.draw(curve)))


def uses_ends(world: World) -> Claim:
    tokens = world.lengths - 3
    width = tokens.max()
    place, back = (np.arange(width) + 0.5) / (tokens[:, None] - 3), tokens[:, None] - 1 - np.arange(width)
    use = 1 + world.rest * 0.08 * np.where(back > 2, np.where(place < 0.5, 0.5, -0.5), 0)
    use = use + world.first(0.15, sizes.USE_OF_TOKEN) * (back == 0) + world.rest * 0.15 * ((back == 1) | (back == 2))
    use = use + 0.03 * world.rng.standard_normal((world.seeds, 1, width))
    use = use + 0.25 * world.rng.standard_normal((world.sentences, width))
    use = use + 0.1 * world.rng.standard_normal((world.seeds, world.sentences, width))
    return ends_are_used_most(world.curves(**{USE: np.where(back >= 0, use, np.nan)}))


def rises_and_falls(world: World) -> Claim:
    rise, fall, end = world.first(0.02, sizes.ENTROPY), 0.02 * world.rest, 0.02 * world.rest

    def curve(t: np.ndarray, length: np.ndarray) -> np.ndarray:
        place = (t - 1.5) / (length - 3)
        inner = np.select([place < 1 / 4, place < 1 / 2, place < 5 / 6], [0.0, rise / 2, rise], rise - fall)
        return 2.81 + np.where(t > length - 2, rise / 2 + end, inner)

    return source_entropy_rises_and_falls(world.curves(source_entropy=world.draw(curve, ENTROPY_SCALE)))


def grows(world: World) -> Claim:
    first = world.first(0.3, sizes.TARGET_ENTROPY_GROWTH)
    curve = by_thirds(first, first + 0.3 * world.rest, 3, 1)
    return target_entropy_grows(world.curves(target_entropy=world.draw(lambda t, length: 1.5 + curve(t, length), 4.0)))


def own_prefixes(world: World) -> Claim:
    reference = world.curves(source_total=world.draw(falling()), source_entropy=world.draw(flat(2.81), ENTROPY_SCALE))
    more, less = world.first(0.03, sizes.CONTRIBUTION), -0.015 * world.rest
    lengths = world.translated(shorter=2)
    own = world.curves(
        source_total=world.draw(falling(more), lengths=lengths),
        source_entropy=world.draw(flat(2.81 + less), ENTROPY_SCALE, lengths),
    )
    return own_prefixes_use_more_source(reference, own)


def unrelated_prefixes(world: World) -> Claim:
    reference = world.curves(source_total=world.draw(falling()), source_entropy=world.draw(flat(2.81), ENTROPY_SCALE))
    lengths = world.rng.permutation(world.lengths)[None]
    least = {"part": 0.0, "smallest": sizes.LARGE_DROP}.get(world.case, 0.1 * world.size)  # at the fifth step

    def lower(t: np.ndarray, length: np.ndarray) -> np.ndarray:
        return falling()(t, length) - np.where(t == 5, least, 0.1 * world.size)

    random = world.curves(
        source_total=world.draw(lower, lengths=lengths),
        source_entropy=world.draw(flat(2.81 + 0.02 * world.size), ENTROPY_SCALE, lengths),
    )
    return random_prefixes_use_less_source(reference, random)


# ---- several models

SHORTER = {BASELINE: 0.0, SOURCE_DROPOUT: 0.0, TARGET_DROPOUT: 2.0, MINIMUM_RISK: 2.0}


def objectives_source(world: World) -> Claim:
    level = {MINIMUM_RISK: 0.03 * world.size, TARGET_DROPOUT: _second(world, 0.03, sizes.CONTRIBUTION)}
    level |= {SOURCE_DROPOUT: {"false": 0.03, "part": -0.03}.get(world.case, 0.0)}
    return own_prefixes_source(_kinds(world, "source_total", level))


def objectives_entropy(world: World) -> Claim:
    level = {MINIMUM_RISK: -0.02 * world.size, TARGET_DROPOUT: _second(world, 0.02, sizes.ENTROPY)}
    return own_prefixes_entropy(_kinds(world, "source_entropy", level | {SOURCE_DROPOUT: 0.02 * world.rest}))


def objectives_random(world: World) -> Claim:
    contribution = {MINIMUM_RISK: 0.06 * world.size, TARGET_DROPOUT: _second(world, 0.03, sizes.CONTRIBUTION)}
    totals = _kinds(world, "source_total", contribution | {SOURCE_DROPOUT: -0.03 * world.rest}, own=False)
    entropies = _kinds(world, "source_entropy", {MINIMUM_RISK: -0.02 * world.size}, own=False)
    both = {kind: world.curves(**totals[kind].values, **entropies[kind].values) for kind in KINDS}
    return random_prefixes(both)


def _second(world: World, true: float, smallest: float) -> float:
    return smallest if world.case == "smallest" else true * world.rest


def _kinds(world: World, quantity: str, level: dict[str, float], own: bool = True) -> dict[str, Curves]:
    """The four kinds of models, with own translations or with the same prefixes."""
    found = {}
    for kind in KINDS:
        lengths = world.translated(SHORTER[kind]) if own else None
        base, scale = (falling, 1.0) if quantity == "source_total" else (_entropy_falling, ENTROPY_SCALE)
        found[kind] = world.curves(**{quantity: world.draw(base(level.get(kind, 0.0)), scale, lengths)})
    return found


def _entropy_falling(level: float) -> Callable[..., np.ndarray]:
    return lambda t, length: 2.82 + level + 0.001 * t


def amounts(world: World) -> Claim:
    pairs = (20_000, 40_000, 80_000, 160_000)
    contribution, entropy = world.first(0.04, sizes.CONTRIBUTION), -0.025 * world.rest
    curves: dict[str, dict[int, Curves]] = {"reference": {}, "model": {}}
    for number in pairs:
        decades = np.log10(number / pairs[0])
        for prefix in curves:
            lengths = world.translated(shorter=2 * decades) if prefix == "model" else None
            curves[prefix][number] = world.curves(
                source_total=world.draw(falling(contribution * decades), lengths=lengths),
                source_entropy=world.draw(_entropy_falling(entropy * decades), ENTROPY_SCALE, lengths),
            )
    return more_data(curves)
