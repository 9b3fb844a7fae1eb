"""Axes and colours of training steps: logarithmic where they span a factor of 5, else linear."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import Normalize, SymLogNorm
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

_BEFORE_FIRST = 0.3  # decades that a logarithmic axis has from step 0 to the first one


def step_norm(steps: Sequence[int]) -> Normalize:
    """Steps as numbers from 0 to 1, for colours."""
    first, last = min(steps), max(steps)
    if is_logarithmic(steps):
        return SymLogNorm(_first_positive(steps), linscale=_BEFORE_FIRST, vmin=first, vmax=last, base=10)
    return Normalize(first, last)


def set_step_axis(axes: Axes, steps: Sequence[int]) -> None:
    """Scale and ticks of an x-axis of steps."""
    if is_logarithmic(steps):
        axes.set_xscale("symlog", linthresh=_first_positive(steps), linscale=_BEFORE_FIRST)
    set_step_ticks(axes.xaxis, steps)


def set_step_ticks(axis: Axis, steps: Sequence[int]) -> None:
    """Round steps, such as 500 and 20k, on an axis or a colour bar's axis."""
    if is_logarithmic(steps):
        digits = (1, 2, 5) if max(steps) <= 1000 * _first_positive(steps) else (1,)
        round_steps = [digit * 10**power for power in range(9) for digit in digits]
        ticks = [0] * (min(steps) == 0) + [
            step for step in round_steps if _first_positive(steps) <= step <= max(steps)
        ]
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(6, integer=True))
    axis.set_major_formatter(FuncFormatter(short_number))


def is_logarithmic(steps: Sequence[int]) -> bool:
    """Whether the steps span a factor of 5 or more: most happens early in training."""
    positive = [step for step in steps if step > 0]
    return len(positive) > 2 and max(positive) >= 5 * min(positive)


def short_number(number: float, _: object = None) -> str:
    """A training step as an axis shows it: 500, 20k, 1.5m."""
    for size, unit in ((1e6, "m"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"


def _first_positive(steps: Sequence[int]) -> int:
    return min(step for step in steps if step > 0)
