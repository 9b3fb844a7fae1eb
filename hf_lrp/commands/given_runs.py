"""What `hf-lrp figures` and `hf-lrp compare` share: reading runs and timelines, and drawing what they allow."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tqdm import tqdm

if TYPE_CHECKING:
    from hf_lrp.analysis.comparing import MeasuredRun
    from hf_lrp.analysis.figures.charts import Chart
    from hf_lrp.analysis.timeline import Timeline


class Given(NamedTuple):
    """What the user named, in order; timelines by folder."""

    runs: list[MeasuredRun]
    timelines: dict[Path, Timeline]


class Figure(NamedTuple):
    """A figure that was written: its chart, its folder within the output, and the picture as SVG."""

    chart: Chart
    folder: str
    svg: bytes

    @property
    def name(self) -> str:
        """Folder and stem, without a suffix."""
        return str(Path(self.folder, self.chart.stem))


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `read_given` and `write_figures` read."""
    parser.add_argument(
        "folders",
        metavar="RUN",
        type=Path,
        nargs="+",
        help="folder of an evaluation (`hf-lrp analyze`) or of a training timeline (`hf-lrp timeline`)",
    )
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder for the files")
    parser.add_argument(
        "--labels", metavar="LABEL", nargs="+", help="what figures call the runs, in order (default: their own labels)"
    )
    parser.add_argument(
        "--growth",
        action="store_true",
        help="the runs are in order from the least to the most data: draw arrows of growth",
    )


def read_given(args: argparse.Namespace) -> Given:
    """Read all runs and timelines, with a progress bar; raises where they cannot be drawn together."""
    from hf_lrp.analysis.comparing import check_comparable, measure, open_runs
    from hf_lrp.analysis.timeline import Timeline, is_timeline

    timelines = {folder: Timeline.load(folder) for folder in args.folders if is_timeline(folder)}
    folders = [folder for folder in args.folders if folder not in timelines]
    if args.growth and len(folders) < 2:
        args.usage_error("--growth orders runs: give two or more, from the least to the most data")
    if args.labels is not None and len(args.labels) != len(folders):
        args.usage_error(f"--labels has {len(args.labels)} labels for {len(folders)} runs: give one per run")
    opened = open_runs(folders, args.labels)
    runs = [measure(run, label) for run, label in tqdm(opened, desc="reading", unit="run", disable=None)]
    if runs:
        check_comparable(runs)
    return Given(runs, timelines)


def write_figures(given: Given, out: Path, *, growth: bool) -> list[Figure]:
    """Draw what the runs allow; figures of single runs have their own folders where several are given."""
    from hf_lrp.analysis.figures import write_figure

    planned = list(_plan(given, growth))
    figures = []
    for folder, chart in tqdm(planned, desc="drawing", unit="figure", disable=None):
        contents = write_figure(chart, out / folder)
        figures.append(Figure(chart, folder, contents["svg"]))
    return figures


def _plan(given: Given, growth: bool) -> Iterator[tuple[str, Chart]]:
    """The folder and chart of each figure."""
    from hf_lrp.analysis.figures.run_charts import charts_of_run, charts_of_runs
    from hf_lrp.analysis.figures.training_charts import charts_of_timeline

    labels = [run.label for run in given.runs] + [folder.resolve().name for folder in given.timelines]
    folders = _folder_names(labels) if len(labels) > 1 else [""]
    if len(given.runs) > 1:
        yield from (("", chart) for chart in charts_of_runs(given.runs, growth=growth))
    for folder, run in zip(folders, given.runs, strict=False):
        yield from ((folder, chart) for chart in charts_of_run(run))
    names = zip(folders[len(given.runs) :], labels[len(given.runs) :], strict=True)
    for (folder, label), timeline in zip(names, given.timelines.values(), strict=True):
        yield from ((folder, chart) for chart in charts_of_timeline(timeline, label))


def _folder_names(labels: list[str]) -> list[str]:
    """One folder name per label, of characters that all file systems have; numbered where two would be the same."""
    names: list[str] = []
    for label in labels:
        name = re.sub(r"[^\w.-]+", "-", label).strip("-.") or "run"
        taken = sum(other == name or other.startswith(f"{name}-") for other in names)
        names.append(f"{name}-{taken + 1}" if name in names else name)
    return names
