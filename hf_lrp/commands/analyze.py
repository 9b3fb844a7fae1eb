"""Evaluate a model on a corpus: what source and prefix contribute, over many pairs.

Pairs are chosen by their numbers of tokens, as in the paper, or of mixed
lengths. Results go to DIR shard by shard: a run that was interrupted continues
when the same command is started again, and `accelerate launch` shares the work
among processes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hf_lrp.commands.arguments import add_data, add_evaluation, add_model, add_selection
from hf_lrp.commands.loading import (
    evaluation_options,
    generate_options,
    load_data,
    load_model,
    read_device,
    require_folder,
)
from hf_lrp.data.visible import visible
from hf_lrp.results.prefix_types import PREFIX_TYPES, PREFIXES

if TYPE_CHECKING:
    from hf_lrp.corpus import Run

EXAMPLES = """
  hf-lrp analyze --data pairs.tsv --out runs/embedded
  hf-lrp analyze Helsinki-NLP/opus-mt-en-de --data news.en news.de --lengths 20,23 --out runs/opus
  hf-lrp analyze path/to/model --data wmt14 --config fr-en --split validation --source-column en
      --target-column fr --prefix reference model --lengths mixed --number 500 --out runs/wmt
  accelerate launch --num_processes 8 -m hf_lrp analyze MODEL --data pairs.tsv --out runs/m
"""
_FURTHER = {"start_share": "start\nshare", "worst_conservation_error": "conservation\nerror"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` reads."""
    add_model(parser)
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder for the results")
    parser.add_argument("--label", metavar="TEXT", help="what figures call this run (default: the name of DIR)")
    data = parser.add_argument_group("data")
    add_data(data)
    add_selection(data)
    method = parser.add_argument_group("method")
    method.add_argument(
        "--prefix",
        choices=PREFIXES,
        nargs="+",
        default=list(PREFIXES),
        help=f"what the model is conditioned on: {', '.join(each.meaning for each in PREFIX_TYPES.values())} "
        "(default: all)",
    )
    add_evaluation(method, "the model's")


def run(args: argparse.Namespace) -> None:
    """Load the data and the model, evaluate, and show the overall figures."""
    if len(set(args.prefix)) < len(args.prefix):
        args.usage_error("--prefix lists a type twice")
    if args.num_beams is not None and "model" not in args.prefix:
        args.usage_error("--num-beams is for --prefix model")
    require_folder(args.out)
    from hf_lrp.corpus import evaluate
    from hf_lrp.corpus.evaluating import require_settings
    from hf_lrp.corpus.processes import this_process
    from hf_lrp.models.loading import quiet_transformers

    options, state = evaluation_options(args), this_process()
    prompt = options["prompt"]
    require_settings(
        args.out,
        prefixes=args.prefix,
        seed=args.seed,
        method=options["method"],
        request={"lengths": args.lengths, "number": args.number},
        generate=generate_options(args),
        **({} if prompt is None else {"prompt": prompt.settings}),
    )
    device = state.device if args.device is None else read_device(args)
    with state.main_process_first():  # the others find it in the cache
        pairs = load_data(args)
    with quiet_transformers(unless=args.debug):
        model, tokenizer = load_model(args, args.model, device)
        result = evaluate(
            model,
            tokenizer,
            pairs,
            args.out,
            prefixes=args.prefix,
            label=args.label,
            **options,
        )
    if state.is_main_process:
        _show(result)
        print(f"wrote {args.out}", file=sys.stderr)


def _show(run: Run) -> None:
    """Print what was evaluated and the overall figures."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from hf_lrp.corpus.summarizing import part_of
    from hf_lrp.results.quantities import QUANTITIES

    lengths = "mixed lengths" if run.lengths is None else "{} source and {} target tokens".format(*run.lengths)
    console = Console(highlight=False)
    console.print(f"{run.manifest['model']}: {run.number:,} pairs with {lengths}", markup=False, soft_wrap=True)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("prefix")
    columns = {name: quantity.column for name, quantity in QUANTITIES.items()} | _FURTHER
    for title in columns.values():
        table.add_column(title, justify="right")
    for prefix, found in run.metrics.items():
        *values, error = (found[name] for name in columns)
        table.add_row(prefix, *("-" if value is None else f"{value:.3f}" for value in values), f"{error:.0e}")
    console.print(table)
    parts = {name: part for found in run.metrics.values() for name in found if (part := part_of(name)) is not None}
    if parts:
        table = Table("prefix", box=SIMPLE_HEAD, pad_edge=False)
        for part in parts.values():
            table.add_column(visible(part), justify="right")
        for prefix, found in run.metrics.items():
            table.add_row(prefix, *(f"{found[name]:.3f}" if found.get(name) is not None else "-" for name in parts))
        console.print("Raw shares of the parts of the prompt:", table, sep="\n", markup=False)
    console.print("Means over the steps of each sentence from the second on, then over sentences.", markup=False)
