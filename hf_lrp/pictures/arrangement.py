"""How the blocks of a heat map are arranged: side by side while their labels stay legible, else below each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from hf_lrp.pictures.look import COLUMN, PAGE

SMALLEST, LARGEST = 5.5, 8.0  # points; below 5.5 only some tokens are labelled
_LEGIBLE = 6.0  # blocks go below each other rather than that text gets smaller
_PITCH = 1.15 / 72  # inches from one line of text to the next, per point
_WIDEST_CELL, _HIGHEST_ROW = 0.3, 0.22  # inches; where the size is not given
GAP = 0.08
_CURVE = (0.62, 0.95)  # the narrowest and the widest that the curve's panel is


@dataclass(frozen=True)
class Arrangement:
    """Sizes are in inches, that of text in points.

    Attributes:
        lines: which blocks stand side by side, by their numbers, for each line of blocks.
        cell: the width of a cell.
        size: of text.
        labels: the room that the labels of rows take.
        curve: the width of the curve's panel, with the numbers of steps.
        curve_line: the number of the line that the curve stands on.
    """

    lines: tuple[tuple[int, ...], ...]
    cell: float
    size: float
    labels: float
    curve: float
    curve_line: int

    @property
    def every_column(self) -> int:
        """1 where all columns have room for a label, 2 where every second has."""
        return _every(self.cell, self.size)

    def every_row(self, row: float) -> int:
        """The same for rows of a height."""
        return _every(row, self.size)

    @property
    def row(self) -> float:
        """The height of rows, where it is free."""
        return float(np.clip(0.75 * self.cell, self.size * _PITCH * 1.1, _HIGHEST_ROW))


def fitting_width(columns: Sequence[int], label: float) -> float:
    """The width of a new figure: cells of a good size, if a page has room for them; `label` is per point of text."""
    needed = label * LARGEST + sum(columns) * _WIDEST_CELL + GAP * (len(columns) + 2) + _CURVE[1]
    return float(np.clip(needed, COLUMN, PAGE))


def arrange(columns: Sequence[int], width: float, label: Callable[[float], float]) -> Arrangement:
    """Arrange blocks with these numbers of columns in a width; `label` is the room of row labels at a size of text."""
    best = _largest_text(_break(columns, 1), columns, width, label)
    for number in range(2, len(columns) + 1):
        if best.size >= _LEGIBLE:
            break
        found = _largest_text(_break(columns, number), columns, width, label)
        if found.cell > 1.2 * best.cell:  # further lines are worth it
            best = found
    return best


def _break(columns: Sequence[int], number: int) -> tuple[tuple[int, ...], ...]:
    """Break a row of blocks into at most so many lines, the widest of which is as narrow as can be."""
    sums = np.concatenate([[0], np.cumsum(columns)])
    for limit in sorted({int(b - a) for a, b in combinations(sums, 2)}):
        lines: list[list[int]] = [[]]
        for block, count in enumerate(columns):
            if lines[-1] and sum(columns[other] for other in lines[-1]) + count > limit:
                lines.append([])
            lines[-1].append(block)
        if len(lines) <= number and limit >= max(columns):
            break
    return tuple(map(tuple, lines))


def _largest_text(
    lines: tuple[tuple[int, ...], ...], columns: Sequence[int], width: float, label: Callable[[float], float]
) -> Arrangement:
    """The arrangement of these lines with the largest text that all columns have room for, or else the smallest."""
    found = None
    for size in np.arange(LARGEST, SMALLEST - 0.1, -0.5):
        found = _fill(lines, columns, width, label(size), float(size))
        if found.every_column == 1:
            break
    assert found is not None
    return found


def _fill(
    lines: tuple[tuple[int, ...], ...], columns: Sequence[int], width: float, labels: float, size: float
) -> Arrangement:
    counts = np.array([sum(columns[block] for block in line) for line in lines])
    room = width - labels - np.array([GAP * (len(line) - 1) for line in lines]) - GAP
    curve = float(np.clip(0.14 * width, *_CURVE))
    curve_line = int(np.argmax((room - curve - GAP) / counts))
    room[curve_line] -= curve + GAP
    cell = float(max((room / counts).min(), 0.2 * width / counts.max()))
    return Arrangement(lines, cell, size, labels, curve, curve_line)


def _every(pitch: float, size: float) -> int:
    return max(1, int(np.ceil(size * _PITCH / pitch - 1e-9)))
