"""Evaluate a model on a corpus: what source and prefix contribute, over many pairs.

Pairs are chosen by their numbers of tokens, as in the paper, or of mixed
lengths. Results go to DIR shard by shard: a run that was interrupted continues
when the same command is started again, and `accelerate launch` shares the work
among processes."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_lrp.commands.arguments import add_languages, add_max_memory, add_model

if TYPE_CHECKING:
    from hf_lrp.analysis import Run

EXAMPLES = """
  hf-lrp analyze --data pairs.tsv --out runs/embedded
  hf-lrp analyze Helsinki-NLP/opus-mt-en-de --data news.en news.de --lengths 20,23 --out runs/opus
  hf-lrp analyze path/to/model --data wmt14 --config fr-en --split validation --source-column en
      --target-column fr --prefix reference model --lengths mixed --number 500 --out runs/wmt
  accelerate launch --num_processes 8 -m hf_lrp analyze MODEL --data pairs.tsv --out runs/m
"""
BY_EACH_PROCESS = ", by each process (default: 2GB)"
_PREFIXES = ("reference", "model", "random")
_COLUMNS = {
    "source_total": "R(source)",
    "source_entropy": "source\nentropy",
    "target_entropy": "prefix\nentropy",
    "start_share": "start\nshare",
    "accuracy": "accuracy",
    "worst_conservation_error": "conservation\nerror",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` reads."""
    add_model(parser)
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder for the results")
    parser.add_argument("--label", metavar="TEXT", help="what figures call this run (default: the name of DIR)")
    add_data_arguments(parser.add_argument_group("data"))
    _add_method(parser.add_argument_group("method"))


def add_data_arguments(group: argparse._ArgumentGroup) -> None:
    """Declare which pairs of which data are evaluated; `load_data` reads the data."""
    group.add_argument(
        "--data",
        metavar="FILE|HUB",
        nargs="+",
        required=True,
        help="a TSV, JSON or Parquet file, two text files with sources and targets, or a dataset on the Hub",
    )
    for side in ("source", "target"):
        group.add_argument(
            f"--{side}-column",
            metavar="NAME",
            default=side,
            help=f"column of the {side} in JSON, Parquet and Hub data, or its language in a column `translation` "
            f"(default: {side})",
        )
    group.add_argument("--split", metavar="NAME", default="train", help="of a Hub dataset (default: train)")
    group.add_argument("--config", metavar="NAME", help="of a Hub dataset that has several")
    group.add_argument(
        "--lengths",
        metavar="auto|S,T|mixed",
        type=_lengths,
        default="auto",
        help="pairs with S source and T target tokens, the end of the sentence included; auto: the most frequent "
        "such lengths (default); mixed: all lengths",
    )
    group.add_argument("--longest", metavar="N", type=_count, help="leave pairs with more tokens on a side out")
    group.add_argument(
        "--number", metavar="N", type=_count, default=1000, help="how many pairs at most (default: 1000)"
    )
    group.add_argument(
        "--seed", metavar="N", type=int, default=0, help="chooses pairs and random prefixes (default: 0)"
    )


def _add_method(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--prefix",
        choices=_PREFIXES,
        nargs="+",
        default=list(_PREFIXES),
        help="what the model is conditioned on: the target, its own translation, the target of another pair "
        "(default: all three)",
    )
    add_languages(group)
    group.add_argument(
        "--num-beams", metavar="N", type=_count, help="of the model's own translations (default: the checkpoint's)"
    )
    add_max_memory(group, BY_EACH_PROCESS)


def _lengths(text: str) -> Any:
    """The lengths that `evaluate` is given."""
    if text in ("auto", "mixed"):
        return "auto" if text == "auto" else None
    if not re.fullmatch(r"[1-9]\d*,[1-9]\d*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither auto nor mixed nor two numbers such as 20,23")
    source, target = text.split(",")
    return int(source), int(target)


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def run(args: argparse.Namespace) -> None:
    """Load the data and the model, evaluate, and show the overall figures."""
    if len(set(args.prefix)) < len(args.prefix):
        args.usage_error("--prefix names a type twice")
    if args.num_beams is not None and "model" not in args.prefix:
        args.usage_error("--num-beams is for --prefix model")
    from hf_lrp.analysis import evaluate
    from hf_lrp.analysis.run.scheduling import this_process
    from hf_lrp.explaining.loading import load_checkpoint, quiet_transformers

    state = this_process()
    with state.main_process_first():  # the others find it in the cache
        pairs = load_data(args)
    with quiet_transformers(unless=args.debug):
        model, tokenizer = load_checkpoint(args.model, args.source_lang, args.target_lang)
        if state.device.type == "cuda":
            model.to(state.device)
        result = evaluate(
            model,
            tokenizer,
            pairs,
            args.out,
            prefixes=args.prefix,
            lengths=args.lengths,
            number=args.number,
            longest=args.longest,
            seed=args.seed,
            label=args.label,
            max_memory=args.max_memory,
            **({} if args.num_beams is None else {"num_beams": args.num_beams}),
        )
    if state.is_main_process:
        _show(result)
        print(f"wrote {args.out}", file=sys.stderr)


def load_data(args: argparse.Namespace) -> Any:
    """The pairs that the arguments name."""
    from hf_lrp.data.pairs import load_pairs

    return load_pairs(
        args.data[0] if len(args.data) == 1 else args.data,
        source=args.source_column,
        target=args.target_column,
        split=args.split,
        config=args.config,
    )


def _show(run: Run) -> None:
    """Print what was evaluated and the overall figures."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    lengths = "mixed lengths" if run.lengths is None else "{} source and {} target tokens".format(*run.lengths)
    console = Console(highlight=False)
    console.print(f"{run.manifest['model']}: {run.number:,} pairs with {lengths}", markup=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("prefix")
    for title in _COLUMNS.values():
        table.add_column(title, justify="right")
    for prefix, found in run.metrics.items():
        *values, error = (found[name] for name in _COLUMNS)
        table.add_row(prefix, *("-" if value is None else f"{value:.3f}" for value in values), f"{error:.0e}")
    console.print(table)
    console.print("Means over the steps of each sentence from the second on, then over sentences.", markup=False)
