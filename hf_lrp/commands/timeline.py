"""Evaluate the checkpoints of a training run in order, and measure how contributions develop.

Give the folder of a run, or the checkpoints themselves. All are evaluated on the
same pairs, each into a folder of DIR; a timeline that was interrupted continues
when the same command is started again. DIR gets timeline.json and CSV files with
every quantity over training steps, and the stages of training are shown."""

from __future__ import annotations

import argparse
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_lrp.commands.arguments import add_data, add_evaluation, add_selection
from hf_lrp.commands.loading import evaluation_options, load_data, load_model, read_device, require_folder
from hf_lrp.results.prefix_types import PREFIXES

if TYPE_CHECKING:
    from hf_lrp.corpus.timeline import Timeline

EXAMPLES = """
  hf-lrp timeline runs/base --data test.tsv --out timelines/base
  hf-lrp timeline runs/base --data test.en test.fr --lengths 20,23 --number 200 --out timelines/base
  hf-lrp timeline base/checkpoint-1000 base/checkpoint-9000 --data test.tsv --out timelines/two
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` reads."""
    parser.add_argument(
        "folders",
        metavar="FOLDER",
        type=Path,
        nargs="+",
        help="one folder: of a run, with checkpoint-STEP folders; several: the checkpoints",
    )
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder for the results")
    data = parser.add_argument_group("data", "pairs that the models were not trained on")
    add_data(data)
    add_selection(data)
    method = parser.add_argument_group("method")
    method.add_argument(
        "--prefix",
        choices=PREFIXES,
        default="reference",
        help="what the models are conditioned on: the target (default), the target of another pair, or what each "
        "writes itself, which gives no divergences",
    )
    add_evaluation(method, "the models'")


def run(args: argparse.Namespace) -> None:
    """Evaluate the checkpoints, measure, write, and show the overall figures."""
    for folder in args.folders:
        if not folder.is_dir():
            raise NotADirectoryError(f"there is no folder {folder}")
    if args.num_beams is not None and args.prefix != "model":
        args.usage_error("--num-beams is for --prefix model")
    require_folder(args.out)
    from hf_lrp.corpus.processes import this_process
    from hf_lrp.corpus.timeline import evaluate_timeline, find_checkpoints
    from hf_lrp.models.loading import quiet_transformers

    options, checkpoints = evaluation_options(args), find_checkpoints(args.folders)
    state = this_process()
    device = state.device if args.device is None else read_device(args)
    with state.main_process_first():  # the others find it in the cache
        pairs = load_data(args)
    started = count(1)

    def load(folder: Path) -> tuple[Any, Any]:
        if state.is_main_process:
            print(f"{folder.name} ({next(started)} of {len(checkpoints)})", file=sys.stderr)
        return load_model(args, folder, device)

    with quiet_transformers(unless=args.debug):
        timeline = evaluate_timeline(
            checkpoints,
            load,
            pairs,
            args.out,
            prefix=args.prefix,
            **options,
        )
    if state.is_main_process:
        _show(timeline)
        print(f"wrote {args.out}", file=sys.stderr)


def _show(timeline: Timeline) -> None:
    """Print the overall figures of each checkpoint and the stages."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from hf_lrp.corpus.measures import DIVERGENCE
    from hf_lrp.results.quantities import QUANTITIES

    console = Console(highlight=False)
    console.print(f"{timeline.number:,} pairs, {timeline.prefix} prefixes", markup=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    titles = {name: quantity.column.replace("\n", " ") for name, quantity in QUANTITIES.items()} | {
        DIVERGENCE: "KL to the last"
    }
    shown = {name: title for name, title in titles.items() if name in timeline.overall}
    for title in ("step", *shown.values()):
        table.add_column(title, justify="right")
    for row, step in enumerate(timeline.steps):
        table.add_row(f"{step}", *(f"{timeline.overall[name].value[row]:.4f}" for name in shown))
    console.print(table)
    console.print("Means over the steps of each sentence from the second on, then over sentences.", markup=False)
    for name, stages in timeline.stages.items():
        if stages.first_end is None:
            text = f"no turning point: {stages.reason}"
        else:
            slow = f"slowly after step {stages.second_end:.0f}" if stages.second_end is not None else stages.reason
            text = f"falls by {stages.fall:.3f} until step {stages.first_end:.0f}, rises by {stages.rise:.3f}; {slow}"
        console.print(f"{titles[name]}: {text}", markup=False)
