"""Charts, what a figure shows, as plain data: curves with intervals, in panels. Also their CSV."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hf_lrp.data.tables import csv_table
from hf_lrp.results.intervals import CONFIDENCE, say_if_few

# How a chart is drawn: curves told apart by colour, line style and marker; runs from the least to the most data with
# arrows; checkpoints coloured by their step; quantities over training steps; all of them in one picture.
Kind = Literal["curves", "growth", "checkpoints", "steps", "timeline"]


def describe_bands(sentences: int) -> str:
    """Description of the bands of a figure, for the line below it."""
    return f"Bands: {CONFIDENCE:.0%} bootstrap intervals over sentences. {say_if_few(sentences)}".rstrip()


@dataclass(frozen=True)
class Curve:
    """One line of a panel: all arrays are [P], nan where nothing is defined."""

    label: str
    x: np.ndarray
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    step: int | None = None  # the training step of a checkpoint's curve


@dataclass(frozen=True)
class Panel:
    """One pair of axes: `name` is the quantity as the data files call it, `label` as the axis does."""

    name: str
    label: str
    x_label: str
    curves: tuple[Curve, ...]
    title: str = ""
    is_difference: bool = False  # then 0 is marked
    named_positions: tuple[tuple[float, str], ...] = ()  # where all sentences have the same token: its text


@dataclass(frozen=True)
class Stage:
    """A stage of training, from one checkpoint's step to another's."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Chart:
    """A figure: `stem` names its files, `columns` says how many panels stand side by side.

    `caption` says what it shows, and `line`, drawn below the panels, of what: model, number of sentences, bands.
    """

    stem: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int = 1
    kind: Kind = "curves"
    stages: tuple[Stage, ...] = ()
    line: str = ""


_COLUMNS = ("quantity", "panel", "curve", "step", "x", "value", "low", "high")


def chart_csv(chart: Chart) -> bytes:
    """The numbers of a figure, one point per row; empty where a value is not defined."""
    return csv_table(_COLUMNS + ("stage",) * bool(chart.stages), _rows(chart))


def _rows(chart: Chart) -> Iterator[list[Any]]:
    for panel in chart.panels:
        for curve in panel.curves:
            for x, *numbers in zip(curve.x, curve.value, curve.low, curve.high, strict=True):
                row = [panel.name, panel.title, curve.label, curve.step, x, *numbers]
                if chart.stages:
                    row.append(stage_of(chart.stages, x if curve.step is None else curve.step))
                yield row


def stage_of(stages: tuple[Stage, ...], step: float) -> str:
    """The name of the stage that a step belongs to; where one ends and another begins, the earlier one."""
    return next((stage.name for stage in stages if stage.start <= step <= stage.end), "")
