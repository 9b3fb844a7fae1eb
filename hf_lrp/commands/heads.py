"""Measure how much of the predictions' relevance goes through each attention head.

Shares are means over the steps of a sentence, then over sentences, with intervals.
With --mask N, further pairs are translated with the heads of the lowest and of the
highest shares masked, and with random ones, to see whether shares mean something.
DIR gets heads.json, heads.csv and heads.png, and masked.json with --mask.
Interrupted, the same command continues."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hf_lrp.commands.arguments import add_data, add_device, add_languages, add_model, add_prompt, count
from hf_lrp.commands.loading import load_data, load_model, read_device, read_prompt, require_folder

if TYPE_CHECKING:
    from hf_lrp.corpus.heads import HeadShares
    from hf_lrp.corpus.masked_heads import MaskedHeads

EXAMPLES = """
  hf-lrp heads --data pairs.tsv --out heads
  hf-lrp heads path/to/model --data sources.txt targets.txt --number 50 --mask 200 --out heads
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` reads."""
    add_model(parser)
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder for the results")
    data = parser.add_argument_group("data", "sources and targets, from the first on")
    add_data(data)
    data.add_argument(
        "--number", metavar="N", type=count, default=100, help="pairs to measure shares on (default: 100)"
    )
    data.add_argument(
        "--mask", metavar="N", type=count, help="translate the next N pairs with heads masked, and score by chrF"
    )
    method = parser.add_argument_group("method")
    add_prompt(method)
    add_languages(method)
    add_device(method)


def run(args: argparse.Namespace) -> None:
    """Measure, mask, draw, and show the heads with the largest shares."""
    require_folder(args.out)
    table = load_data(args)
    wanted = args.number + (args.mask or 0)
    if args.mask is not None and len(table) <= args.number:
        args.usage_error(f"--mask needs pairs beyond the first {args.number}, but there are {len(table)}")
    table = table.select(range(min(wanted, len(table))))
    pairs = list(zip(table["source"], table["target"], strict=True))
    from hf_lrp.corpus import masked_heads
    from hf_lrp.corpus.heads import measure_heads
    from hf_lrp.data.files import write_atomically
    from hf_lrp.models.loading import quiet_transformers
    from hf_lrp.pictures.heads import draw_heads
    from hf_lrp.pictures.look import save

    device, prompt, progress = read_device(args), read_prompt(args), sys.stderr.isatty()
    with quiet_transformers(unless=args.debug):
        model, tokenizer = load_model(args, args.model, device)
        shares = measure_heads(model, tokenizer, pairs[: args.number], args.out, prompt=prompt, progress=progress)
        _show(shares)
        masked = None
        if args.mask is not None:
            rest = pairs[args.number :]
            masked = masked_heads.mask_heads(
                model, tokenizer, shares, rest, args.out, prompt=prompt, progress=progress
            )
            _tell(masked)
    curves = None if masked is None else {order: masked.estimates(order) for order in masked_heads.ORDERS}
    write_atomically(args.out / "heads.png", save(draw_heads(shares.heads, curves), "png"))
    print(f"wrote {args.out}", file=sys.stderr)


def _show(shares: HeadShares) -> None:
    """Print each layer's shares by kind."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"{shares.sentences:,} sentences: shares of heads in %, from the largest of a layer", markup=False)
    for kind, estimate in shares.heads.items():
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for title in ("layer", kind, "heads"):
            table.add_column(title, justify="left" if title == "heads" else "right")
        for layer in reversed(range(len(estimate.value))):
            heads = estimate.value[layer]
            order = (-heads).argsort(kind="stable")
            named = "  ".join(f"{head + 1}: {100 * heads[head]:.2f}" for head in order)
            table.add_row(f"{layer + 1}", f"{100 * heads.sum():.1f}", named)
        console.print(table)


def _tell(masked: MaskedHeads) -> None:
    """Print what masking costs."""
    from hf_lrp.results.intervals import bootstrap_mean, write_estimate

    print(f"chrF of {len(masked.whole)} translations: {write_estimate(bootstrap_mean(masked.whole))}")
    for order in ("lowest", "random", "highest"):
        parts = [f"{fraction:.3g} masked {e.value:.1f}" for fraction, e in masked.estimates(order).items() if fraction]
        print(f"  {order}{'' if order == 'random' else ' shares first'}: {', '.join(parts)}")
    for order in ("lowest", "highest"):
        print(f"  {order} less random, mean: {write_estimate(masked.advantage(order), '+')}")
    print("Shares of heads mean something here." if masked.means_something else "Shares of heads say little here.")
