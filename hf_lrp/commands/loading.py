"""Loading what arguments of commands name: models, devices, rules, pairs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hf_lrp.inputs.prompts import Prompt
    from hf_lrp.methods.method import Method


def read_device(args: argparse.Namespace) -> torch.device:
    """The device that is named, or else a GPU, or else the CPU; a ValueError for one that this machine lacks."""
    import torch

    if args.device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(args.device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"--device {args.device} cannot be used here ({reason}): choose another, or cpu.") from error
    if device.type == "meta":
        raise ValueError("--device meta holds no numbers: choose another, or cpu.")
    return device


def read_method(args: argparse.Namespace) -> Method:
    """The method that is named, of LRP with the rule; a ValueError for numbers that a rule cannot have."""
    from hf_lrp.methods.table import METHODS
    from hf_lrp.relevance.rules import AlphaBeta, Epsilon, Gamma

    if args.method != "lrp":
        if args.rule is not None:
            args.usage_error("--rule is for --method lrp")
        return METHODS[args.method].method
    from hf_lrp.methods import LRP

    if args.rule is None:
        return LRP()
    name, numbers = args.rule
    kind: Any = {"alphabeta": AlphaBeta, "epsilon": Epsilon, "gamma": Gamma}[name]
    return LRP(kind(*numbers))


def read_prompt(args: argparse.Namespace) -> Prompt | None:
    """The prompt that is named, or None; exits with a usage error where parts have no place in it."""
    if args.prompt is None:
        if args.part:
            args.usage_error("--part is for a --prompt that has its name in braces")
        return None
    parts = dict(args.part or ())
    if len(parts) < len(args.part or ()):
        args.usage_error("--part names a part twice")
    from hf_lrp.inputs.prompts import Prompt

    try:
        return Prompt(_read_template(args.prompt), {name: _read_text(text) for name, text in parts.items()})
    except (TypeError, ValueError) as error:
        raise ValueError(f"--prompt cannot be used: {error}") from error


def _read_template(given: str) -> Any:
    from hf_lrp.data.json_files import read_json

    return read_json(given[1:]) if given.startswith("@") and given.endswith(".json") else _read_text(given)


def _read_text(given: str) -> str:
    """A text of the command line, or that of a file, without the end of its last line."""
    if given.startswith("@"):
        return Path(given[1:]).read_text(encoding="utf-8").removesuffix("\n")
    return given.replace("\\n", "\n")


def generate_options(args: argparse.Namespace) -> dict[str, Any]:
    """Options for `generate`."""
    return {} if args.num_beams is None else {"num_beams": args.num_beams}


def evaluation_options(args: argparse.Namespace) -> dict[str, Any]:
    """Options of both `evaluate` and `evaluate_timeline`."""
    names = ("lengths", "number", "longest", "seed", "max_memory")
    given = {name: getattr(args, name) for name in names}
    shown = {"prompt": read_prompt(args), "method": read_method(args), "progress": sys.stderr.isatty()}
    return given | shown | generate_options(args)


def load_model(
    args: argparse.Namespace, name: str | Path | None, device: torch.device
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model on a device, in float32, and its tokenizer."""
    from hf_lrp.models.loading import load_checkpoint

    model, tokenizer = load_checkpoint(name, args.source_lang, args.target_lang)
    model.to(device)  # type: ignore[arg-type]
    return model, tokenizer


def load_data(args: argparse.Namespace) -> Any:
    """The pairs that are named, with the columns `source` and `target`."""
    from hf_lrp.data.pairs import load_pairs
    from hf_lrp.data.reading import import_datasets

    datasets = import_datasets()
    if not sys.stderr.isatty():  # logs get no progress bars
        datasets.disable_progress_bars()
    try:
        return load_pairs(
            args.data[0] if len(args.data) == 1 else args.data,
            source=args.source_column,
            target=args.target_column,
            split=args.split,
            config=args.config,
        )
    finally:
        datasets.enable_progress_bars()


def require_folder(path: Path) -> None:
    """Raise an OSError, before any work, if a folder for results could not be written to."""
    from hf_lrp.data.files import prepare_destination

    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"cannot write into {path}: it is a file")
    if not path.exists():
        prepare_destination(path)  # its parent, that is
