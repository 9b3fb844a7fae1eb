"""Data of figures: which curves they have, and their CSV."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
from example_run import write_run

from hf_lrp.corpus.endings import LAST
from hf_lrp.corpus.measures import by_position, paired_difference, source_positions
from hf_lrp.corpus.run_charts import charts_of_run, charts_of_runs
from hf_lrp.corpus.run_comparison import measure
from hf_lrp.pictures.charts import Chart, Curve, Panel, Stage, chart_csv, stage_of

STAGES = (Stage("stage 1", 0, 100), Stage("stage 2", 100, 500))


def rows_of(chart: Chart) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(chart_csv(chart).decode(), newline="")))


@pytest.fixture
def two(tmp_path):
    """Two runs of the same sentences."""
    return [measure(write_run(tmp_path / name, seed=n, number=5), name) for n, name in enumerate("ab")]


class TestCsv:
    def test_one_row_per_point_and_nothing_where_nothing_is_defined(self):
        curve = Curve('a "b", c', np.array([1.0, 2.0]), *(np.array([np.nan, n]) for n in (0.5, 0.25, 0.75)))
        rows = rows_of(Chart("1", "", (Panel("source_total", "", "", (curve,)),)))
        assert [row["value"] for row in rows] == ["", "0.5"]
        assert (rows[1]["quantity"], rows[1]["curve"], rows[1]["x"]) == ("source_total", 'a "b", c', "2")
        assert (rows[1]["low"], rows[1]["high"]) == ("0.25", "0.75")
        assert "stage" not in rows[0]

    def test_stages_of_steps_and_of_checkpoints(self):
        steps = np.array([0.0, 100.0, 200.0])
        by_step = Chart("7", "", (Panel("x", "", "", (Curve("a", steps, steps, steps, steps),)),), stages=STAGES)
        assert [row["stage"] for row in rows_of(by_step)] == ["stage 1", "stage 1", "stage 2"]
        curves = tuple(Curve(str(step), *[np.array([1.0])] * 4, step=step) for step in (50, 300))
        by_position = Chart("8", "", (Panel("x", "", "", curves),), stages=STAGES)
        assert [(row["step"], row["stage"]) for row in rows_of(by_position)] == [("50", "stage 1"), ("300", "stage 2")]

    def test_a_step_outside_all_stages_has_none(self):
        assert stage_of(STAGES, 501) == ""


class TestOneRun:
    def test_figures_of_one_run(self, tmp_path):
        run = measure(write_run(tmp_path), "m")
        contributions, positions, entropies, prefixes = charts_of_run(run)
        table = run.tables["reference"]
        (curve,) = contributions.panels[0].curves
        assert np.isnan(curve.value[0]) and curve.x[1] == 2
        np.testing.assert_array_equal(curve.value, by_position(table, "source_total").value)
        np.testing.assert_array_equal(positions.panels[0].curves[0].high, source_positions(table).high)
        assert [panel.name for panel in entropies.panels] == ["source_entropy", "target_entropy"]
        assert [curve.label for curve in prefixes.panels[1].curves] == ["reference", "model", "random"]
        assert [panel.label for panel in entropies.panels] == ["entropy of source (nats)", "entropy of target (nats)"]

    def test_positions_are_named_alike_in_all_figures(self, tmp_path):
        run = measure(write_run(tmp_path), "m")
        ends = {
            "reference": {4: "</s>"},
            "model": {},
            "random": {4: "</s>"},
        }  # the model writes targets of all lengths
        named = {prefix: replace(ending, target=ends[prefix]) for prefix, ending in run.endings.items()}
        contributions, _, entropies, prefixes = charts_of_run(replace(run, endings=named))
        panels = (*contributions.panels, *entropies.panels, *prefixes.panels)
        assert all(panel.named_positions == ((4.0, "</s>"),) for panel in panels)
        assert "not of model ones" in prefixes.caption and "not of" not in entropies.caption

    def test_one_prefix_type_cannot_be_compared_with_others(self, tmp_path):
        charts = charts_of_run(measure(write_run(tmp_path, prefixes=["random"]), "m"))
        assert [chart.stem[0] for chart in charts] == ["1", "2", "3"]
        assert all("m, random prefixes" in chart.line for chart in charts)

    def test_mixed_lengths_are_relative_and_show_the_last_tokens(self, tmp_path):
        run = measure(write_run(tmp_path, lengths=None, number=8), "m")
        contributions, positions, *_ = charts_of_run(run)
        assert contributions.panels[0].x_label == "relative target position"
        whole, last = positions.panels
        assert whole.curves[0].x[0] == 0.05
        assert last.curves[0].x.tolist() == list(range(-LAST, 0))
        expected = np.nanmean(run.endings["reference"].last_source_use, axis=0)
        np.testing.assert_allclose(last.curves[0].value, expected)


class TestSeveralRuns:
    def test_side_by_side_with_differences_to_the_first(self, two):
        charts = charts_of_runs(two)
        assert [chart.stem for chart in charts] == [f"5-side-by-side-{p}" for p in ("reference", "model", "random")]
        total, entropy, difference, _ = charts[1].panels
        assert [curve.label for curve in total.curves] == [curve.label for curve in entropy.curves] == ["a", "b"]
        (curve,) = difference.curves
        expected, _ = paired_difference(two[1].tables["model"], two[0].tables["model"], "source_total")
        np.testing.assert_array_equal(curve.low, expected.low)
        assert (curve.label, difference.label, difference.is_difference) == ("b", "difference to a", True)

    def test_growth_only_where_asked_for(self, two):
        stems = [chart.stem for chart in charts_of_runs(two, growth=True) if chart.kind == "growth"]
        assert stems == ["6-growth-reference", "6-growth-model", "6-growth-random"]

    def test_only_prefix_types_that_all_runs_have(self, tmp_path):
        runs = [
            measure(write_run(tmp_path / "a"), "a"),
            measure(write_run(tmp_path / "b", prefixes=["model"], seed=1), "b"),
        ]
        assert [chart.stem for chart in charts_of_runs(runs)] == ["5-side-by-side-model"]
