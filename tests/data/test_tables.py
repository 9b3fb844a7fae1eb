"""Tables as text: numbers, undefined values, and cells that spreadsheets would compute."""

import csv
import io
import math

import numpy as np
import pytest

from hf_lrp.data.tables import cell, csv_table, tsv_table


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1 / 3, "0.333333333"),
        (np.float32(0.5), "0.5"),
        (-2.0, "-2"),
        (math.nan, ""),
        (np.float64("inf"), ""),
        (None, ""),
        (3, "3"),
        (np.int64(-3), "-3"),
        (True, "True"),
        ("plain", "plain"),
    ],
)
def test_one_spelling_for_each_kind_of_value(value, written):
    assert cell(value) == written


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@a", " =1", "\t=1", "=cmd|' /C calc'!A0"])
def test_a_text_is_never_a_formula(text):
    assert cell(text) == f"'{text}"
    (row,) = csv.reader(io.StringIO(csv_table(["a"], [[text]]).decode().split("\n", 1)[1]))
    assert row == [f"'{text}"]


def test_a_table_is_read_back_as_it_was():
    table = csv_table(("name", "value"), [('a "b", c\nd', 0.25), ("é", None)])
    assert list(csv.reader(io.StringIO(table.decode(), newline=""))) == [
        ["name", "value"],
        ['a "b", c\nd', "0.25"],
        ["é", ""],
    ]


def test_tabs_and_line_ends_do_not_part_cells():
    assert tsv_table(("a", "b"), [('x\t"y"\nz', math.nan)]) == b'a\tb\nx "y" z\t\n'
