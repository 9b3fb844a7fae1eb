"""Where pictures are drawn: a new figure that notebooks show, a given figure or sub-figure, or given axes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure


class NotebookFigure(Figure):
    """A figure that a notebook shows without `%matplotlib inline` and that pyplot knows nothing of."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", bbox_inches="tight")
        return buffer.getvalue()


def open_figure(
    figure: Figure | SubFigure | None,
    ax: Axes | None,
    figsize: tuple[float, float] | None,
    fitting: tuple[float, float],
) -> Figure | SubFigure:
    """The figure to draw into: the given one, that of the axes, or a new one of the wanted or of a fitting size."""
    if sum(given is not None for given in (figure, ax, figsize)) > 1:
        raise ValueError("Give one of figure, ax and figsize: a given figure has its size already.")
    if ax is not None:
        return ax.figure
    return NotebookFigure(figsize=figsize or fitting, layout="constrained") if figure is None else figure


def open_columns(figure: Figure | SubFigure, ax: Axes | None, widths: Sequence[float]) -> list[Axes]:
    """Axes side by side, which fill the figure, or the place of the given axes."""
    if ax is None:
        return list(figure.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0])
    ax.set_axis_off()
    gap = 0.03
    unit = (1 - gap * (len(widths) - 1)) / sum(widths)
    left = 0.0
    columns = []
    for width in widths:
        columns.append(ax.inset_axes((left, 0.0, width * unit, 1.0)))
        left += width * unit + gap
    return columns


def set_title(figure: Figure | SubFigure, ax: Axes | None, title: str, **text: Any) -> None:
    """Write a title over the figure, or over the given axes."""
    if ax is None:
        figure.suptitle(title, **text)
    else:
        ax.set_title(title, **text)
