"""Figures by position: curves with bands, side by side; with arrows of growth; checkpoints coloured by their step."""

from __future__ import annotations

import textwrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hf_lrp.pictures.charts import Chart, Curve, Panel
from hf_lrp.pictures.look import (
    COLUMN,
    INK,
    ORDERED_COLORS,
    PAGE,
    curve_style,
    letter,
    new_figure,
    ordered_style,
)
from hf_lrp.pictures.update_axes import set_step_ticks, step_norm

_COLUMN_HEIGHT, _PAGE_HEIGHT = 1.65, 1.95  # inches of a panel
_LABEL = 24  # characters of a line beside a panel
EDGE = "_edge"  # what the lines around bands are called; legends leave it out
_ARROWS = 5  # places along a panel where growth is marked
_ARROW = {"arrowstyle": "-|>", "color": INK, "linewidth": 0.9, "shrinkA": 1.5, "shrinkB": 1.5, "mutation_scale": 7}
_SHORTEST_ARROW = 7.0  # points


def draw_curves(chart: Chart) -> Figure:
    """Each panel with its curves, told apart by colour, line style and marker; intervals as bands."""
    figure, panels = _panels(chart)
    for axes, panel in zip(panels, chart.panels, strict=True):
        for number, curve in enumerate(panel.curves):
            draw_curve(axes, curve, curve_style(_number_of(chart, curve, number)))
    _add_legend(figure, chart)
    return figure


def draw_growth(chart: Chart) -> Figure:
    """Curves from pale to dark in the order given, with arrows from the first to the last."""
    figure, panels = _panels(chart)
    for axes, panel in zip(panels, chart.panels, strict=True):
        for number, curve in enumerate(panel.curves):
            draw_curve(axes, curve, ordered_style(number, len(panel.curves)))
    _add_legend(figure, chart)
    figure.draw_without_rendering()  # arrows need the final scales
    for axes, panel in zip(panels, chart.panels, strict=True):
        _add_arrows(axes, panel.curves[0], panel.curves[-1])
    return figure


def draw_checkpoints(chart: Chart) -> Figure:
    """One curve per checkpoint, coloured by its training step; the first and the last have markers."""
    figure, panels = _panels(chart)
    steps = [curve.step or 0 for curve in chart.panels[0].curves]
    norm = step_norm(steps)
    for axes, panel in zip(panels, chart.panels, strict=True):
        shown = [number for number, curve in enumerate(panel.curves) if np.isfinite(curve.value).any()]
        markers = dict(zip(shown[:1] + shown[1:][-1:], "os", strict=False))
        for number, curve in enumerate(panel.curves):
            marker = markers.get(number, "")
            color = ORDERED_COLORS(norm(steps[number]))
            if marker:
                draw_curve(axes, curve, {"color": color, "marker": marker, "linewidth": 1.2})
            else:
                axes.plot(curve.x, curve.value, color=color, linewidth=0.9)
    bar = figure.colorbar(ScalarMappable(norm, ORDERED_COLORS), ax=panels, pad=0.02, aspect=25)
    bar.set_label("training step")
    set_step_ticks(bar.ax.yaxis, steps)
    bar.outline.set_visible(False)
    for stage in chart.stages[1:]:
        bar.ax.axhline(stage.start, color="white", linewidth=1.2)
        bar.ax.axhline(stage.start, color=INK, linewidth=0.6)
    return figure


def draw_curve(axes: Axes, curve: Curve, style: dict) -> None:
    """A line, and its interval as a band of the same colour whose edges are seen where bands overlap."""
    axes.fill_between(curve.x, curve.low, curve.high, color=style["color"], alpha=0.16, linewidth=0)
    for edge in (curve.low, curve.high):
        axes.plot(curve.x, edge, color=style["color"], alpha=0.55, linewidth=0.4, label=EDGE)
    axes.plot(curve.x, curve.value, **style)


def open_panels(chart: Chart, extra: float = 0.0) -> tuple[Figure, list[Axes]]:
    """A figure with labelled, empty panels, as wide as one column of a page or as both; `extra` inches of height.

    Panels with the same x-axis below each other name it once.
    """
    rows = -(-len(chart.panels) // chart.columns)
    shared = len({panel.x_label for panel in chart.panels}) == 1
    width, height = (COLUMN, _COLUMN_HEIGHT) if chart.columns == 1 else (PAGE, _PAGE_HEIGHT)
    figure = new_figure(width, rows * (height - 0.2 * shared) + 0.3 + extra)
    panels = list(figure.subplots(rows, chart.columns, squeeze=False, sharex="col" if shared else "none").flat)
    for axes in panels[len(chart.panels) :]:
        axes.remove()
    for number, (axes, panel) in enumerate(zip(panels, chart.panels, strict=False)):
        is_lowest = number + chart.columns >= len(chart.panels)
        if is_lowest or not shared:
            axes.set_xlabel(panel.x_label)
            axes.tick_params(axis="x", labelbottom=True)
        axes.set_ylabel(textwrap.fill(panel.label, _LABEL))
        if len(chart.panels) > 1:
            letter(axes, number, "" if panel.title == panel.label else panel.title)
        if panel.is_difference:
            axes.axhline(0, color=INK, linewidth=0.8)
    figure.align_ylabels(panels[: len(chart.panels)])
    return figure, panels[: len(chart.panels)]


def _panels(chart: Chart) -> tuple[Figure, list[Axes]]:
    """Panels by position."""
    has_legend = chart.kind != "checkpoints" and len(chart.panels[0].curves) > 1
    figure, panels = open_panels(chart, 0.16 * _legend_rows(chart) + 0.05 if has_legend else 0.0)
    for axes, panel in zip(panels, chart.panels, strict=True):
        _set_positions(axes, panel)
    return figure, panels


def _set_positions(axes: Axes, panel: Panel) -> None:
    """Ticks at round positions, and the text of tokens that stand at a position in all sentences."""
    x = np.concatenate([curve.x for curve in panel.curves])
    if not np.all(x == np.round(x)):  # relative positions
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1], ["0", "0.2", "0.4", "0.6", "0.8", "1"])
        return
    first, last = x.min(), x.max()
    every = next(size for size in (1, 2, 5, 10, 20, 50, 100, 1000) if (last - first) / size <= 8)
    named = dict(panel.named_positions)
    ticks = [tick for tick in np.arange(first, last + 1) if tick % every == 0]
    if ticks and ticks[0] - first >= 0.8 * every:
        ticks.insert(0, first)
    free = [tick for tick in ticks if all(abs(tick - place) > (last - first) / 14 for place in named)]
    axes.set_xticks([*free, *named], [f"{tick:g}" for tick in free] + list(named.values()))
    axes.set_xlim(first - 0.03 * (last - first) - 0.1, last + 0.03 * (last - first) + 0.1)


def _number_of(chart: Chart, curve: Curve, number: int) -> int:
    """The number by which a curve is styled: the same label looks the same in all panels."""
    labels = [other.label for other in chart.panels[0].curves]
    return labels.index(curve.label) if curve.label in labels else number


def _legend_columns(chart: Chart) -> int:
    width = max(len(curve.label) for curve in chart.panels[0].curves) * 0.052 + 0.62  # inches of one entry
    return max(1, int((COLUMN if chart.columns == 1 else PAGE) / width))


def _legend_rows(chart: Chart) -> int:
    return -(-len(chart.panels[0].curves) // _legend_columns(chart))


def _add_legend(figure: Figure, chart: Chart) -> None:
    """One legend above all panels, where there is more than one curve."""
    curves = chart.panels[0].curves
    if len(curves) < 2:
        return
    ordered = chart.kind == "growth"
    styles = [ordered_style(n, len(curves)) if ordered else curve_style(n) for n in range(len(curves))]
    handles = [Line2D([], [], **style) for style in styles]
    figure.legend(handles, [curve.label for curve in curves], loc="outside upper center", ncols=_legend_columns(chart))


def _add_arrows(axes: Axes, first: Curve, last: Curve) -> None:
    """Arrows from the first to the last curve at a few positions.

    There are none where the intervals of both overlap, nor where an arrow would be too short to see.
    """
    defined = np.flatnonzero(np.isfinite(first.value) & np.isfinite(last.value))
    chosen = defined[np.unique(np.linspace(0, len(defined) - 1, _ARROWS + 2).round().astype(int))[1:-1]]
    for i in chosen:
        if first.low[i] <= last.high[i] and last.low[i] <= first.high[i]:
            continue
        start, end = (first.x[i], first.value[i]), (last.x[i], last.value[i])
        pixels = axes.transData.transform([start, end])
        if abs(pixels[1, 1] - pixels[0, 1]) * 72 / axes.figure.dpi < _SHORTEST_ARROW:
            continue
        axes.annotate("", xy=end, xytext=start, arrowprops=_ARROW)
