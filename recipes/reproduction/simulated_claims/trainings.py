"""Trainings for which it is known whether C12 to C15 are true: per claim, a function from a world to what rules say.

Checkpoints are logarithmically spaced. Each differs a little from the course that all follow, in all sentences alike.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from claims import sizes
from claims.training import (
    Training,
    contributions_converge_early,
    early_positions_are_accurate,
    early_positions_change_most,
    training_has_stages,
)
from claims.verdicts import Claim

from simulated_claims.world import ENTROPY_SCALE, World, flat

UPDATES = np.unique(np.rint(np.geomspace(100, 57_000, 20)))
WOBBLE = 0.001  # of R(source) from checkpoint to checkpoint
STRONG_WOBBLE = 0.006  # where there is nothing else to see
TURN, SLOW = 3_000, 20_000  # updates: the ends of the first and of the second stage


def converges(world: World) -> Claim:
    updates = UPDATES
    if world.case == "confounded":  # by checkpoints, most of which are early
        updates = np.concatenate([np.linspace(100, 5_000, 17), UPDATES[-3:]])
    share = updates / updates[-1]
    power = {"true": 6, "smallest": 4}.get(world.case, 2)  # 2: it changes evenly
    left = 1 - share**2 if world.case == "false" else (1 - share) ** power
    if world.case == "smallest":  # so that it is the minimum on the line between checkpoints
        left[1:] *= sizes.DIVERGENCE_LEFT / np.interp(sizes.EARLY, share, left)
    of_seeds = np.exp(0.1 * world.rng.standard_normal((world.seeds, 1, 1)))
    of_seeds = np.where(np.arange(len(updates))[:, None] > 0, of_seeds, 1.0)
    of_sentences = np.exp(0.3 * world.rng.standard_normal((world.seeds, len(updates), world.sentences)) - 0.045)
    training = _training(world, divergence=0.2 * left[:, None] * of_seeds * of_sentences)
    return contributions_converge_early(replace(training, updates=updates))


def stages(world: World) -> Claim:
    first = world.first(0.06, sizes.CONTRIBUTION)
    return training_has_stages(
        _training(
            world,
            source_total=_checkpoints(world, _course(world, first)),
            source_entropy=_checkpoints(world, _course(world, 0.03 * world.rest), ENTROPY_SCALE),
            target_entropy=_checkpoints(world, _course(world, 0.12 * world.rest), 2.0),
        )
    )


def _course(world: World, depth: float) -> np.ndarray:
    """`[checkpoints]`: a fall of 3/2 of the depth, a rise of the depth, and a slow third stage; or only a fall."""
    if world.case == "false":
        return -0.03 * np.log10(UPDATES)
    known = np.log10([UPDATES[0], TURN, SLOW, UPDATES[-1]])
    return np.interp(np.log10(UPDATES), known, depth * np.array([1.5, 0.0, 0.95, 1.0]))


def changes(world: World) -> Claim:
    more = {"true": 1.5, "part": 1.5, "false": 0.6, "smallest": sizes.CHANGE_RATIO}.get(world.case, 1.0)
    most = more if world.case == "part" else 1.0  # early and late positions change alike, the middle less
    values = _checkpoints(world, np.zeros(len(UPDATES)))
    t, length = np.arange(1, values.shape[-1] + 1), world.lengths[:, None]
    place = (t - 1.5) / (length - 2)
    size = np.where(place < 1 / 3, more, np.where(place < 2 / 3, 1.0, most))
    steps = 0.04 * size * world.rng.standard_normal((world.seeds, len(UPDATES), *place.shape)) * (length / 23)
    return early_positions_change_most(
        _training(world, source_total=flat_after_end(values) + np.cumsum(steps, axis=1))
    )


def flat_after_end(values: np.ndarray) -> np.ndarray:
    """0 where there are values, nan elsewhere."""
    return np.where(np.isfinite(values), 0.8, np.nan)


def accuracy(world: World) -> Claim:
    early = world.first(0.15, sizes.ACCURACY)
    course = _course(world, 0.06)
    if world.case == "part":  # early positions are accurate, but R(source) only falls
        course = -0.03 * np.log10(UPDATES)
    if world.case == "false":
        course = _course(World(world.rng, "true", world.seeds, world.sentences), 0.06)
    values = _checkpoints(world, course)
    t, length = np.arange(1, values.shape[-1] + 1), world.lengths[:, None]
    chance = 0.5 - 0.01 * (length - 23) + early * ((t - 0.5) / (length - 2) < 1 / 3)
    chance = chance + 0.02 * world.rng.standard_normal((world.seeds, 1, 1, len(t)))
    correct = np.where(np.isfinite(values), world.rng.random(values.shape) < chance, np.nan)
    return early_positions_are_accurate(_training(world, source_total=values, correct=correct))


def _checkpoints(world: World, course: np.ndarray, scale: float = 1.0) -> np.ndarray:
    """`[seeds, checkpoints, sentences, steps]` that follow a course `[checkpoints]`."""
    wobble = STRONG_WOBBLE if world.case in ("absent", "confounded") else WOBBLE
    between = scale * wobble * world.rng.standard_normal((world.seeds, len(course), 1, 1))
    levels = world.draw(flat(0.8), scale)[:, None]
    noise = 0.01 * scale * world.rng.standard_normal((world.seeds, len(course), world.sentences, 1))
    return levels + course[:, None, None] + between + noise


def _training(world: World, **values: np.ndarray) -> Training:
    """A training of which only some quantities are known."""
    unknown = np.full((world.seeds, len(UPDATES), 1, 1), np.nan)
    names = ("source_total", "source_entropy", "target_entropy", "correct", "divergence")
    return Training(tuple(range(world.seeds)), UPDATES, **{name: values.get(name, unknown) for name in names})
