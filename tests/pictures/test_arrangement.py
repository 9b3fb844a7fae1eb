"""Blocks of a heat map side by side or below each other."""

import pytest

from hf_lrp.pictures.arrangement import GAP, arrange, fitting_width


def label(size: float) -> float:
    return 0.05 * size


def test_few_columns_stand_side_by_side():
    plan = arrange([10, 9], 6.9, label)
    assert plan.lines == ((0, 1),)
    assert (plan.size, plan.every_column) == (8.0, 1)


def test_many_columns_go_below_each_other():
    plan = arrange([69, 37], 6.9, label)
    assert plan.lines == ((0,), (1,))
    assert plan.curve_line == 1  # where there is most room
    assert plan.every_column == 1


def test_lines_are_broken_where_they_are_most_even():
    assert arrange([20, 6, 6, 10], 4.0, label).lines == ((0,), (1, 2, 3))
    assert arrange([10, 10, 10, 10], 4.0, label).lines == ((0, 1), (2, 3))


def test_one_block_cannot_be_broken():
    plan = arrange([1500], 6.9, label)
    assert plan.lines == ((0,),)
    assert plan.every_column > 10


@pytest.mark.parametrize("columns", [[3, 2], [20, 19], [69, 37], [5, 8, 1, 20, 25], [1]])
@pytest.mark.parametrize("width", [3.2, 6.8])
def test_everything_fits_into_the_width(columns, width):
    plan = arrange(columns, width, label)
    assert sorted(block for line in plan.lines for block in line) == list(range(len(columns)))
    for number, line in enumerate(plan.lines):
        needed = plan.labels + sum(columns[block] for block in line) * plan.cell + GAP * (len(line) - 1)
        assert needed + (plan.curve if number == plan.curve_line else 0) <= width


def test_a_new_figure_is_between_a_column_and_a_page_wide():
    assert fitting_width([2, 1], 0.05) == 3.3
    assert 3.3 < fitting_width([6, 5], 0.05) < 6.9
    assert fitting_width([40, 30], 0.05) == 6.9
