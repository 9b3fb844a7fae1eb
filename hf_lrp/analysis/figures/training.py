"""Figures over training steps: quantities with stage lines, and the training timeline."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hf_lrp.analysis.figures.charts import Chart, Curve, Stage
from hf_lrp.analysis.figures.curves import draw_curve
from hf_lrp.analysis.figures.steps import set_step_axis, short_number
from hf_lrp.result.look import INK, PAGE, curve_style, letter, new_figure

_PANEL_HEIGHT = 1.95
_LANE_HEIGHT = 0.66
_STAGE_SHADES = ("#dfe9f4", "#f8ead6", "#e3f0e5", "#f2e3ee", "#ececec")


def draw_steps(chart: Chart) -> Figure:
    """Each quantity over training steps; dashed lines part the stages, whose numbers stand above."""
    rows = -(-len(chart.panels) // chart.columns)
    figure = new_figure(PAGE, rows * _PANEL_HEIGHT + 0.1)
    for number, panel in enumerate(chart.panels):
        axes = figure.add_subplot(rows, chart.columns, number + 1)
        for curve_number, curve in enumerate(panel.curves):
            draw_curve(axes, curve, curve_style(curve_number))
        letter(axes, number, panel.title)
        axes.set_ylabel(panel.label)
        axes.set_xlabel(panel.x_label)
        set_step_axis(axes, panel.curves[0].x.tolist())
        axes.margins(y=0.12)
        for stage in chart.stages[1:]:
            axes.axvline(stage.start, color=INK, linestyle=(0, (4, 2)), linewidth=0.9)
        if len(chart.stages) > 1:
            _number_stages(axes, chart.stages)
    return figure


def draw_timeline(chart: Chart) -> Figure:
    """One lane per quantity over the same training; each stage shaded, with what it changed written into it.

    Stages are equally wide, whatever their number of steps: the first ones are short, and most happens in them.
    """
    figure = new_figure(PAGE, len(chart.panels) * _LANE_HEIGHT + 0.8)
    lanes = figure.subplots(len(chart.panels), 1, sharex=True, squeeze=False)[:, 0]
    bounds = [chart.stages[0].start, *(stage.end for stage in chart.stages)]
    places = np.arange(len(bounds))
    for axes, panel in zip(lanes, chart.panels, strict=True):
        curve = panel.curves[0]
        for place, (stage, shade) in enumerate(zip(chart.stages, cycle(_STAGE_SHADES), strict=False)):
            axes.axvspan(place, place + 1, color=shade, linewidth=0)
            _write_change(axes, curve, stage, (place + 0.5) / len(chart.stages))
        moved = replace(curve, x=np.interp(curve.x, bounds, places))
        draw_curve(axes, moved, curve_style(0) | {"markersize": 2.2, "clip_on": False})
        axes.set_ylabel(panel.label.replace(" ", "\n", 1), rotation=0, ha="right", va="center")
        axes.margins(y=0.12)
        low, high = axes.get_ylim()
        axes.set_yticks([tick for tick in MaxNLocator(3).tick_values(low, high) if low <= tick <= high])
        axes.set_ylim(low, high + 0.5 * (high - low))  # room for what is written above the curve
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(axes is lanes[-1])
        axes.tick_params(axis="x", length=2.5 * (axes is lanes[-1]))
    for place, stage in enumerate(chart.stages):
        above = ((place + 0.5) / len(chart.stages), 1.04)
        lanes[0].text(*above, stage.name, transform=lanes[0].transAxes, ha="center", va="bottom", weight="bold")
    lanes[-1].set_xlim(places[0], places[-1])
    lanes[-1].set_xticks(places, [short_number(bound) for bound in bounds])
    lanes[-1].set_xticks(np.interp(chart.panels[-1].curves[0].x, bounds, places), minor=True)  # the checkpoints
    lanes[-1].set_xlabel(chart.panels[-1].x_label)
    figure.align_ylabels(lanes)
    return figure


def _number_stages(axes: Axes, stages: tuple[Stage, ...]) -> None:
    """Write the number of each stage into the middle of its part of the axis."""
    scale = axes.get_xaxis().get_transform()
    for number, stage in enumerate(stages, 1):
        ends = scale.transform([float(stage.start), float(stage.end)])
        middle = scale.inverted().transform([ends.mean()])[0]
        axes.text(middle, 0.99, str(number), transform=axes.get_xaxis_transform(), ha="center", va="top", color=INK)


def _write_change(axes: Axes, curve: Curve, stage: Stage, middle: float) -> None:
    """Write the values at both ends of a stage, with an arrow up or down between them."""
    inside = np.flatnonzero((curve.x >= stage.start) & (curve.x <= stage.end) & np.isfinite(curve.value))
    if len(inside) < 2:
        return
    first, last = curve.value[inside[[0, -1]]]
    written = [f"{value:.3f}" if abs(value) < 10 else f"{value:.3g}" for value in (first, last)]
    arrow = "→" if written[0] == written[1] else "↗" if last > first else "↘"
    change = f"{written[0]} {arrow} {written[1]}"
    axes.text(middle, 0.97, change, transform=axes.transAxes, ha="center", va="top", size=7)
