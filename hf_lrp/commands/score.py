"""Score translations: what they leave out of their source, and what has no support in it.

From one forward pass per pair: how far the source is covered (by the attention heads that
link words), how probable the translation is, source words that may be left out, and target
words that may be without support, each compared with translations that the model makes
itself. Hints where to look, not verdicts; docs/score.md has measurements. Interrupted, the
same command continues."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hf_lrp.commands.arguments import add_data, add_device, add_languages, add_model, add_num_beams, add_prompt
from hf_lrp.commands.loading import generate_options, load_data, load_model, read_device, read_prompt
from hf_lrp.data.files import prepare_destination, read_sentences

if TYPE_CHECKING:
    from hf_lrp.corpus.own_translations import OwnTranslations

EXAMPLES = """
  hf-lrp score Helsinki-NLP/opus-mt-en-de --data pairs.tsv --out scores.tsv
  hf-lrp score path/to/model --data sources.txt translations.txt --out scores.jsonl
  hf-lrp score path/to/model --data pairs.tsv --out scores.tsv --html scores.html
  hf-lrp score path/to/model --data pairs.tsv --calibration sources.txt --erasure --out scores.tsv
  hf-lrp score MODEL --data more.tsv --calibration scores.tsv.calibration.json --out more.jsonl
"""
_KINDS = (".tsv", ".jsonl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` reads."""
    add_model(parser)
    parser.add_argument(
        "--out", metavar="FILE", type=Path, required=True, help="scores.tsv or scores.jsonl; replaces an old one"
    )
    parser.add_argument(
        "--html",
        metavar="F",
        type=Path,
        help="also write a page: the pairs with flagged words, up to 1,000, the least covered first",
    )
    add_data(parser.add_argument_group("data", "sources and translations"))
    method = parser.add_argument_group("method")
    method.add_argument(
        "--calibration",
        metavar="FILE",
        type=Path,
        help="sentences to translate, one per line, or the .calibration.json of an earlier run (default: up to 200 of "
        "the sources)",
    )
    method.add_argument(
        "--rarity",
        metavar="SHARE",
        type=_share,
        default=0.02,
        help="source words are flagged that are rarer than this share of the words in the model's own translations, "
        "words of the translation that are rarer than a quarter of it (default: %(default)g)",
    )
    method.add_argument(
        "--erasure",
        action="store_true",
        help="measure source words by what the translation loses without them: a forward pass per token",
    )
    method.add_argument(
        "--ratio",
        action="store_true",
        help="measure target words by their log-probability over its mean with four other sources",
    )
    method.add_argument(
        "--source-share",
        action="store_true",
        help="also compute R(source), which takes as long as explaining; its usual range is written beside FILE",
    )
    add_prompt(method)
    add_num_beams(method, "the model's")
    add_languages(method)
    add_device(method)


def run(args: argparse.Namespace) -> None:
    """Read the pairs, check the output, then load the model and score."""
    if args.out.suffix not in _KINDS:
        args.usage_error(f"--out must end with {' or '.join(_KINDS)}, not {args.out.name!r}")
    if args.html is not None and args.html.resolve() == args.out.resolve():
        args.usage_error(f"{args.html} would be written twice: give --html its own file")
    for path in (args.out, args.html):
        if path is not None:
            prepare_destination(path)
    table = load_data(args)
    pairs = list(zip(table["source"], table["target"], strict=True))
    from hf_lrp.corpus.scoring import score_corpus
    from hf_lrp.models.loading import quiet_transformers

    calibration, device, prompt = _read_calibration(args), read_device(args), read_prompt(args)
    with quiet_transformers(unless=args.debug):
        model, tokenizer = load_model(args, args.model, device)
        rows = score_corpus(
            model,
            tokenizer,
            pairs,
            args.out,
            prompt=prompt,
            calibration=calibration,
            rarity=args.rarity,
            erasure=args.erasure,
            ratio=args.ratio,
            source_share=args.source_share,
            progress=sys.stderr.isatty(),
            page=args.html,
            **generate_options(args),
        )
    sides = [
        sum(any(word["flagged"] for word in row[f"{side}_words"]) for row in rows) for side in ("source", "target")
    ]
    print(
        f"wrote {args.out}: {len(rows)} pairs, {sides[0]} with words that may be left out, {sides[1]} with words that "
        "may be without support",
        file=sys.stderr,
    )
    if args.html is not None:
        print(f"wrote {args.html}", file=sys.stderr)


def _read_calibration(args: argparse.Namespace) -> OwnTranslations | list[str] | None:
    from hf_lrp.corpus.own_translations import OwnTranslations

    if args.calibration is None:
        return None
    if args.calibration.suffix != ".json":
        return read_sentences(str(args.calibration))
    if args.num_beams is not None:
        args.usage_error("--num-beams is for translations to calibrate on, and a calibration is given")
    return OwnTranslations.load(args.calibration)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share between 0 and 1")
    return value
