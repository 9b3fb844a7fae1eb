"""Tables as text, for spreadsheets and pandas: one way to write a number, and nothing where a value is undefined."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets compute cells that begin so


def csv_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """Comma-separated values in UTF-8, with a line per row; cells as in `cell`."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue().encode()


def tsv_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """Tab-separated values without quotes; white space in a text, tabs and line ends too, becomes one space."""
    lines = [header, *([" ".join(cell(value).split()) for value in row] for row in rows)]
    return "".join("\t".join(line) + "\n" for line in lines).encode()


def cell(value: Any) -> str:
    """A value as it stands in a table: nine digits of a float, nothing for None and nan.

    A text that a spreadsheet would take for a formula gets an apostrophe in front, which spreadsheets do not show.
    """
    if value is None or (isinstance(value, float | np.floating) and not math.isfinite(value)):
        return ""
    if isinstance(value, float | np.floating):
        return f"{value:.9g}"
    text = str(value)
    return f"'{text}" if isinstance(value, str) and text.lstrip(" ").startswith(_FORMULA) else text
