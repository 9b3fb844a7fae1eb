"""Folders of runs and timelines: read together, drawn, and compared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tqdm.auto import tqdm

from hf_lrp.corpus.report import Picture, render_report
from hf_lrp.corpus.run_charts import charts_of_run, charts_of_runs
from hf_lrp.corpus.run_comparison import (
    MeasuredRun,
    RunComparison,
    check_comparable,
    compare,
    comparison_json,
    differences_csv,
    means_csv,
    measure,
    open_runs,
)
from hf_lrp.corpus.timeline import Timeline, is_timeline
from hf_lrp.corpus.training_charts import charts_of_timeline
from hf_lrp.data.files import write_atomically
from hf_lrp.pictures import figures
from hf_lrp.pictures.charts import Chart

_LONGEST_NAME = 80  # characters of a folder's


class Given(NamedTuple):
    """Runs that folders hold, in order; timelines by folder."""

    runs: list[MeasuredRun]
    timelines: dict[Path, Timeline]


class WrittenFigure(NamedTuple):
    """A figure that was written: its chart, its folder within the output, and the picture as SVG."""

    chart: Chart
    folder: str
    svg: bytes

    @property
    def name(self) -> str:
        """Folder and stem, without a suffix."""
        return str(Path(self.folder, self.chart.stem))


def read_folders(folders: Sequence[str | Path], labels: Sequence[str] | None = None, progress: bool = False) -> Given:
    """Read all runs and timelines; `labels` are what figures call the runs, in order.

    Raises:
        RunError: one cannot be read, or the runs cannot be drawn together.
    """
    paths = [Path(folder) for folder in folders]
    timelines = {path: Timeline.load(path) for path in paths if is_timeline(path)}
    opened = open_runs([path for path in paths if path not in timelines], labels)
    runs = [measure(run, label) for run, label in tqdm(opened, desc="reading", unit="run", disable=not progress)]
    if runs:
        check_comparable(runs)
    return Given(runs, timelines)


def draw_folders(
    given: Given, out: str | Path, *, growth: bool = False, line: bool = True, progress: bool = False
) -> list[WrittenFigure]:
    """Draw what the runs and timelines allow; figures of single ones have their own folders where several are given.

    `growth`: the runs are in order from the least to the most data; arrows lead from the first to the last.
    `line`: below each figure stand model, number of sentences and what its bands are.
    """
    planned = list(_plan(given, growth))
    written = []
    for folder, chart in tqdm(planned, desc="drawing", unit="figure", disable=not progress):
        contents = figures.write_figure(chart, Path(out) / folder, line=line)
        written.append(WrittenFigure(chart, folder, contents["svg"]))
    return written


def compare_folders(given: Given, out: str | Path, *, growth: bool = False, progress: bool = False) -> RunComparison:
    """Compare runs with the first, or the checkpoints of a timeline; write tables, figures and a report."""
    out = Path(out)
    if not given.runs and len(given.timelines) != 1:
        raise ValueError("The checkpoints of one timeline can be compared: give one, or runs.")
    comparison = compare(given.runs or _checkpoints(given))
    drawn = draw_folders(given, out / "figures", growth=growth, progress=progress)
    files = {
        "means.csv": means_csv(comparison),
        "differences.csv": differences_csv(comparison),
        "comparison.json": comparison_json(comparison),
        "report.html": render_report(comparison, [Picture(f.name, f.chart.caption, f.svg) for f in drawn]).encode(),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(out / name, content)
    return comparison


def _checkpoints(given: Given) -> list[MeasuredRun]:
    """The runs of a timeline, where no others are given."""
    ((folder, timeline),) = given.timelines.items()
    return [measure(run, label) for run, label in open_runs([folder / name for name in timeline.folders])]


def _plan(given: Given, growth: bool) -> Iterator[tuple[str, Chart]]:
    """The folder and chart of each figure."""
    labels = [run.label for run in given.runs] + [folder.resolve().name for folder in given.timelines]
    folders = folder_names(labels) if len(labels) > 1 else [""]
    if len(given.runs) > 1:
        yield from (("", chart) for chart in charts_of_runs(given.runs, growth=growth))
    for folder, run in zip(folders, given.runs, strict=False):
        yield from ((folder, chart) for chart in charts_of_run(run))
    names = zip(folders[len(given.runs) :], labels[len(given.runs) :], strict=True)
    for (folder, label), timeline in zip(names, given.timelines.values(), strict=True):
        yield from ((folder, chart) for chart in charts_of_timeline(timeline, label))


def folder_names(labels: Sequence[str]) -> list[str]:
    """One folder name per label, of characters that all file systems have; numbered where two would be the same."""
    names: list[str] = []
    for label in labels:
        name = re.sub(r"[^\w.-]+", "-", label)[:_LONGEST_NAME].strip("-.") or "run"
        taken = sum(other == name or other.startswith(f"{name}-") for other in names)
        names.append(f"{name}-{taken + 1}" if name in names else name)
    return names
