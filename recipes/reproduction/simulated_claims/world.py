"""Made-up contributions: curves by step, plus what sentences, seeds, and both together add.

They add to a curve's level, to its slope, and to single steps. Sentences are the same for all models compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from claims.curves import Curves

CASES = {
    "true": "the effect is two to four times the minimum",
    "smallest": "one effect is exactly the minimum, the others as in `true`",
    "absent": "no effect, only noise",
    "false": "as in `true`, the other way round",
    "part": "one statement of the claim is true, the others are not",
    "confounded": "no effect; lengths are mixed, levels depend on them, and one model's translations are shorter",
}
STEPS = 23  # of the target, where lengths are equal
# Standard deviations for R(source); for source entropy half of them.
SEED, SEED_SLOPE = 0.003, 0.003
SENTENCE, SENTENCE_SLOPE = 0.04, 0.03
BOTH, STEP = 0.01, 0.03
ENTROPY_SCALE = 0.5


@dataclass(eq=False)
class World:
    """Sentences with their lengths and peculiarities, and models of several seeds."""

    rng: np.random.Generator
    case: str
    seeds: int = 3
    sentences: int = 300
    seed_deviation: float = SEED
    lengths: np.ndarray = field(init=False)
    peculiar: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        equal = np.full(self.sentences, STEPS)
        self.lengths = self.rng.integers(14, 33, self.sentences) if self.case == "confounded" else equal
        self.peculiar = self.rng.standard_normal((2, self.sentences))

    @property
    def size(self) -> float:
        """Of an effect, as a share of the true one, for cases where all effects go together."""
        return {"true": 1.0, "smallest": 1.0, "false": -1.0, "part": 1.0}.get(self.case, 0.0)

    @property
    def rest(self) -> float:
        """The same for what is not the first statement."""
        return 0.0 if self.case == "part" else self.size

    def first(self, true: float, smallest: float) -> float:
        """The effect of the first statement."""
        return smallest if self.case == "smallest" else true * self.size

    def translated(self, shorter: float = 0.0) -> np.ndarray:
        """Lengths `[seeds, sentences]` of what models write; so much shorter where lengths are to confound."""
        mean = -shorter if self.case == "confounded" else 0.0
        differences = np.rint(self.rng.normal(mean, 2.0, (self.seeds, self.sentences))).astype(int)
        return np.maximum(self.lengths + differences, 8)

    def draw(
        self, curve: Callable[..., np.ndarray], scale: float = 1.0, lengths: np.ndarray | None = None
    ) -> np.ndarray:
        """Values `[seeds, sentences, steps]` of a curve of the step t and the length T, nan after T."""
        length = np.broadcast_to(self.lengths if lengths is None else lengths, (self.seeds, self.sentences))[..., None]
        t = np.arange(1, length.max() + 1)
        slope = t / length - 0.5
        normal = self.rng.standard_normal
        values = curve(t, length) - 0.004 * scale * (self.lengths[:, None] - STEPS)
        of_seeds = normal((2, self.seeds, 1, 1))
        values = values + scale * (self.seed_deviation * of_seeds[0] + SEED_SLOPE * slope * of_seeds[1])
        values += scale * (SENTENCE * self.peculiar[0][:, None] + SENTENCE_SLOPE * slope * self.peculiar[1][:, None])
        values += scale * (BOTH * normal((self.seeds, self.sentences, 1)) + STEP * normal(values.shape))
        return np.where(t <= length, values, np.nan)

    def curves(self, **values: np.ndarray) -> Curves:
        return Curves(tuple(range(self.seeds)), values)


def falling(level: float = 0.0, drop: float = 0.02) -> Callable[..., np.ndarray]:
    """R(source) as in the paper, with a drop at the last step."""
    return lambda t, length: 0.864 + level - 0.0025 * (t - 2) - drop * (t == length)


def flat(level: float) -> Callable[..., np.ndarray]:
    return lambda t, length: level + 0.0 * t * length


def by_thirds(middle: float, late: float, first: int, spared: int) -> Callable[..., np.ndarray]:
    """0 in the early third of the steps from `first` to the last but `spared`, then `middle`, then `late`."""

    def curve(t: np.ndarray, length: np.ndarray) -> np.ndarray:
        place = (t - first + 0.5) / (length - spared - first + 1)
        return np.where(place < 1 / 3, 0.0, np.where(place < 2 / 3, middle, late))

    return curve
