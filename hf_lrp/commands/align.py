"""Link the words of sources and translations.

Links are read from the attention heads of a translation model that make them, in
one forward pass per batch of pairs. Which heads these are is found on the pairs
themselves, chosen by pairs with known links (--gold), or read from the model's
generation config. Words are what spaces separate. Interrupted, the same command
continues; `accelerate launch -m hf_lrp align ...` shares the pairs among processes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from hf_lrp.commands.arguments import add_data, add_device, add_languages, add_model, add_prompt
from hf_lrp.commands.loading import load_data, load_model, read_device, read_prompt
from hf_lrp.data.files import prepare_destination

EXAMPLES = """
  hf-lrp align Helsinki-NLP/opus-mt-en-de --data pairs.tsv --out links.txt
  hf-lrp align path/to/model --data sources.txt translations.txt --out links.txt --strengths
  hf-lrp align EN-DE --reverse DE-EN --data pairs.tsv --out links.txt
  hf-lrp align path/to/model --data pairs.tsv --gold gold.tsv --out links.txt --save-heads
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` reads."""
    add_model(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        required=True,
        help="a line per pair, `0-0 1-2`: words of the source and of the target, from 0; replaces an old file",
    )
    parser.add_argument("--strengths", action="store_true", help="write how strong each link is: `0-0:0.93`")
    add_data(parser.add_argument_group("data", "sources and translations"))
    method = parser.add_argument_group("method")
    method.add_argument(
        "--reverse", metavar="MODEL", help="a model of the other direction, read together with the first"
    )
    method.add_argument(
        "--gold",
        metavar="FILE",
        type=Path,
        help="pairs with known links, which choose heads and teach how links are read: lines of source, target and "
        "links `0-0 1-2 2p1` with tabs between them",
    )
    method.add_argument(
        "--save-heads",
        action="store_true",
        help="write the heads that were found into the generation_config.json of a MODEL that is a folder",
    )
    add_prompt(method)
    add_languages(method)
    add_device(method)


def run(args: argparse.Namespace) -> None:
    """Check the files, then load the model and link."""
    if args.save_heads and (args.model is None or not Path(args.model).is_dir()):
        args.usage_error("--save-heads writes into the folder of a model: give the model as a folder")
    prepare_destination(args.out)
    gold = None if args.gold is None else _read_gold(args.gold)
    table = load_data(args)
    pairs = list(zip(table["source"], table["target"], strict=True))
    from hf_lrp.corpus.aligning import align_corpus
    from hf_lrp.corpus.processes import this_process
    from hf_lrp.links.aligner import Aligner
    from hf_lrp.models.loading import quiet_transformers

    device, prompt = read_device(args), read_prompt(args)
    with quiet_transformers(unless=args.debug):
        model, tokenizer = load_model(args, args.model, device)
        reverse = None if args.reverse is None else load_model(args, args.reverse, device)
        aligner = Aligner(model, tokenizer, reverse=reverse, prompt=prompt)
        heads = align_corpus(
            aligner, pairs, args.out, gold=gold, strengths=args.strengths, progress=sys.stderr.isatty()
        )
    if not this_process().is_main_process:
        return
    if args.save_heads:
        heads.save(model)
        model.generation_config.save_pretrained(args.model)
    print(f"wrote {args.out}: links of {len(pairs)} pairs", file=sys.stderr)
    print(f"heads: {heads}", file=sys.stderr)


def _read_gold(path: Path) -> list[tuple[Any, Any, str]]:
    """Words of both sides and links, of lines with three columns."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
        columns = line.split("\t")
        if len(columns) != 3:
            raise ValueError(f"{path}, line {number} has {len(columns)} columns: source, target and links are needed.")
        rows.append((columns[0].split(), columns[1].split(), columns[2]))
    return rows
