"""Arguments that several commands have."""

from __future__ import annotations

import argparse
import re
from typing import TypeAlias

Arguments: TypeAlias = argparse.ArgumentParser | argparse._ArgumentGroup


def add_model(parser: Arguments) -> None:
    """``model``: what `load_checkpoint` reads."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="a folder or a Hub id (default: the embedded English-French model)",
    )


def add_languages(parser: Arguments) -> None:
    """``source_lang`` and ``target_lang``, which `load_checkpoint` reads as well."""
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-lang", metavar="CODE", help=f"{side} language of a multilingual model, such as eng_Latn"
        )


def add_max_memory(parser: Arguments, default: str) -> None:
    """``max_memory``: a size that `explain` understands; ``default`` says what None means."""
    parser.add_argument(
        "--max-memory",
        metavar="SIZE",
        type=_memory_size,
        help=f"such as 4GB: what may be used on top of the model{default}",
    )


def _memory_size(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d*(\.\d+)?[KMG]i?B", text, re.IGNORECASE):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500MB or 4GB")
    return text
