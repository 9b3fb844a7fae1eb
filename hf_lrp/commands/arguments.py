"""Arguments that several commands have. `hf_lrp.commands.loading` reads what they name."""

from __future__ import annotations

import argparse
import re
from typing import Any, TypeAlias

from hf_lrp.methods import NAMES

Arguments: TypeAlias = argparse.ArgumentParser | argparse._ArgumentGroup

BY_EACH_PROCESS = ", by each process (default: 2GB)"
_RULES = {"alphabeta": 2, "epsilon": 1, "gamma": 1}  # and how many numbers each takes


# ---- the model


def add_model(parser: Arguments) -> None:
    """``model``: what `load_model` loads."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="a folder or a Hub id (default: the embedded English-French model)",
    )


def add_languages(parser: Arguments) -> None:
    """``source_lang`` and ``target_lang``, which `load_model` reads as well."""
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-lang", metavar="CODE", help=f"{side} language of a multilingual model, such as eng_Latn"
        )


def add_prompt(parser: Arguments) -> None:
    """``prompt`` and ``part``: what `read_prompt` makes a prompt of."""
    parser.add_argument(
        "--prompt",
        metavar="TEXT|@FILE",
        help="what a model without an encoder reads the source in: a template with {source} and names of parts, in "
        "which \\n is a new line; or a file with one, or with chat messages if it ends with .json (default: a plain "
        "request to translate)",
    )
    parser.add_argument(
        "--part",
        metavar="NAME=TEXT|@FILE",
        type=_part,
        action="append",
        help="what {NAME} in the prompt stands for; repeat it for several parts",
    )


def add_device(parser: Arguments) -> None:
    """``device``: where `load_model` puts the model."""
    parser.add_argument(
        "--device", metavar="NAME", help="cpu, cuda, cuda:1, ... (default: a GPU if there is one, else cpu)"
    )


def add_method(parser: Arguments) -> None:
    """``method`` and ``rule``: what `read_method` makes a method of."""
    parser.add_argument(
        "--method",
        choices=NAMES,
        default="lrp",
        help="how contributions are computed (default: lrp, the paper's; docs/methods.md tells them apart)",
    )
    parser.add_argument(
        "--rule",
        metavar="RULE",
        type=_rule,
        help="how LRP passes relevance on: alphabeta:A,B with A + B = 1 (default: alphabeta:1,0, the paper's), "
        "epsilon:E or gamma:G",
    )


def add_num_beams(parser: Arguments, whose: str) -> None:
    """``num_beams``, an option for `generate`."""
    parser.add_argument(
        "--num-beams", metavar="N", type=count, help=f"of {whose} own translations (default: the checkpoint's)"
    )


def add_max_memory(parser: Arguments, default: str) -> None:
    """``max_memory``: a size that `explain` understands; ``default`` says what None means."""
    parser.add_argument(
        "--max-memory",
        metavar="SIZE",
        type=_memory_size,
        help=f"such as 4GB: what may be used on top of the model{default}",
    )


def add_evaluation(method: Arguments, whose: str) -> None:
    """How a corpus is evaluated; ``whose`` translations ``--num-beams`` is of."""
    add_prompt(method)
    add_method(method)
    add_num_beams(method, whose)
    add_languages(method)
    add_device(method)
    add_max_memory(method, BY_EACH_PROCESS)


# ---- pairs


def add_data(group: Arguments) -> None:
    """``data`` and how its columns are called: what `load_data` reads."""
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


def add_selection(group: Arguments) -> None:
    """Which of the pairs are evaluated, as `evaluate` is told it."""
    group.add_argument(
        "--lengths",
        metavar="auto|S,T|mixed",
        type=_lengths,
        default="auto",
        help="pairs with S source and T target tokens, the end of the sentence included; auto: the most frequent "
        "such lengths, or mixed where fewer than 100 pairs have them (default); mixed: all lengths",
    )
    group.add_argument("--longest", metavar="N", type=count, help="leave pairs with more tokens on a side out")
    group.add_argument(
        "--number", metavar="N", type=count, default=1000, help="how many pairs at most (default: 1000)"
    )
    group.add_argument(
        "--seed", metavar="N", type=seed, default=0, help="chooses pairs and random prefixes (default: 0)"
    )


# ---- values


def count(text: str) -> int:
    """A number of at least 1."""
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 999999999")
    return int(text)


def seed(text: str) -> int:
    """Seed, as random generators take it."""
    if not re.fullmatch(r"\d{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 999999999")
    return int(text)


def _part(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (sign and name.strip() and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=TEXT or NAME=@FILE, such as examples=@examples.txt")
    return name.strip(), value


def _lengths(text: str) -> Any:
    """The lengths that `evaluate` is given."""
    if text in ("auto", "mixed"):
        return "auto" if text == "auto" else None
    if not re.fullmatch(r"[1-9]\d{0,8},[1-9]\d{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither auto nor mixed nor two numbers such as 20,23")
    source, target = text.split(",")
    return int(source), int(target)


def _rule(text: str) -> tuple[str, tuple[float, ...]]:
    """The name of a rule and its numbers."""
    name, _, written = text.partition(":")
    try:
        numbers = tuple(map(float, written.split(",")))
    except ValueError:
        numbers = ()
    if len(numbers) != _RULES.get(name.lower()):
        raise argparse.ArgumentTypeError(f"{text!r} is none of alphabeta:A,B, epsilon:E and gamma:G with numbers")
    return name.lower(), numbers


def _memory_size(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d*(\.\d+)?[KMG]i?B", text, re.IGNORECASE):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500MB or 4GB")
    return text
