"""Whether trainings have come so far that models can be compared, by what was measured on held-out pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

END = 0.2  # of the updates
FEWEST = 3  # losses
LEAST = 0.01  # of the loss: a fall by less over the end of the training is none to wait for
LOWERED = 0.02  # of the risk: the smallest fall that counts


def has_converged(updates: Sequence[float], losses: Sequence[float]) -> bool:
    """Whether the held-out loss falls by less than 1 % over the last fifth of the updates.

    The fall is that of the straight line through the losses measured there, or through the last three.
    """
    steps, values = np.asarray(updates, dtype=np.float64), np.asarray(losses, dtype=np.float64)
    if len(steps) < FEWEST:
        raise ValueError(f"{len(steps)} held-out losses were measured; {FEWEST} are needed: evaluate more often.")
    number = max(FEWEST, int((steps >= (1 - END) * steps[-1]).sum()))
    slope, _ = np.polyfit(steps[-number:], values[-number:], 1)
    return bool(-slope * END * steps[-1] < LEAST * np.abs(values[-number:]).mean())


def has_lowered_risk(risks: Sequence[float]) -> bool:
    """Whether minimum risk training lowered the held-out expected risk by 2 %, from its first to its last evaluation.

    The paper trains it for one epoch, not until it converges.
    """
    return len(risks) > 1 and risks[0] - risks[-1] >= LOWERED * abs(risks[0])
