"""Average the parameters of the latest checkpoints of a training run.

Give the folder of a run, or the checkpoints themselves. The result is a
checkpoint with the configuration and tokenizer of the last one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hf_lrp.commands.arguments import count

EXAMPLES = """
  hf-lrp average runs/base --out models/base
  hf-lrp average runs/base --last 10 --out models/base --overwrite
  hf-lrp average runs/base/checkpoint-900 runs/base/checkpoint-1000 --out models/base
"""
LAST = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` reads."""
    parser.add_argument(
        "folders",
        metavar="FOLDER",
        type=Path,
        nargs="+",
        help="one folder: of a run, with checkpoint-STEP folders; several: the checkpoints, the latest last",
    )
    parser.add_argument(
        "--last", metavar="N", type=count, help=f"average the N latest checkpoints of the run (default: {LAST})"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder for the averaged checkpoint")
    parser.add_argument("--overwrite", action="store_true", help="replace DIR if it holds a checkpoint already")


def run(args: argparse.Namespace) -> None:
    """Average, and say what."""
    if args.last is not None and len(args.folders) > 1:
        args.usage_error("--last is for the folder of a run: give one folder, or leave --last out")
    for folder in args.folders:
        if not folder.is_dir():
            raise NotADirectoryError(f"there is no folder {folder}")
    from hf_lrp.models.checkpoints import latest_checkpoints
    from hf_lrp.training.averaging import average_checkpoints

    checkpoints = args.folders
    if len(checkpoints) == 1:
        checkpoints = latest_checkpoints(checkpoints[0], LAST if args.last is None else args.last)
    average_checkpoints(checkpoints, args.out, overwrite=args.overwrite)
    names = ", ".join(checkpoint.name for checkpoint in checkpoints)
    print(f"wrote {args.out}: the average of {names}", file=sys.stderr)
