"""Score how much translations depend on their source, against the model's own.

R_t(source) of each given translation is compared with its mean and standard
deviation in translations that the model makes itself, at the same position. A low
score says that the model does not need the source to predict this translation, as
for translations of something else. It is a hint, not a proof; docs/score.md has
measurements. Interrupted, the same command continues."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hf_lrp.commands.arguments import add_data, add_device, add_languages, add_model, add_num_beams, add_prompt
from hf_lrp.commands.loading import generate_options, load_data, load_model, read_device, read_prompt
from hf_lrp.data.files import prepare_destination, read_sentences

if TYPE_CHECKING:
    from hf_lrp.corpus.calibration import Calibration

EXAMPLES = """
  hf-lrp score Helsinki-NLP/opus-mt-en-de --data pairs.tsv --out scores.tsv
  hf-lrp score path/to/model --data sources.txt translations.txt --out scores.jsonl
  hf-lrp score path/to/model --data pairs.tsv --out scores.tsv --html scores.html
  hf-lrp score path/to/model --data pairs.tsv --calibration sources.txt --out scores.tsv
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
        help="also write a page: the pairs with the lowest scores, up to 1,000, to open",
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
        "--threshold",
        metavar="Z",
        type=_finite,
        default=-2.0,
        help="words with a z-score below this are flagged (default: %(default)g)",
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
            threshold=args.threshold,
            progress=sys.stderr.isatty(),
            page=args.html,
            **generate_options(args),
        )
    flagged = sum(any(row["flagged"]) for row in rows)
    print(f"wrote {args.out}: {len(rows)} pairs, {flagged} with flagged words", file=sys.stderr)
    if args.html is not None:
        print(f"wrote {args.html}", file=sys.stderr)


def _read_calibration(args: argparse.Namespace) -> Calibration | list[str] | None:
    from hf_lrp.corpus.calibration import Calibration

    if args.calibration is None:
        return None
    if args.calibration.suffix != ".json":
        return read_sentences(str(args.calibration))
    if args.num_beams is not None:
        args.usage_error("--num-beams is for translations to calibrate on, and a calibration is given")
    return Calibration.load(args.calibration)


def _finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return value
