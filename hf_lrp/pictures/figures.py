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
from hf_lrp.pictures.look import FORMATS, printed_look, save

_DRAW = {
    "curves": draw_curves,
    "growth": draw_growth,
    "checkpoints": draw_checkpoints,
    "steps": draw_steps,
    "timeline": draw_timeline,
}


def draw(chart: Chart) -> Figure:
    """The figure of a chart; pyplot knows nothing of it."""
    chart, families = _with_fonts(chart)
    with printed_look(families):
        return _DRAW[chart.kind](chart)


def write_figure(chart: Chart, folder: Path) -> dict[str, bytes]:
    """Write a chart as PDF, SVG and PNG, and its numbers as CSV, into a folder.

    Returns what was written, by suffix; the same data give the same bytes.
    """
    figure = draw(chart)
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
    )
    (drawn,), properties = drawable([texts])
    known = dict(zip(texts, drawn, strict=True))
    return replace(chart, panels=tuple(_translate(panel, known) for panel in chart.panels)), properties["fontfamily"]


def _translate(panel: Panel, known: dict[str, str]) -> Panel:
    return replace(
        panel,
        label=known[panel.label],
        title=known[panel.title],
        curves=tuple(replace(curve, label=known[curve.label]) for curve in panel.curves),
        named_positions=tuple((position, known[text]) for position, text in panel.named_positions),
    )
