"""Places for pictures: a new figure that notebooks show, or given axes."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Transform

_CHARACTER = 0.56  # of the size of text: about the width of a character


class NotebookFigure(Figure):
    """A figure that a notebook shows without `%matplotlib inline` and that pyplot knows nothing of."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=160)
        return buffer.getvalue()


@dataclass(frozen=True)
class Place:
    """Where to draw, and what the caller wants about it: the options of `Plotted.plot`."""

    ax: Axes | None = None
    figsize: tuple[float, float] | None = None
    width: float | None = None
    cmap: str | None = None
    title: str | None = None

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.ax, self.figsize, self.width)) > 1:
            raise ValueError("Give one of ax, figsize and width: given axes have their size already.")
        if self.width is not None and not 0 < self.width < 1000:
            raise ValueError(f"width is in inches, and a column of a paper has 3.3; got {self.width}.")

    @property
    def is_new(self) -> bool:
        """Whether a figure is made for the picture, so that its height can be what fits."""
        return self.ax is None and self.figsize is None

    def open(self) -> Canvas:
        """The canvas; a new figure has yet to get its size, unless one is wanted."""
        if self.ax is not None:
            return Canvas(self.ax)
        return Canvas(NotebookFigure(figsize=self.figsize or (self.width or 1.0, 1.0)))


class Canvas:
    """A figure or axes, on which places are given in inches from the upper left corner."""

    def __init__(self, on: Figure | Axes) -> None:
        self.on = on
        self._title: Text | None = None
        if isinstance(on, Axes):
            on.set_axis_off()
        self.measure()

    @property
    def figure(self) -> Figure:
        """The figure that the caller gets; of axes, the whole figure."""
        return self._root if isinstance(self.on, Axes) else self.on

    def measure(self) -> None:
        """Set `width` and `height`, in inches."""
        if isinstance(self.on, Axes) and self._root.get_layout_engine() is not None:
            self._root.draw_without_rendering()  # axes get their place when the figure is laid out
        box = self.on.get_window_extent() if isinstance(self.on, Axes) else self.on.bbox
        self.width, self.height = box.width / self._root.dpi, box.height / self._root.dpi

    def resize(self, width: float, height: float) -> None:
        """Give a new figure its size."""
        self._root.set_size_inches(width, height)
        self.measure()

    def set_title(self, title: str, **text: Any) -> float:
        """Write a title above everything, wrapped; returns the height that it takes of the canvas.

        On a figure it is put into its place once the size is known: call `put_title_on_top` then.
        """
        characters = max(12, int(self.width * 72 / (text["fontsize"] * _CHARACTER)))
        lines = [part for line in title.split("\n") for part in textwrap.wrap(line, characters)]
        if isinstance(self.on, Axes):
            self.on.set_title("\n".join(lines), **text)
            self.measure()
            return 0.0
        if lines:
            self._title = self.on.suptitle("\n".join(lines), y=1.0, va="top", linespacing=1.15, **text)
        return len(lines) * text["fontsize"] * 1.25 / 72

    def put_title_on_top(self, margin: float) -> None:
        """Leave a margin above the title of a figure."""
        if self._title is not None:
            self._title.set_y(1 - margin / self.height)

    def add_axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes at a place in inches."""
        box = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        return self.on.inset_axes(box) if isinstance(self.on, Axes) else self.on.add_axes(box)

    def write(self, left: float, top: float, text: str, **look: Any) -> None:
        """Write at a place in inches."""
        self.on.text(*self.fraction(left, top), text, transform=self.transform, **look)

    def fraction(self, left: float, top: float) -> tuple[float, float]:
        """A place as fractions of the canvas from its lower left corner."""
        return left / self.width, 1 - top / self.height

    @property
    def transform(self) -> Transform:
        """From fractions of the canvas to the screen."""
        return self.on.transAxes if isinstance(self.on, Axes) else self.on.transFigure

    def widest(self, texts: Iterable[str], **look: Any) -> float:
        """The width in inches of the widest of some texts."""
        probe = self._root.text(0, 0, "", **look)
        widths = []
        for text in dict.fromkeys(texts):
            probe.set_text(text)
            widths.append(probe.get_window_extent().width / self._root.dpi)
        probe.remove()
        return max(widths, default=0.0)

    @property
    def _root(self) -> Figure:
        found = self.on.get_figure(root=True)
        assert isinstance(found, Figure)
        return found
