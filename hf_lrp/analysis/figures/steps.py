"""Axes and colours of training steps: linear as in the paper, or logarithmic where checkpoints are dense early on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import Normalize, SymLogNorm
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator


def step_norm(steps: Sequence[int]) -> Normalize:
    """Steps as numbers from 0 to 1, for colours."""
    first, last = min(steps), max(steps)
    if is_logarithmic(steps):
        return SymLogNorm(_first_positive(steps), vmin=first, vmax=last, base=10)
    return Normalize(first, last)


def set_step_axis(axes: Axes, steps: Sequence[int]) -> None:
    """Scale and ticks of an x-axis of steps."""
    if is_logarithmic(steps):
        axes.set_xscale("symlog", linthresh=_first_positive(steps))
    set_step_ticks(axes.xaxis, steps)


def set_step_ticks(axis: Axis, steps: Sequence[int]) -> None:
    """Round steps, such as 500 and 20k, on an axis or a colour bar's axis."""
    if is_logarithmic(steps):
        digits = (1, 2, 5) if max(steps) <= 1000 * _first_positive(steps) else (1,)
        round_steps = [digit * 10**power for power in range(9) for digit in digits]
        ticks = [step for step in (0, *round_steps) if min(steps) <= step <= max(steps)]
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(6, integer=True))
    axis.set_major_formatter(FuncFormatter(short_number))


def is_logarithmic(steps: Sequence[int]) -> bool:
    """Whether the steps span a factor of 10 and lie more evenly on a logarithmic axis: its widest gap is narrower."""
    ordered = np.unique([step for step in steps if step > 0]).astype(float)
    if len(ordered) < 4 or ordered[-1] < 10 * ordered[0]:
        return False
    widest = [np.diff(scaled).max() / (scaled[-1] - scaled[0]) for scaled in (ordered, np.log(ordered))]
    return bool(widest[1] < widest[0])


def short_number(number: float, _: object = None) -> str:
    """A training step as an axis shows it: 500, 20k, 1.5m."""
    for size, unit in ((1e6, "m"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"


def _first_positive(steps: Sequence[int]) -> int:
    return min(step for step in steps if step > 0)
