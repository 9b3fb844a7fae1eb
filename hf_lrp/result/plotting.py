"""Heat maps of source and prefix shares beside the curve of R_t(source): of one result, or of a difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage

from hf_lrp.data.visible import visible
from hf_lrp.result.fonts import drawable
from hf_lrp.result.panels import open_columns, open_figure, set_title
from hf_lrp.result.quantities import describe_mean

if TYPE_CHECKING:
    from hf_lrp.result.comparison import Comparison
    from hf_lrp.result.contributions import Contributions

_NOT_WRITTEN = "#e4e4e4"  # cells of target tokens after the step; no shade of the colour maps
_CURVES = ("#b8500c", "#1d5fb8")
_WIDEST = 24  # inches; with more columns than fit, only some have labels
_COLUMNS_WITH_NUMBERS = 26  # with more columns the cells are too small to write shares into


@dataclass(frozen=True)
class _Sheet:
    """What is drawn: shares of each step (row), their labels, and the curves beside them, by name `[T]`."""

    source: np.ndarray
    target: np.ma.MaskedArray
    columns: tuple[Sequence[str], Sequence[str]]
    rows: Sequence[str]
    steps: Sequence[int]
    curves: dict[str, np.ndarray]
    limit: float
    level: str
    title: str
    scale: str

    @property
    def signed(self) -> bool:
        return bool(min(self.source.min(), self.target.min() if self.target.count() else 0.0) < 0)


def plot_contributions(
    contributions: Contributions,
    figure: Figure | SubFigure | None = None,
    *,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    cmap: str | None = None,
    title: str | None = None,
) -> Figure | SubFigure:
    """Draw `Contributions` into an empty figure, sub-figure or axes, by default a new figure of a fitting size.

    Rows are steps, labelled with the predicted token; columns are source tokens and, beside them, prefix
    tokens. Both share one colour scale, so they can be compared; it is symmetric where shares are negative.
    Tokens are drawn literally, with whatever installed fonts have their characters.
    """
    c = contributions
    about = f"{visible(c.rule)}, prefix: {c.prefix}, predicted: {c.predict}"
    sheet = _Sheet(
        source=c.source.double().numpy(),
        target=np.ma.masked_array(c.target.double().numpy(), ~c.known.numpy()),
        columns=c.labels[:2],
        rows=c.row_labels,
        steps=c.steps,
        curves={"R(source)": c.source_total.double().numpy()},
        limit=c.color_limit,
        level=c.level,
        title=title or f"{visible(c.model)}: {describe_mean(c.mean()['source_total'])}\n{about}",
        scale="contribution",
    )
    return _draw(sheet, figure, ax, figsize, cmap)


def plot_difference(
    comparison: Comparison,
    figure: Figure | SubFigure | None = None,
    *,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    cmap: str | None = None,
    title: str | None = None,
) -> Figure | SubFigure:
    """Draw second - first, share by share, of two results with the same target; else as `plot_contributions`."""
    first, second = comparison.first, comparison.second
    source, target = comparison.source.double().numpy(), comparison.target.double().numpy()
    known = first.known.numpy()
    sizes = np.abs(np.concatenate([source.ravel(), target[known]]))
    sheet = _Sheet(
        source=source,
        target=np.ma.masked_array(target, ~known),
        columns=first.labels[:2],
        rows=comparison.row_labels,
        steps=first.steps,
        curves={
            name: c.source_total.double().numpy() for name, c in zip(comparison.names, (first, second), strict=True)
        },
        limit=float(np.quantile(sizes, 0.98)) or 1.0,
        level=first.level,
        title=title or comparison.title,
        scale="difference of contributions",
    )
    return _draw(sheet, figure, ax, figsize, cmap)


def _draw(
    sheet: _Sheet,
    figure: Figure | SubFigure | None,
    ax: Axes | None,
    figsize: tuple[float, float] | None,
    cmap: str | None,
) -> Figure | SubFigure:
    drawn, text = drawable([*sheet.columns, sheet.rows, (sheet.title,), list(sheet.curves)])
    sources, targets, rows, (title,), names = drawn
    columns = len(sources) + len(targets)
    cell = float(np.clip(9 / columns, min(0.15, _WIDEST / columns), 0.5))  # inches
    text["fontsize"] = float(np.clip(cell * 72 * 0.6, 6.5, 10))
    figure = open_figure(figure, ax, figsize, _fitting_size(sources, targets, rows, cell))
    widths = [len(sources), max(len(targets), 0.1 * columns), max(3.0, 0.12 * columns)]
    left, right, beside, *bar = open_columns(figure, ax, widths if ax is None else [*widths, 0.02 * columns])
    lowest, colors = (-sheet.limit, "PuOr_r") if sheet.signed else (0.0, "Blues")
    norm = Normalize(lowest, sheet.limit)
    for axes, shares, tokens, side in (
        (left, sheet.source, sources, "source"),
        (right, sheet.target, targets, "prefix"),
    ):
        image = axes.imshow(shares, norm=norm, cmap=cmap or colors, aspect="auto", interpolation="nearest")
        _label_columns(axes, tokens, f"{side} {sheet.level}s", text, every=int(np.ceil(0.15 / cell)))
        if columns <= _COLUMNS_WITH_NUMBERS:
            _write_shares(axes, shares, sheet.limit, text["fontsize"] * 0.75)
    left.set_yticks(range(len(rows)), rows, **text)
    left.set_ylabel("predicted", fontsize=text["fontsize"])
    right.set_yticks([])
    right.set_facecolor(_NOT_WRITTEN)
    _draw_curves(beside, dict(zip(names, sheet.curves.values(), strict=True)), sheet.steps, text)
    _draw_color_bar(figure, image, {"cax": bar[0]} if bar else {"ax": beside}, sheet)
    set_title(figure, ax, title, **(text | {"fontsize": text["fontsize"] + 1}))
    return figure


def _fitting_size(
    sources: Sequence[str], targets: Sequence[str], rows: Sequence[str], cell: float
) -> tuple[float, float]:
    """Width and height in inches: cells of a fixed size, and room for the longest labels."""
    row_label, column_label = max(map(len, rows)), max(map(len, (*sources, *targets)))
    width = (len(sources) + len(targets)) * cell * 1.12 + row_label * 0.08 + 2.4
    return max(width, 7.5), max(len(rows) * max(cell, 0.15) + column_label * 0.08 + 1.4, 3.4)


def _label_columns(axes: Axes, tokens: Sequence[str], name: str, text: dict[str, Any], every: int) -> None:
    axes.xaxis.tick_top()
    axes.set_xticks(range(0, len(tokens), every), tokens[::every], rotation=90, **text)
    axes.set_xlabel(name, fontsize=text["fontsize"])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xticks(np.arange(len(tokens) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(axes.get_images()[0].get_size()[0] + 1) - 0.5, minor=True)
    if every == 1:
        axes.grid(which="minor", color="white", linewidth=0.5)
    axes.tick_params(which="minor", length=0)


def _write_shares(axes: Axes, shares: np.ndarray, limit: float, size: float) -> None:
    """Write each share into its cell, as hundredths without the leading zero."""
    for (step, position), share in np.ndenumerate(shares):
        if np.ma.getmaskarray(shares)[step, position]:
            continue
        dark = abs(share) > 0.6 * limit
        written = f"{round(share, 2) + 0.0:.2f}".replace("0.", ".", 1)  # no -.00
        axes.text(position, step, written, ha="center", va="center", size=size, color="white" if dark else "#333333")


def _draw_curves(axes: Axes, curves: dict[str, np.ndarray], steps: Sequence[int], text: dict[str, Any]) -> None:
    """R_t(source) from 0 to 1, one point per row, with the steps' numbers, which count from 1."""
    size = text["fontsize"]
    rows = np.arange(len(steps))
    for (name, totals), color in zip(curves.items(), _CURVES, strict=False):
        axes.plot(totals, rows, marker="o", markersize=size / 2.5, linewidth=1.2, color=color, label=name)
    together = np.concatenate(list(curves.values()))
    axes.set_xlim(min(0.0, together.min()) - 0.04, max(1.0, together.max()) + 0.04)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.xaxis.tick_top()
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"], fontsize=size)
    axes.yaxis.tick_right()
    axes.set_yticks(rows, [str(step) for step in steps], fontsize=size * 0.8)
    axes.tick_params(length=0)
    axes.set_xlabel("R(source) by step", fontsize=size)
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[:].set_color("#bbbbbb")
    if len(curves) > 1:
        properties = {"family": text["fontfamily"], "size": size * 0.8}
        axes.legend(prop=properties, loc="lower left", frameon=False, borderpad=0.1, handlelength=1.2)


def _draw_color_bar(figure: Figure | SubFigure, image: AxesImage, place: dict[str, Any], sheet: _Sheet) -> None:
    """The scale that both blocks share, with arrows where shares lie beyond its ends."""
    shares = np.concatenate([sheet.source.ravel(), sheet.target.compressed()])
    above, below = bool(shares.max() > sheet.limit), bool(shares.min() < -sheet.limit)
    extend = {(True, True): "both", (True, False): "max", (False, True): "min", (False, False): "neither"}
    size: dict[str, Any] = {"fraction": 0.12, "pad": 0.12, "aspect": 30} if "ax" in place else {}
    bar = figure.colorbar(image, extend=extend[above, below], **place, **size)
    bar.set_label(sheet.scale)
    bar.outline.set_visible(False)
