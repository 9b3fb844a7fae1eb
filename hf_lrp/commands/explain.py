"""Show what source and prefix contribute to each prediction for given sentences.

Without a target the model translates; with one, the target is the prefix.
Sentences are given as options, in files with one per line, or on standard input.
A table is printed; pages, pictures and files can be written as well."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hf_lrp.commands.arguments import (
    add_device,
    add_languages,
    add_max_memory,
    add_method,
    add_model,
    add_num_beams,
    add_prompt,
    seed,
)
from hf_lrp.commands.loading import generate_options, load_model, read_device, read_method, read_prompt
from hf_lrp.commands.outputs import Outputs, show
from hf_lrp.data.files import STANDARD_STREAM, read_sentences
from hf_lrp.results.target_texts import target_texts

if TYPE_CHECKING:
    from hf_lrp.corpus.calibration import Calibration
    from hf_lrp.methods.method import Method

EXAMPLES = """
  hf-lrp explain --source 'Where is the station?'
  hf-lrp explain --source 'Where is the station?' --target 'Où est la gare ?' --predict target
  hf-lrp explain --source 'Where is the station?' --target 'Où est la gare ?' --contrast gare=banque
  hf-lrp explain --source 'Where is the station?' --flow layers.html
  hf-lrp explain Helsinki-NLP/opus-mt-en-de --source-file sentences.txt --html page.html
  cat sentences.txt | hf-lrp explain path/to/model --json - > contributions.json
  hf-lrp explain --source 'I am hungry.' --prefix random --pool unrelated.fr.txt --png heat.png
  hf-lrp explain HuggingFaceTB/SmolLM2-135M-Instruct --source 'I am hungry.'
      --prompt '{examples}\\nEnglish: {source}\\nFrench:' --part examples=@examples.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` reads."""
    add_model(parser)
    texts = parser.add_argument_group("texts", "one target per source, in the same order")
    for side, role in (("source", "to translate"), ("target", "to predict; it becomes the prefix")):
        one_of = texts.add_mutually_exclusive_group()
        one_of.add_argument(
            f"--{side}",
            metavar="TEXT",
            action="append",
            help=f"a sentence {role}; repeat it for several; - reads standard input",
        )
        one_of.add_argument(
            f"--{side}-file", metavar="FILE", help=f"{side} sentences, one per line, UTF-8; - is standard input"
        )
    add_languages(texts)
    add_prompt(texts)
    _add_method(parser.add_argument_group("method"))
    _add_outputs(
        parser.add_argument_group(
            "output",
            "Files replace old ones; missing folders are created. Several sentences share one page\n"
            "and one JSON list, but have pictures and saved files of their own: F-1.png, F-2.png, ...",
        )
    )


def _add_method(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--prefix",
        choices=("model", "reference", "random"),
        help="what the model is conditioned on: its own translation (default without a target), the target (default "
        "with one), or an unrelated sentence: another one's target, or one of --pool",
    )
    group.add_argument(
        "--predict",
        choices=("top1", "target"),
        help="what is explained at each step: the most probable token (default), or the token that follows in the "
        "prefix",
    )
    group.add_argument(
        "--contrast",
        metavar="WORD=OTHER",
        type=_contrast,
        action="append",
        help="explain why WORD of the target is predicted and not OTHER: the difference of both at the step where "
        "they part; repeat it for several words, of one sentence",
    )
    group.add_argument(
        "--start-token",
        choices=("exclude", "keep"),
        default="exclude",
        help="leave the decoder start token out, so that source and prefix sum to 1 (default), or keep raw shares",
    )
    group.add_argument("--pool", metavar="FILE", help="unrelated target sentences for --prefix random, one per line")
    group.add_argument(
        "--seed", metavar="N", type=seed, default=0, help="makes random prefixes repeatable (default: 0)"
    )
    add_method(group)
    add_num_beams(group, "the model's")
    add_device(group)
    add_max_memory(group, " (default: half of what is free)")


def _add_outputs(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--words", action="store_true", help="show and write words instead of sub-word pieces")
    group.add_argument(
        "--html", metavar="F", help="write a page on which words are chosen to see what they were made from"
    )
    group.add_argument(
        "--calibration",
        metavar="FILE",
        type=Path,
        help="the .source-share.json that `hf-lrp score --source-share` wrote for this model: the page shows what is "
        "usual",
    )
    group.add_argument("--png", metavar="F", help="write a picture of the heat map")
    group.add_argument(
        "--flow",
        metavar="F",
        help="write a page with the way through layers and attention heads, which --json and --save then keep too",
    )
    group.add_argument("--json", metavar="F", help="write all numbers as JSON; - is standard output, without table")
    group.add_argument("--save", metavar="F", help="write a file for Contributions.load (safetensors)")


def run(args: argparse.Namespace) -> None:
    """Read the texts, check the outputs, then load the model and explain."""
    sources, targets = _read_texts(args)
    pool = None if args.pool is None else read_sentences(args.pool)
    prompt = read_prompt(args)
    _check_prefix(args, targets)
    _check_contrast(args, len(sources))
    outputs = _outputs(args, len(sources))
    calibration = _read_calibration(args)
    outputs.prepare()
    from hf_lrp import ContributionsList, explain
    from hf_lrp.models.loading import quiet_transformers

    method, device = read_method(args), read_device(args)
    with quiet_transformers(unless=args.debug):
        model, tokenizer = load_model(args, args.model, device)
        if calibration is not None:
            from hf_lrp.corpus.calibration import require_own
            from hf_lrp.kinds.table import kind_of

            require_own(calibration, model, kind_of(model).corpus_prompt(model, tokenizer, prompt))
        results = explain(
            model,
            tokenizer,
            sources,
            targets,
            prompt=prompt,
            prefix=args.prefix,
            predict=(args.predict or "top1") if args.contrast is None else [dict(args.contrast)],
            method=method,
            start_token=args.start_token,
            inside=_inside(args, method),
            max_memory=args.max_memory,
            seed=args.seed,
            pool=pool,
            progress=len(sources) > 1 and sys.stderr.isatty(),
            **generate_options(args),
        )
    given = targets if results[0].prefix == "reference" else None
    written = given or target_texts(tokenizer, results)
    written_as = ContributionsList(c.merge_subwords() for c in results) if args.words else results
    outputs.write(written_as, on_page=results, calibration=calibration)
    if not outputs.to_standard_output:
        show(written_as, sources, written)
    outputs.report()


def _inside(args: argparse.Namespace, method: Method) -> bool | Literal["pairs"]:
    """Option `inside`, as the page of the way through the layers needs it."""
    from hf_lrp.methods import LRP

    if args.flow is None:
        return False
    if not isinstance(method, LRP):
        args.usage_error("--flow is for --method lrp, which alone passes through layers and heads")
    assert isinstance(method, LRP)
    return "pairs" if method.rule.keeps_sign else True


def _read_texts(args: argparse.Namespace) -> tuple[list[str], list[str] | None]:
    """Sources and targets; exits with a usage error where there are none or not as many of both."""
    sources = _read_side(args.source, args.source_file)
    targets = _read_side(args.target, args.target_file)
    if sources is None:
        if sys.stdin is None or sys.stdin.isatty():
            args.usage_error("no text: give --source TEXT or --source-file FILE, or pipe sentences in")
        sources = read_sentences(STANDARD_STREAM)
    if not all(map(str.strip, [*sources, *(targets or ())])):
        args.usage_error("a sentence is empty: there is nothing to explain")
    if targets is not None and len(targets) != len(sources):
        args.usage_error(f"{len(sources)} source but {len(targets)} target sentences: give one target per source")
    return sources, targets


def _read_side(texts: list[str] | None, path: str | None) -> list[str] | None:
    if path is not None:
        return read_sentences(path)
    if texts is None:
        return None
    return [line for text in texts for line in (read_sentences(text) if text == STANDARD_STREAM else [text])]


def _check_prefix(args: argparse.Namespace, targets: Sequence[str] | None) -> None:
    """Checks of the prefix that `explain` would make only after the model is loaded."""
    if args.prefix == "reference" and targets is None:
        args.usage_error("--prefix reference needs --target or --target-file")
    if args.prefix == "random" and args.pool is None and len(targets or ()) < 2:
        args.usage_error("--prefix random needs --pool FILE, or several sources with their targets to exchange")
    generates = args.prefix == "model" or (args.prefix is None and targets is None)
    if args.num_beams is not None and not generates:
        args.usage_error("--num-beams is for --prefix model, where the model translates")
    if args.pool is not None and args.prefix != "random":
        args.usage_error("--pool is for --prefix random")


def _check_contrast(args: argparse.Namespace, sentences: int) -> None:
    if args.contrast is None:
        return
    if sentences > 1:
        args.usage_error(f"--contrast is for words of one sentence, and {sentences} are given")
    if args.predict is not None:
        args.usage_error("--contrast says what is explained: leave --predict out")
    if len(dict(args.contrast)) < len(args.contrast):
        args.usage_error("--contrast has a word twice")


def _read_calibration(args: argparse.Namespace) -> Calibration | None:
    if args.calibration is None:
        return None
    if args.html is None:
        args.usage_error("--calibration is for the page: give --html too")
    if args.start_token == "keep" or args.method != "lrp" or args.rule not in (None, ("alphabeta", (1.0, 0.0))):
        args.usage_error(
            "--calibration is for the default method, without the start token: leave --method, --rule and "
            "--start-token out"
        )
    from hf_lrp.corpus.calibration import Calibration

    return Calibration.load(args.calibration)


def _contrast(text: str) -> tuple[str, str]:
    word, sign, other = text.partition("=")
    if not (sign and word.strip() and other.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is not WORD=OTHER, such as banque=gare")
    return word.strip(), other.strip()


def _outputs(args: argparse.Namespace, count: int) -> Outputs:
    if STANDARD_STREAM in (args.html, args.png, args.save, args.flow):
        args.usage_error("only --json can write to standard output")
    if args.png is not None and Path(args.png).suffix.lower() != ".png" and not _is_device(args.png):
        args.usage_error(f"--png writes PNG pictures: {args.png!r} should end with .png")
    outputs = Outputs(count, html=args.html, png=args.png, json=args.json, save=args.save, flow=args.flow)
    if outputs.clash:
        args.usage_error(f"{outputs.clash} would be written twice: give each output its own file")
    return outputs


def _is_device(path: str) -> bool:
    """Whether a path is something that is written to as it is, such as /dev/null."""
    return Path(path).exists() and not Path(path).is_file()
