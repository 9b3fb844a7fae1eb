"""How figures look: sizes for print, colours that colour-blind readers and grey printers tell apart, files."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

COLUMN, PAGE = 3.3, 6.9  # widths in inches: one column of a two-column page, and both
FORMATS = ("pdf", "svg", "png")
_DPI = 300
_LINE_SIZE = 6.5  # points, of the text below a figure

# The colours of Okabe and Ito without yellow, which is too light for lines, in an order in which neighbours differ as
# greys, too. Styles and markers have other periods, so that combinations do not repeat soon.
_COLORS = ("#0072B2", "#E69F00", "#000000", "#D55E00", "#56B4E9", "#009E73", "#CC79A7")
_LINES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1.2, 1, 1.2)), (0, (3, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
# From pale to dark, also as greys; the palest part would vanish on paper.
ORDERED_COLORS = ListedColormap(matplotlib.colormaps["viridis_r"](np.linspace(0.12, 1, 256)), name="ordered")
INK, FAINT = "#333333", "#dddddd"

_SETTINGS = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.4,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "text.parse_math": False,  # labels are the users' and drawn as they are
    "axes.unicode_minus": True,
    "pdf.fonttype": 42,  # fonts are embedded whole enough to edit, as publishers ask
    "svg.fonttype": "path",
    "svg.hashsalt": "hf-lrp",  # the same data give the same bytes
}


@contextmanager
def printed_look(families: Sequence[str] = ("DejaVu Sans",)) -> Iterator[None]:
    """Draw and save in the look of all figures, whatever the user's own settings are."""
    with matplotlib.style.context(["default", _SETTINGS | {"font.family": list(families)}]):
        yield


def curve_style(index: int) -> dict[str, Any]:
    """Colour, line style and marker of the curve with this number."""
    return {
        "color": _COLORS[index % len(_COLORS)],
        "linestyle": _LINES[index % len(_LINES)],
        "marker": _MARKERS[index % len(_MARKERS)],
    }


def ordered_style(index: int, count: int) -> dict[str, Any]:
    """The style of a curve in an ordered series: from pale to dark."""
    return curve_style(index) | {"color": ORDERED_COLORS(index / max(count - 1, 1))}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches; pyplot knows nothing of it."""
    return Figure(figsize=(width, height), layout="constrained")


def add_line(figure: Figure, text: str) -> None:
    """A small text below a figure, in as many lines as it needs; the figure gets higher by them."""
    width, height = figure.get_size_inches()
    lines = textwrap.wrap(text, int(width * 72 / (0.53 * _LINE_SIZE)), break_on_hyphens=False)
    figure.set_size_inches(width, height + (len(lines) * 1.25 * _LINE_SIZE + 2) / 72)
    figure.supxlabel("\n".join(lines), x=0.01, ha="left", size=_LINE_SIZE, color=INK)


def letter(axes: Axes, index: int, title: str) -> None:
    """Title a panel with its letter, for references such as "Figure 4 (b)"."""
    axes.set_title(f"({chr(ord('a') + index)}) {title}".rstrip(), loc="left")


def save(figure: Figure, file_format: str) -> bytes:
    """A figure as PDF, SVG or PNG, without the time of writing."""
    metadata: dict[str, Any] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(file_format, {})
    buffer = io.BytesIO()
    with printed_look():
        figure.savefig(buffer, format=file_format, dpi=_DPI, metadata=metadata)
    return buffer.getvalue()
