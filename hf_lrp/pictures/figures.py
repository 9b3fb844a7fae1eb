"""Figures of the paper, drawn from plain data (`hf_lrp.pictures.charts`) and written for print."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from hf_lrp.data.files import write_atomically
from hf_lrp.pictures.by_position import draw_checkpoints, draw_curves, draw_growth
from hf_lrp.pictures.by_update import draw_steps, draw_timeline
from hf_lrp.pictures.charts import Chart, Panel, chart_csv
from hf_lrp.pictures.fonts import drawable
from hf_lrp.pictures.look import FORMATS, add_line, printed_look, save

_DRAW = {
    "curves": draw_curves,
    "growth": draw_growth,
    "checkpoints": draw_checkpoints,
    "steps": draw_steps,
    "timeline": draw_timeline,
}


def draw(chart: Chart, *, line: bool = True) -> Figure:
    """The figure of a chart, with the line that says of what, unless it is left out; pyplot knows nothing of it."""
    chart, families = _with_fonts(chart)
    with printed_look(families):
        figure = _DRAW[chart.kind](chart)
        if line and chart.line:
            add_line(figure, chart.line)
        return figure


def write_figure(chart: Chart, folder: Path, *, line: bool = True) -> dict[str, bytes]:
    """Write a chart as PDF, SVG and PNG, and its numbers as CSV, into a folder.

    Returns what was written, by suffix; the same data give the same bytes. `line`: as for `draw`.
    """
    figure = draw(chart, line=line)
    contents = {suffix: save(figure, suffix) for suffix in FORMATS} | {"csv": chart_csv(chart)}
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, content in contents.items():
        write_atomically(folder / f"{chart.stem}.{suffix}", content)
    return contents


def _with_fonts(chart: Chart) -> tuple[Chart, list[str]]:
    """The chart with texts that can be drawn, and font families that have their characters."""
    texts = sorted(
        {text for panel in chart.panels for text in (panel.label, panel.title, *dict(panel.named_positions).values())}
        | {curve.label for panel in chart.panels for curve in panel.curves}
        | {chart.line}
    )
    (drawn,), properties = drawable([texts])
    known = dict(zip(texts, drawn, strict=True))
    panels = tuple(_translate(panel, known) for panel in chart.panels)
    return replace(chart, panels=panels, line=known[chart.line]), properties["fontfamily"]


def _translate(panel: Panel, known: dict[str, str]) -> Panel:
    return replace(
        panel,
        label=known[panel.label],
        title=known[panel.title],
        curves=tuple(replace(curve, label=known[curve.label]) for curve in panel.curves),
        named_positions=tuple((position, known[text]) for position, text in panel.named_positions),
    )
