"""Explain an everyday sentence with the embedded model, without a network.

Prints the translation and what contributed to it, and writes a picture and
a page on which words are chosen to see what they were made from."""

from __future__ import annotations

import argparse
from pathlib import Path

from hf_lrp.commands.outputs import Outputs, show
from hf_lrp.results.target_texts import target_texts

EXAMPLES = """
  hf-lrp demo
  hf-lrp demo --out /tmp/hf-lrp-demo
"""
SENTENCE = "I would like a cup of coffee, please."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` reads."""
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("hf-lrp-demo"),
        help="folder for the picture and the page (default: hf-lrp-demo); created if missing",
    )


def run(args: argparse.Namespace) -> None:
    """Explain the sentence, and say what to try next."""
    page, picture = args.out / "contributions.html", args.out / "contributions.png"
    outputs = Outputs(1, html=str(page), png=str(picture))
    outputs.prepare()
    from hf_lrp import explain
    from hf_lrp.models.loading import load_checkpoint, quiet_transformers

    with quiet_transformers(unless=args.debug):
        model, tokenizer = load_checkpoint()
        results = explain(model, tokenizer, [SENTENCE])
    outputs.write(results)
    show(results, [SENTENCE], target_texts(tokenizer, results))
    print(_what_next(page, picture))


def _what_next(page: Path, picture: Path) -> str:
    return f"""
Each line is a prediction: R(src) is the share of the English sentence in it,
R(tgt) that of the French written before it. Beside them stand the tokens that
contributed most.

heat map  {picture}
page      {page}  (open it in a browser, choose words)

Try next:
  hf-lrp explain --source 'Where is the station?'
  hf-lrp explain --source 'Where is the station?' --target 'Où est la banque ?' --words
  hf-lrp explain path/or/hub-id --source-file sentences.txt --html page.html
  hf-lrp explain --help"""
