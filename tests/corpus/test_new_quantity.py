"""A quantity of one's own: one row of the table, and tables, files, comparisons, reports and timelines have it."""

from pathlib import Path

import numpy as np
import pytest
from changed_run import change_run, sharpen
from example_run import write_run

from hf_lrp.corpus.report import render_report
from hf_lrp.corpus.run_comparison import compare, in_words, means_csv, measure
from hf_lrp.corpus.timeline import CHANGE, measure_timeline
from hf_lrp.results.quantities import QUANTITIES, Quantity

TITLE = "largest share of a source token"


@pytest.fixture(autouse=True)
def _added(monkeypatch: pytest.MonkeyPatch) -> None:
    added = Quantity(
        title=TITLE,
        axis="largest share",
        column="largest\nshare",
        by_step=lambda c: c.source.max(axis=1).astype(np.float64),
    )
    monkeypatch.setitem(QUANTITIES, "largest_share", added)


def test_one_row_of_the_table_is_enough(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", number=5, prefixes=["reference"])
    expected = np.mean([row.source[1:].max(axis=1).mean() for row in run.rows("reference")])
    assert run.metrics["reference"]["largest_share"] == pytest.approx(expected)
    sharper = change_run(run, tmp_path / "b", sharpen)
    first, second = measure(run, "first"), measure(sharper, "second")
    np.testing.assert_allclose(first.tables["reference"].means["largest_share"].mean(), expected)
    comparison = compare([first, second])
    (difference,) = [each for each in comparison.difference_estimates if each.quantity == "largest_share"]
    assert difference.excludes_zero and difference.estimate.value > 0
    assert b"largest_share" in means_csv(comparison) and in_words("largest_share") == TITLE
    assert TITLE in render_report(comparison, [])
    timeline = measure_timeline({1: run, 2: sharper}, "reference")
    assert timeline.overall["largest_share"].value[0] == pytest.approx(expected)
    assert CHANGE + "largest_share" in timeline.by_position
