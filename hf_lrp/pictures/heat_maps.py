"""Heat maps for papers: blocks of shares with one colour scale, and the curve of R_t(source) beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, FuncNorm, Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from hf_lrp.pictures.arrangement import GAP, Arrangement, arrange, fitting_width
from hf_lrp.pictures.fonts import drawable
from hf_lrp.pictures.look import FAINT, INK, curve_style
from hf_lrp.pictures.panels import Canvas, Place

_NOT_WRITTEN = "#f0f0f0"  # cells of target tokens after the step
_MARK = "#b0410a"  # rows whose explained token is not the written one
_MARGIN, _BAR = 0.05, 0.09  # inches: around everything, and the height of the colour bar
_LONGEST_LABEL, _LONGEST_NAME = 16, 34  # characters
_SMALLEST_NUMBER = 5.0  # points
_POWER = 0.65  # of shares that colours follow


@dataclass(frozen=True)
class Block:
    """Columns that belong together: shares `[T, n]` with n labels; `name` stands below, if there is one.

    ``prefix``: shares of what was written before are orange, others blue, as on pages.
    """

    name: str
    shares: np.ma.MaskedArray
    labels: tuple[str, ...]
    prefix: bool = False


@dataclass(frozen=True)
class Sheet:
    """A sheet: blocks, T row labels and which of them are marked, curves beside them by name `[T]`."""

    blocks: tuple[Block, ...]
    rows: tuple[str, ...]
    marked: tuple[bool, ...]
    steps: tuple[int, ...]
    curves: Mapping[str, np.ndarray]
    title: str
    scale: str


def draw_sheet(sheet: Sheet, place: Place) -> Figure:
    """Draw the blocks side by side or, where labels would get too small, below each other."""
    sheet, text = _with_fonts(sheet, place.title)
    canvas = place.open()
    columns = [len(block.labels) for block in sheet.blocks]
    per_point = canvas.widest((*sheet.rows, _corner(sheet)), fontsize=10, **text) / 10
    if place.is_new:
        canvas.resize(place.width or fitting_width(columns, per_point), 1.0)
    plan = arrange(columns, canvas.width - 2 * _MARGIN, lambda size: per_point * size + GAP / 2)
    text["fontsize"] = plan.size
    top = canvas.set_title(sheet.title, **text) + _MARGIN
    heads = [
        canvas.widest((label for block in line for label in sheet.blocks[block].labels), **text) + GAP
        for line in plan.lines
    ]
    line_height = plan.size / 72
    fixed = top + sum(heads) + (2.0 * len(heads) + 3.2) * line_height + _BAR + _MARGIN
    if place.is_new:
        canvas.resize(canvas.width, fixed + len(heads) * len(sheet.rows) * plan.row)
    row = max((canvas.height - fixed) / (len(heads) * len(sheet.rows)), 0.01)
    canvas.put_title_on_top(_MARGIN)
    _draw_lines(canvas, sheet, plan, row, top, heads, _colors(sheet, place.cmap), text)
    return canvas.figure


def _draw_lines(
    canvas: Canvas,
    sheet: Sheet,
    plan: Arrangement,
    row: float,
    top: float,
    heads: Sequence[float],
    colors: Colors,
    text: dict[str, Any],
) -> None:
    images: dict[str, AxesImage] = {}  # the last one of each colour
    height = len(sheet.rows) * row
    curve_place = (0.0, 0.0)
    for number, (line, head) in enumerate(zip(plan.lines, heads, strict=True)):
        top += head
        left = _MARGIN + plan.labels
        canvas.write(left - GAP / 2, top - GAP / 2, _corner(sheet), ha="right", va="bottom", color="#777777", **text)
        for place, block in enumerate(line):
            width = plan.cell * len(sheet.blocks[block].labels)
            axes = canvas.add_axes(left, top, width, height)
            image = _draw_block(axes, sheet.blocks[block], colors, plan, row, text)
            images[image.get_cmap().name] = image
            if place == 0:
                _label_rows(axes, sheet, plan.every_row(row), text)
            left += width + GAP
        if number == plan.curve_line:
            curve_place = (left, top)
        top += height + 2.0 * plan.size / 72
    numbers = 2.0 * plan.size / 72
    width = min(canvas.width - _MARGIN - curve_place[0], 1.3 * plan.curve) - numbers
    curve = canvas.add_axes(*curve_place, width, height)
    _draw_curves(curve, sheet, plan.every_row(row), text)
    _draw_foot(canvas, curve, list(images.values()), sheet, top, text)


def _with_fonts(sheet: Sheet, title: str | None) -> tuple[Sheet, dict[str, Any]]:
    """The sheet with texts that can be drawn and are not too long, and the properties to draw them with."""
    labels = [[_shorten(label, _LONGEST_LABEL) for label in block.labels] for block in sheet.blocks]
    rows = [" ".join(_shorten(part, _LONGEST_LABEL) for part in row.split(" ")) for row in sheet.rows]
    names = [_shorten(name, _LONGEST_NAME) for name in sheet.curves]
    wanted = sheet.title if title is None else title
    drawn, text = drawable([*labels, rows, names, (wanted,), [block.name for block in sheet.blocks]])
    *labels, rows, names, (heading,), headings = drawn
    blocks = zip(sheet.blocks, headings, labels, strict=True)
    return replace(
        sheet,
        blocks=tuple(replace(block, name=name, labels=tuple(new)) for block, name, new in blocks),
        rows=tuple(rows),
        curves=dict(zip(names, sheet.curves.values(), strict=True)),
        title=heading,
    ), text


def _shorten(label: str, longest: int) -> str:
    return label if len(label) <= longest else label[: longest - 1] + "…"


def _corner(sheet: Sheet) -> str:
    return "predicted\n(≠ written)" if any("≠" in row for row in sheet.rows) else "predicted"


class Colors(NamedTuple):
    """One scale for all blocks, and the colours of the prefix and of everything else."""

    norm: Normalize
    others: Colormap
    prefix: Colormap

    def of(self, block: Block) -> Colormap:
        """Of one block."""
        return self.prefix if block.prefix else self.others


def _colors(sheet: Sheet, cmap: str | None) -> Colors:
    """A scale that tells small shares apart, up to the largest: with many tokens most shares are small, few large."""
    shares = np.ma.concatenate([block.shares.ravel() for block in sheet.blocks]).compressed()
    limit = float(np.abs(shares).max()) or 1.0
    if shares.min() < 0:
        functions = (partial(_signed_power, power=_POWER), partial(_signed_power, power=1 / _POWER))
        both = matplotlib.colormaps[cmap or "PuOr_r"]
        return Colors(FuncNorm(functions, -limit, limit), both, both)
    others, prefix = (matplotlib.colormaps[cmap or name] for name in ("Blues", "Oranges"))
    return Colors(PowerNorm(_POWER, 0.0, limit), others, prefix)


def _signed_power(shares: np.ndarray, power: float) -> np.ndarray:
    return np.sign(shares) * np.abs(shares) ** power


def _draw_block(
    axes: Axes,
    block: Block,
    colors: Colors,
    plan: Arrangement,
    row: float,
    text: dict[str, Any],
) -> AxesImage:
    steps, columns = block.shares.shape
    image = axes.imshow(block.shares, norm=colors.norm, cmap=colors.of(block), aspect="auto", interpolation="nearest")
    axes.set_facecolor(_NOT_WRITTEN)
    every = plan.every_column
    axes.xaxis.tick_top()
    axes.set_xticks(range(0, columns, every), block.labels[::every], rotation=90, **text)
    axes.set_yticks([])
    axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(steps + 1) - 0.5, minor=True)
    axes.tick_params(which="both", length=0, pad=2)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)  # whatever the user's settings are
    if every == 1:
        axes.grid(which="minor", color="white", linewidth=0.4)
    if block.name:
        axes.set_xlabel(block.name, labelpad=2.5, **text)
    size = _number_size(block, plan.cell, row)
    if size >= _SMALLEST_NUMBER:
        _write_shares(axes, block, colors, size)
    return image


def _number_size(block: Block, cell: float, row: float) -> float:
    """The size at which shares fit into their cells, in points."""
    characters = 4 if block.shares.min() < 0 else 3
    return float(min(cell * 72 * 0.82 / (0.6 * characters), row * 72 * 0.62, 6.5))


def _write_shares(axes: Axes, block: Block, colors: Colors, size: float) -> None:
    """Write each share into its cell, as hundredths without the leading zero."""
    norm, cmap = colors.norm, colors.of(block)
    hidden = np.ma.getmaskarray(block.shares)
    for (step, position), share in np.ndenumerate(block.shares.data):
        if hidden[step, position]:
            continue
        dark = np.dot(cmap(norm(share))[:3], (0.2126, 0.7152, 0.0722)) < 0.45
        written = f"{round(share, 2) + 0.0:.2f}".replace("0.", ".", 1)  # no -.00
        axes.text(position, step, written, ha="center", va="center", size=size, color="white" if dark else INK)


def _label_rows(axes: Axes, sheet: Sheet, every: int, text: dict[str, Any]) -> None:
    axes.set_yticks(range(0, len(sheet.rows), every), sheet.rows[::every], **text)
    axes.tick_params(axis="y", length=0, pad=2)
    for label, marked in zip(axes.get_yticklabels(), sheet.marked[::every], strict=True):
        if marked:
            label.set_color(_MARK)


def _draw_curves(axes: Axes, sheet: Sheet, every: int, text: dict[str, Any]) -> None:
    """R_t(source) from 0 to 1, one point per row, with the steps' numbers, which count from 1."""
    size = text["fontsize"]
    rows = np.arange(len(sheet.steps))
    for number, (name, totals) in enumerate(sheet.curves.items()):
        look = curve_style(number) | {"markersize": size / 3, "linewidth": 1.0}
        axes.plot(totals, rows, label=name, **look)
    together = np.concatenate(list(sheet.curves.values()))
    axes.set_xlim(min(0.0, together.min()) - 0.06, max(1.0, together.max()) + 0.06)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.xaxis.tick_top()
    axes.set_xticks([0, 0.5, 1], ["0", ".5", "1"], **text)
    axes.yaxis.tick_right()
    every = every if len(rows) <= 20 else 5 * every
    shown = [row for row, step in enumerate(sheet.steps) if row == 0 or step % every == 0]
    axes.set_yticks(shown, [str(sheet.steps[row]) for row in shown], **(text | {"fontsize": size * 0.9}))
    axes.tick_params(length=0, pad=2, labelcolor="#777777")
    axes.set_xlabel("R(source)", labelpad=2.5, **text)
    axes.grid(color=FAINT, linewidth=0.4)
    axes.set_axisbelow(True)
    axes.spines[:].set_color("#bbbbbb")
    axes.spines[:].set_linewidth(0.5)


def _draw_foot(
    canvas: Canvas, curve: Axes, images: list[AxesImage], sheet: Sheet, top: float, text: dict[str, Any]
) -> None:
    """The colour scale at the lower right, a bar per colour; at its left what the curves are, where there are two."""
    size = text["fontsize"]
    width = min(1.5, 0.32 * canvas.width)
    left = canvas.width - _MARGIN - width - 0.1
    canvas.write(left + width, top, sheet.scale, ha="right", va="top", **text)
    for number, image in enumerate(images):
        height = _BAR / len(images)
        axes = canvas.add_axes(left, top + 1.5 * size / 72 + number * height, width, height)
        bar = canvas.figure.colorbar(image, cax=axes, orientation="horizontal")
        bar.outline.set_visible(False)
        if number < len(images) - 1:
            bar.set_ticks([])
            bar.minorticks_off()
    lowest, limit = images[0].get_clim()
    assert lowest is not None
    assert limit is not None
    middle = 10.0 ** np.floor(np.log10(0.3 * limit)) * np.array([1, 2, 5])
    ticks = [0.0, float(middle[middle <= 0.3 * limit].max()), limit]
    ticks = sorted({*ticks, *(-tick for tick in ticks if lowest < 0)})
    bar.set_ticks(ticks, labels=[f"{tick:.2g}".replace("0.", ".", 1) for tick in ticks])
    bar.minorticks_off()
    for label in bar.ax.get_xticklabels():
        label.set(**text)
    bar.ax.tick_params(length=2, width=0.5, pad=1.5)
    if len(sheet.curves) > 1:
        properties = {"family": text["fontfamily"], "size": size}
        curve.legend(
            prop=properties,
            loc="upper left",
            bbox_to_anchor=canvas.fraction(_MARGIN, top),
            bbox_transform=canvas.transform,
            frameon=False,
            borderpad=0,
            borderaxespad=0,
            handlelength=2,
            labelspacing=0.2,
        )
