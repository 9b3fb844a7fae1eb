"""The arguments that `hf-lrp figures` and `hf-lrp compare` share, and what they name."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hf_lrp.commands.loading import require_folder

if TYPE_CHECKING:
    from hf_lrp.corpus.folders import Given


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `read_given` reads, and `growth`."""
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
    """Read all runs and timelines, with a progress bar in a terminal; raises where they cannot be drawn together."""
    require_folder(args.out)
    from hf_lrp.corpus.folders import read_folders
    from hf_lrp.corpus.timeline import is_timeline

    runs = sum(not is_timeline(folder) for folder in args.folders)
    if args.growth and runs < 2:
        args.usage_error("--growth orders runs: give two or more, from the least to the most data")
    if args.labels is not None and len(args.labels) != runs:
        args.usage_error(f"--labels has {len(args.labels)} labels for {runs} runs: give one per run")
    return read_folders(args.folders, args.labels, progress=sys.stderr.isatty())
