"""Figures over training steps: quantities with stage lines, and the training timeline."""

from __future__ import annotations

from itertools import cycle, pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from hf_lrp.pictures.by_position import draw_curve, open_panels
from hf_lrp.pictures.charts import Chart, Curve, Stage
from hf_lrp.pictures.look import COLUMN, INK, curve_style, new_figure
from hf_lrp.pictures.update_axes import set_step_axis

_LANE_HEIGHT = 0.78
_ABOVE_TITLE, _ABOVE_LANE = 17.0, 9.5  # points, from the top of the axes
_STAGE_SHADES = ("#e3ecf6", "#f9eedd", "#e6f2e8", "#f4e8f1", "#eeeeee")


def draw_steps(chart: Chart) -> Figure:
    """Each quantity over training steps; stages are shaded and named."""
    figure, panels = open_panels(chart)
    for number, (axes, panel) in enumerate(zip(panels, chart.panels, strict=True)):
        for curve_number, curve in enumerate(panel.curves):
            draw_curve(axes, curve, curve_style(curve_number))
        axes.margins(y=0.12)
        _set_steps(axes, panel.curves[0])
        _mark_stages(axes, chart.stages, above=_ABOVE_TITLE if number < chart.columns else None)
    return figure


def draw_timeline(chart: Chart) -> Figure:
    """One lane per quantity over the same training; stages are shaded and named.

    Numbers stand at the checkpoints where training and its stages begin and end.
    """
    figure = new_figure(COLUMN, len(chart.panels) * _LANE_HEIGHT + 0.5)
    lanes = figure.subplots(len(chart.panels), 1, sharex=True, squeeze=False)[:, 0]
    bounds = [chart.stages[0].start, *(stage.end for stage in chart.stages)]
    for axes, panel in zip(lanes, chart.panels, strict=True):
        curve = panel.curves[0]
        draw_curve(axes, curve, curve_style(0) | {"markersize": 2})
        axes.margins(y=0.4)
        axes.yaxis.set_major_locator(MaxNLocator(3, min_n_ticks=2))
        axes.grid(visible=False, axis="x")
        axes.set_title(panel.label, loc="left", pad=2, size=7)
        _set_steps(axes, curve)
        _mark_stages(axes, chart.stages, above=_ABOVE_LANE if axes is lanes[0] else None)
        _write_values(axes, curve, bounds)
    lanes[-1].set_xlabel(chart.panels[-1].x_label)
    return figure


def _set_steps(axes: Axes, curve: Curve) -> None:
    """The axis from the first to the last checkpoint."""
    steps = curve.x.tolist()
    set_step_axis(axes, steps)
    if steps[0] < steps[-1]:
        scale = axes.xaxis.get_transform()
        first, last = scale.transform(np.array([steps[0], steps[-1]], dtype=float))
        room = 0.03 * (last - first)
        axes.set_xlim(*scale.inverted().transform(np.array([first - room, last + room])))


def _mark_stages(axes: Axes, stages: tuple[Stage, ...], *, above: float | None) -> None:
    """Shade the stages and part them by lines; nothing where there is one only.

    Their names are written so many points above the axes, which is above a panel's title; None: not at all.
    """
    if len(stages) < 2:
        return
    for stage, shade in zip(stages, cycle(_STAGE_SHADES), strict=False):
        axes.axvspan(stage.start, stage.end, color=shade, linewidth=0, zorder=0)
    for before, stage in pairwise(stages):
        if before.end == stage.start:
            axes.axvline(stage.start, color=INK, linestyle=(0, (4, 2)), linewidth=0.7)
    if above is None:
        return
    scale = axes.xaxis.get_transform()
    low, high = scale.transform(np.array(axes.get_xlim()))
    for stage in stages:
        start, end = scale.transform(np.array([stage.start, stage.end], dtype=float))
        fits = (end - start) / (high - low) * 2.6 > 0.07 * len(stage.name)  # inches, in the narrowest figure
        name = stage.name if fits else stage.name.removeprefix("stage ")
        place = ((start + end) / 2 - low) / (high - low)
        axes.annotate(
            name,
            (place, 1),
            (0, above),
            "axes fraction",
            "offset points",
            ha="center",
            va="bottom",
            size=7,
            weight="bold",
        )


def _write_values(axes: Axes, curve: Curve, bounds: list[int]) -> None:
    """Write the values of the checkpoints at some steps on the side of their points that the curve leaves free."""
    defined = np.flatnonzero(np.isfinite(curve.value))
    chosen = [n for n, i in enumerate(defined) if curve.x[i] in bounds or n in (0, len(defined) - 1)]
    outline = [withStroke(linewidth=1.6, foreground="white", alpha=0.85)]
    x, values = curve.x[defined], curve.value[defined]
    for n in chosen:
        value = values[n]
        side = "left" if n == 0 else "right" if n == len(values) - 1 else "center"
        written = f"{value:.3f}" if abs(value) < 10 else f"{value:.3g}"
        beside = [*values[max(n - 1, 0) : n], *values[n + 1 : n + 2]]
        is_below = bool(beside) and np.mean(beside) > value
        aligned, away = ("top", -3.5) if is_below else ("bottom", 3.5)
        look: dict[str, Any] = {"ha": side, "va": aligned, "size": 6.5, "path_effects": outline}
        axes.annotate(written, (x[n], value), (0, away), textcoords="offset points", **look)
