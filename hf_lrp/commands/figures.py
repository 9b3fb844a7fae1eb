"""Draw the paper's figures from evaluations.

One run gives contributions by position, use of source positions,
entropies and prefix types; several runs of the same sentences are also
drawn side by side. A timeline gives the figures of training.

Each figure is written as PDF, SVG and PNG, with its numbers as CSV."""

from __future__ import annotations

import argparse
import sys

from hf_lrp.commands.given_runs import add_run_arguments, read_given

EXAMPLES = """
  hf-lrp figures runs/opus --out figures
  hf-lrp figures runs/baseline runs/dropout runs/mrt --out figures
  hf-lrp figures runs/1m runs/5m runs/30m --growth --labels 1m 5m 30m --out figures
  hf-lrp figures runs/timeline --out figures
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` reads."""
    add_run_arguments(parser)
    parser.add_argument(
        "--no-line",
        action="store_true",
        help="leave out the line below each figure that names model, number of sentences and bands",
    )


def run(args: argparse.Namespace) -> None:
    """Draw, and say where the figures are."""
    given = read_given(args)
    from hf_lrp.corpus.folders import draw_folders

    for figure in draw_folders(
        given, args.out, growth=args.growth, line=not args.no_line, progress=sys.stderr.isatty()
    ):
        print(f"wrote {args.out / figure.name} (.pdf .svg .png .csv)", file=sys.stderr)
