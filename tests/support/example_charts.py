"""Made-up charts of every kind, for tests of the drawing."""

from typing import Any

import numpy as np

from hf_lrp.pictures.charts import Chart, Curve, Panel, Stage

STEPS = np.array([0, 100, 300, 1000, 3000, 9000])
STAGES = (Stage("stage 1", 0, 300), Stage("stage 2", 300, 3000), Stage("stage 3", 3000, 9000))


def make_curve(label: str, x: Any, level: float = 0.5, *, width: float = 0.01, step: int | None = None) -> Curve:
    """A falling line without a value at its first point."""
    x = np.asarray(x, dtype=float)
    value = level - 0.02 * np.arange(len(x))
    value[0] = np.nan
    return Curve(label, x, value, value - width, value + width, step)


def make_chart(kind: Any = "curves", *, labels: tuple[str, ...] = ("a", "b", "c"), **changes: Any) -> Chart:
    """Two panels of a chart of this kind."""
    if kind in ("steps", "timeline"):
        curves: tuple[Curve, ...] = (make_curve("m", STEPS),)
    elif kind == "checkpoints":
        curves = tuple(make_curve(f"step {s}", range(1, 8), 0.5 + 0.1 * n, step=int(s)) for n, s in enumerate(STEPS))
    else:
        curves = tuple(make_curve(label, range(1, 8), 0.5 + 0.1 * n) for n, label in enumerate(labels))
    panels = tuple(
        Panel(name, name.replace("_", " "), "position", curves, title=name)
        for name in ("source_total", "source_entropy")
    )
    stages = STAGES if kind in ("steps", "timeline", "checkpoints") else ()
    return Chart(f"1-{kind}", "What it shows.", panels, **({"columns": 2, "kind": kind, "stages": stages} | changes))
