"""Timelines: checkpoints in order, their quantities, files, and the command."""

import csv
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from changed_run import change_run, sharpen
from example_run import write_run
from tiny_checkpoint import save_checkpoint
from tiny_models import tiny_model
from tiny_tokenizer import WORDS

from hf_lrp.commands.cli import main
from hf_lrp.corpus.manifest import RunError
from hf_lrp.corpus.measures import (
    DIVERGENCE,
    influence_divergence,
    overall,
    paired_change,
    read_table,
)
from hf_lrp.corpus.run import Run
from hf_lrp.corpus.timeline import CHANGE, STAGED, Timeline, find_checkpoints, is_timeline, measure_timeline
from hf_lrp.results.quantities import QUANTITIES

# Shares become sharper until step 500, then less so: entropies fall, then rise.
POWERS = dict(zip(range(100, 1300, 100), (1.0, 1.5, 2.0, 2.5, 3.0, 2.6, 2.2, 1.9, 1.6, 1.4, 1.3, 1.25), strict=True))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Run]:
    """Checkpoints of a made-up training run, not in the order of their steps."""
    folder = tmp_path_factory.mktemp("timeline")
    first = write_run(folder / "first", number=5, prefixes=["reference"])
    return {
        step: change_run(first, folder / f"step-{step}", partial(sharpen, power=POWERS[step]))
        for step in sorted(POWERS, reverse=True)
    }


@pytest.fixture(scope="module")
def timeline(runs: dict[int, Run]) -> Timeline:
    return measure_timeline(runs, "reference")


def test_series_are_those_of_the_runs_in_order(runs: dict[int, Run], timeline: Timeline) -> None:
    assert timeline.steps.tolist() == sorted(POWERS)
    assert timeline.folders == tuple(f"step-{step}" for step in sorted(POWERS))
    assert (timeline.number, timeline.prefix, timeline.relative) == (5, "reference", False)
    for name in (*QUANTITIES, DIVERGENCE, *(CHANGE + name for name in (*QUANTITIES, DIVERGENCE))):
        assert timeline.overall[name].value.shape == (12,)
        assert timeline.by_position[name].low.shape == (12, 5)
    for row, step in enumerate(timeline.steps):
        estimate = overall(read_table(runs[step], "reference"), "source_entropy")
        assert tuple(end[row] for end in timeline.overall["source_entropy"]) == estimate


def test_divergence_is_to_the_last_and_change_to_the_one_before(runs: dict[int, Run], timeline: Timeline) -> None:
    to_last = overall(influence_divergence(runs[200], runs[1200], "reference"), DIVERGENCE)
    since = overall(influence_divergence(runs[100], runs[200], "reference"), DIVERGENCE)
    assert timeline.overall[DIVERGENCE].value[[1, 11]].tolist() == [to_last.value, 0]
    assert timeline.overall[CHANGE + DIVERGENCE].value[1] == since.value
    tables = [read_table(runs[step], "reference") for step in (100, 200)]
    changes = paired_change(*tables, "source_total")[0].value
    np.testing.assert_array_equal(timeline.by_position[CHANGE + "source_total"].value[1], changes)
    assert np.isnan(timeline.by_position[CHANGE + "source_total"].value[0]).all()
    assert np.isnan(timeline.overall[CHANGE + DIVERGENCE].value[0])


def test_stages_are_found(timeline: Timeline) -> None:
    assert timeline.stages.keys() == set(STAGED)
    assert timeline.stages["source_entropy"].first_end == 500


def test_own_prefixes_have_no_divergence(tmp_path: Path) -> None:
    runs = {step: write_run(tmp_path / str(step), seed=step) for step in (1, 2)}
    timeline = measure_timeline(runs, "model")
    assert CHANGE + "source_total" in timeline.overall
    assert not any(DIVERGENCE in name for name in timeline.overall)
    with pytest.raises(RunError, match="tokens of pair 0 differ"):
        measure_timeline(runs, "reference")


def test_files_hold_everything(timeline: Timeline, tmp_path: Path) -> None:
    assert not is_timeline(tmp_path)
    timeline.save(tmp_path)
    assert is_timeline(tmp_path)
    loaded = Timeline.load(tmp_path)
    for kind in ("overall", "by_position"):
        for name, estimate in getattr(timeline, kind).items():
            for end, part in zip(getattr(loaded, kind)[name], estimate, strict=True):
                np.testing.assert_array_equal(end, part)
    assert repr(loaded.stages) == repr(timeline.stages)
    assert (loaded.steps.tolist(), loaded.folders) == (timeline.steps.tolist(), timeline.folders)
    rows = list(csv.DictReader((tmp_path / "timeline.csv").open()))
    row = next(row for row in rows if row["step"] == "300" and row["quantity"] == "source_total")
    assert float(row["low"]) == pytest.approx(timeline.overall["source_total"].low[2], rel=1e-8)
    rows = list(csv.DictReader((tmp_path / "timeline-positions.csv").open()))
    assert len(rows) == 12 * 5 * len(timeline.by_position)
    row = next(row for row in rows if (row["step"], row["position"], row["quantity"]) == ("1200", "1", "source_total"))
    assert (row["value"], row["high"]) == ("", "")


def test_what_is_no_timeline_is_refused(timeline: Timeline, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no timeline.*hf-lrp timeline"):
        Timeline.load(tmp_path)
    timeline.save(tmp_path)
    path = tmp_path / "timeline.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"version": 99}))
    with pytest.raises(RunError, match="99.*install a newer"):
        Timeline.load(tmp_path)
    path.write_text(path.read_text()[:100])
    with pytest.raises(RunError, match="damaged"):
        Timeline.load(tmp_path)


# ---- checkpoints


def make_checkpoint(folder: Path, step: int | None = None) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    if step is not None:
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return folder


def test_checkpoints_of_a_run_are_in_the_order_of_steps(tmp_path: Path) -> None:
    for step in (1000, 200, 90):
        make_checkpoint(tmp_path / f"checkpoint-{step}", step)
    make_checkpoint(tmp_path / "checkpoint-2000")  # not yet whole: Trainer writes its state last
    assert list(find_checkpoints([tmp_path])) == [90, 200, 1000]


def test_checkpoints_may_be_given_by_any_name(tmp_path: Path) -> None:
    named, other = make_checkpoint(tmp_path / "checkpoint-500"), make_checkpoint(tmp_path / "best", 300)
    assert find_checkpoints([named, other]) == {300: other, 500: named}


def test_checkpoints_that_make_no_timeline_are_refused(tmp_path: Path) -> None:
    one, same = make_checkpoint(tmp_path / "checkpoint-5", 5), make_checkpoint(tmp_path / "same", 5)
    unknown = make_checkpoint(tmp_path / "unknown")
    with pytest.raises(ValueError, match="at least two checkpoints, got 1"):
        find_checkpoints([tmp_path])
    with pytest.raises(ValueError, match="both of step 5"):
        find_checkpoints([one, same])
    with pytest.raises(ValueError, match="step of .*unknown is not known"):
        find_checkpoints([one, unknown])


# ---- the command


def test_command_evaluates_measures_and_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, step in enumerate((20, 100)):
        folder = save_checkpoint(tmp_path / "run" / f"checkpoint-{step}")
        torch.manual_seed(number)
        model = tiny_model("marian", max_position_embeddings=32)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        model.save_pretrained(folder)
        (folder / "trainer_state.json").write_text("{}")
    pairs = [f"{a} {b}\t{b} {a} {b}" for a, b in zip(WORDS[:6], WORDS[6:12], strict=True)]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs) + "\n")
    argv = ["timeline", str(tmp_path / "run"), "--data", str(tmp_path / "pairs.tsv"), "--out", str(tmp_path / "out")]
    assert main([*argv, "--number", "4"]) == 0
    shown, said = capsys.readouterr()
    assert "4 pairs, reference prefixes" in shown
    assert "R(source): no turning point: there are 2 checkpoints" in shown
    assert "checkpoint-100 (2 of 2)" in said
    timeline = Timeline.load(tmp_path / "out")
    assert timeline.folders == ("step-000020", "step-000100")
    assert timeline.overall[DIVERGENCE].value[0] > 0 == timeline.overall[DIVERGENCE].value[1]
    shards = sorted((tmp_path / "out").rglob("*.parquet"))
    times = [shard.stat().st_mtime_ns for shard in shards]
    written = (tmp_path / "out" / "timeline.json").read_bytes()
    assert main([*argv, "--number", "4"]) == 0
    assert [shard.stat().st_mtime_ns for shard in shards] == times
    assert (tmp_path / "out" / "timeline.json").read_bytes() == written


def test_command_names_a_missing_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["timeline", str(tmp_path / "none"), "--data", "pairs.tsv", "--out", str(tmp_path / "out")]
    assert main(argv) == 1
    assert "there is no folder" in capsys.readouterr().err
