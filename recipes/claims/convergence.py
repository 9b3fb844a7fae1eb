"""Whether a training has converged, by its loss on held-out pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

END = 0.2  # of the updates
LEAST = 0.01  # of the loss: a fall by less over the end of the training is none to wait for


def has_converged(updates: Sequence[float], losses: Sequence[float]) -> bool:
    """Whether the held-out loss falls by less than 1 % over the last fifth of the updates.

    The fall is that of the straight line through the losses measured there, at least three.
    """
    steps, values = np.asarray(updates, dtype=np.float64), np.asarray(losses, dtype=np.float64)
    last = steps >= (1 - END) * steps[-1]
    if last.sum() < 3:
        raise ValueError(
            f"{last.sum()} losses were measured in the last fifth of the updates; 3 are needed: evaluate more often."
        )
    slope, _ = np.polyfit(steps[last], values[last], 1)
    return bool(-slope * END * steps[-1] < LEAST * values[last].mean())
