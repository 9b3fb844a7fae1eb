"""Compare evaluations: means, differences paired by sentence, figures, and a report.

The first run is the baseline. Into DIR go means.csv, differences.csv,
comparison.json, the figures (see `hf-lrp figures`) in a folder of that
name, and report.html, one page with all of it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from hf_lrp.commands.given_runs import add_run_arguments, read_given

if TYPE_CHECKING:
    from hf_lrp.corpus.run_comparison import RunComparison

EXAMPLES = """
  hf-lrp compare runs/baseline runs/dropout runs/mrt --out comparison
  hf-lrp compare runs/1m runs/5m runs/30m --growth --out comparison
  hf-lrp compare runs/timeline --out comparison
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` reads."""
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Compare, write everything, and print the differences."""
    given = read_given(args)
    if not given.runs and len(given.timelines) > 1:
        args.usage_error("the checkpoints of one timeline can be compared: give one, or runs")
    from hf_lrp.corpus.folders import compare_folders

    comparison = compare_folders(given, args.out, growth=args.growth, progress=sys.stderr.isatty())
    for name in ("means.csv", "differences.csv", "comparison.json", "report.html", "figures"):
        print(f"wrote {args.out / name}", file=sys.stderr)
    print("\n".join(_table(comparison)))


def _table(comparison: RunComparison) -> list[str]:
    """Lines with the mean of each run, and its difference to the first."""
    from rich.cells import cell_len, set_cell_size

    from hf_lrp.corpus.run_comparison import in_words
    from hf_lrp.results.intervals import write_estimate
    from hf_lrp.results.prefix_types import PREFIXES

    differences = {(item.prefix, item.quantity, item.run): item for item in comparison.difference_estimates}
    lines = [("prefix", "quantity", "run", "mean", "difference to the first" if differences else "")]
    quantities = dict.fromkeys(mean.quantity for mean in comparison.mean_estimates)
    order = {name: place for place, name in enumerate((*PREFIXES, *quantities))}
    for mean in sorted(comparison.mean_estimates, key=lambda mean: (order[mean.prefix], order[mean.quantity])):
        difference = differences.get((mean.prefix, mean.quantity, mean.run))
        written = ""
        if difference is not None:
            estimate = write_estimate(difference.estimate, "+")
            written = f"{estimate} *" if estimate.excludes_zero else str(estimate)
        lines.append((mean.prefix, in_words(mean.quantity), mean.run, str(write_estimate(mean.estimate)), written))
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]  # in columns of the terminal
    rows = ["  ".join(map(set_cell_size, line, widths)).rstrip() for line in lines]
    about = "Means over the steps of each sentence from the second on, then over sentences."
    return [*rows, *["* the 95 % interval excludes 0"] * bool(differences), about, *comparison.notes]
