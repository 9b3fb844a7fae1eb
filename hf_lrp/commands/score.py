"""Score how much translations depend on their source, against the model's own.

R_t(source) of each given translation is compared with its mean and standard
deviation in translations that the model makes itself, at the same position. A low
score says that the model does not need the source to predict this translation, as
for translations of something else. It is a hint, not a proof; docs/score.md has
measurements. Interrupted, the same command continues."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_lrp.commands.arguments import add_languages, add_model
from hf_lrp.data.files import prepare_destination, read_sentences, write_atomically
from hf_lrp.data.tables import tsv_table

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hf_lrp.analysis.run.journal import Journal
    from hf_lrp.analysis.scoring import Calibration

EXAMPLES = """
  hf-lrp score Helsinki-NLP/opus-mt-en-de --data pairs.tsv --out scores.tsv
  hf-lrp score path/to/model --data sources.txt translations.txt --out scores.jsonl
  hf-lrp score path/to/model --data pairs.tsv --calibration sources.txt --out scores.tsv
  hf-lrp score MODEL --data more.tsv --calibration scores.tsv.calibration.json --out more.jsonl
"""
MOST_SENTENCES = 200  # to calibrate on, where the pairs' own sources are taken
THRESHOLD = -2.0
_KINDS = (".tsv", ".jsonl")
_COLUMNS = ("score", "source_total", "log_probability", "flagged", "source", "translation")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` reads."""
    add_model(parser)
    parser.add_argument(
        "--data",
        metavar="FILE",
        nargs="+",
        required=True,
        help="sources and translations: a TSV file, JSON lines or Parquet with the columns source and target, or two "
        "text files",
    )
    parser.add_argument(
        "--out", metavar="FILE", type=Path, required=True, help="scores.tsv or scores.jsonl; replaces an old one"
    )
    parser.add_argument(
        "--calibration",
        metavar="FILE",
        type=Path,
        help="sentences to translate, one per line, or the .calibration.json of an earlier run (default: up to "
        f"{MOST_SENTENCES} of the sources)",
    )
    parser.add_argument(
        "--threshold",
        metavar="Z",
        type=float,
        default=THRESHOLD,
        help="words with a z-score below this are flagged (default: %(default)g)",
    )
    add_languages(parser)


def run(args: argparse.Namespace) -> None:
    """Read the pairs, check the output, then load the model, calibrate and score."""
    if args.out.suffix not in _KINDS:
        args.usage_error(f"--out must end with {' or '.join(_KINDS)}, not {args.out.name!r}")
    prepare_destination(args.out)
    pairs = _read_pairs(args.data)
    from hf_lrp.analysis.run.settings import hash_weights
    from hf_lrp.explaining.loading import load_checkpoint, quiet_transformers

    with quiet_transformers(unless=args.debug):
        model, tokenizer = load_checkpoint(args.model, args.source_lang, args.target_lang)
        weights = hash_weights(model)
        calibration = _calibrate(args, model, tokenizer, weights, [source for source, _ in pairs])
        journal = _score(args, model, tokenizer, calibration, pairs)
    write_atomically(args.out, _format(journal.rows, args.out.suffix))
    journal.remove()
    flagged = sum(any(row["flagged"]) for row in journal.rows)
    print(f"wrote {args.out}: {len(journal.rows)} pairs, {flagged} with flagged words", file=sys.stderr)


def _read_pairs(files: list[str]) -> list[tuple[str, str]]:
    from hf_lrp.data.pairs import load_pairs

    table = load_pairs(files if len(files) > 1 else files[0], source="source", target="target")
    pairs = list(zip(table["source"], table["target"], strict=True))
    for number, pair in enumerate(pairs, 1):
        if not all(text and text.strip() for text in pair):
            raise ValueError(f"Pair {number} of {', '.join(files)} has an empty side: there is nothing to score.")
    return pairs


def _calibrate(
    args: argparse.Namespace,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    weights: str,
    sources: Sequence[str],
) -> Calibration:
    """The calibration that is given, or was saved beside the output, or a new one."""
    from hf_lrp.analysis.run.journal import Journal
    from hf_lrp.analysis.scoring import Calibration, calibrate, translate_and_measure

    if args.calibration is not None and args.calibration.suffix == ".json":
        calibration = Calibration.load(args.calibration)
        if calibration.weights != weights:
            raise ValueError(
                f"{args.calibration} was measured on {calibration.model} with other weights: give sentences to "
                "calibrate this model on."
            )
        return _checked(calibration)
    if args.calibration is not None:
        chosen = read_sentences(str(args.calibration))
    else:
        chosen = list(dict.fromkeys(sources))[:MOST_SENTENCES]
    saved, measured = _beside(args.out, "calibration.json"), {"weights": weights, "sources": _digest(chosen)}
    if saved.exists():
        calibration = Calibration.load(saved)
        if {name: getattr(calibration, name) for name in measured} == measured:
            return _checked(calibration)
    journal = Journal(_beside(args.out, "calibration.partial"), measured)
    translate_and_measure(model, tokenizer, chosen, journal, progress=sys.stderr.isatty())
    calibration = calibrate(journal.rows, model=str(model.config.name_or_path), **measured)
    calibration.save(saved)
    journal.remove()
    return _checked(calibration)


def _checked(calibration: Calibration) -> Calibration:
    """Warn where texts become other tokens than those the model writes."""
    if calibration.kept < 0.5:
        warnings.warn(
            f"the tokenizer splits only {calibration.kept:.0%} of the model's own translations as the model wrote "
            "them, so scores of texts mean little: is the tokenizer that of the model?",
            stacklevel=2,
        )
    return calibration


def _score(
    args: argparse.Namespace,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    calibration: Calibration,
    pairs: Sequence[tuple[str, str]],
) -> Journal:
    """A row per pair; those that an interrupted run has left are not computed again."""
    from dataclasses import asdict

    from tqdm.auto import tqdm

    from hf_lrp import Contributions, explain
    from hf_lrp.analysis.run.journal import Journal
    from hf_lrp.analysis.scoring import score_translation

    settings = {"model": calibration.weights, "calibration": _digest([*calibration.mean, *calibration.deviation])}
    journal = Journal(_beside(args.out, "partial"), settings | {"data": _digest(pairs), "threshold": args.threshold})
    done = len(journal.rows)
    bar = tqdm(pairs[done:], initial=done, total=len(pairs), desc="Scoring", disable=not sys.stderr.isatty())
    for source, translation in bar:
        contributions = explain(model, tokenizer, source, translation, predict="target")
        assert isinstance(contributions, Contributions)
        scored = asdict(score_translation(contributions, calibration, args.threshold))
        journal.append({"source": source, "translation": translation, **scored})
    return journal


def _format(rows: Sequence[dict[str, Any]], kind: str) -> bytes:
    if kind == ".jsonl":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    return tsv_table(_COLUMNS, map(_cells, rows))


def _cells(row: dict[str, Any]) -> list[Any]:
    flagged = " ".join(word for word, flag in zip(row["words"], row["flagged"], strict=True) if flag)
    return [*(row[name] for name in _COLUMNS[:3]), flagged, row["source"], row["translation"]]


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}.{ending}")


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
