"""Translations that depend less on their source than usual: R_t(source) against a model's own translations."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from hf_lrp.corpus.calibration import Calibration, load_or_calibrate, require_own
from hf_lrp.corpus.journal import Journal
from hf_lrp.corpus.round_trip import warn_if_lost
from hf_lrp.data.files import prepare_destination, write_atomically
from hf_lrp.data.json_files import json_bytes
from hf_lrp.data.locks import one_writer
from hf_lrp.data.tables import tsv_table
from hf_lrp.explaining.explainer import Explainer, explain
from hf_lrp.kinds.table import kind_of
from hf_lrp.models.words import looks_special
from hf_lrp.pages.page import write_page
from hf_lrp.pages.telling import UNUSUAL, is_unusual, usual_z
from hf_lrp.results.contributions import Contributions
from hf_lrp.results.quantities import from_second_step

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hf_lrp.inputs.prompts import Prompt

MOST_SENTENCES = 200  # to calibrate on, where the pairs' own sources are taken
MOST_ON_PAGE = 1000
THRESHOLD = UNUSUAL
KINDS = (".tsv", ".jsonl")

_COLUMNS = ("score", "source_total", "log_probability", "flagged", "source", "translation")


@dataclass(frozen=True)
class Score:
    """How much less than usual a translation depends on its source.

    Attributes:
        score: the mean of the z-scores of R_t(source), from the second step on; the lower, the more detached.
        source_total: the mean of R_t(source) over the same steps.
        log_probability: the mean over all steps, the first too, for comparison.
        words: of the translation, without special tokens.
        z: the mean z-score of each word's tokens; None where only the first step predicts it.
        flagged: which words, punctuation aside, are below the threshold.
    """

    score: float | None
    source_total: float | None
    log_probability: float
    words: tuple[str, ...]
    z: tuple[float | None, ...]
    flagged: tuple[bool, ...]


def score_translation(contributions: Contributions, calibration: Calibration, threshold: float) -> Score:
    """Compare R_t(source) of a translation with the model's own translations.

    The contributions must be those of the translation's tokens: `explain(model, tokenizer, source, translation,
    predict="target")`.
    """
    if contributions.level != "token" or contributions.predict != "target":
        raise ValueError(
            "Scores need the contributions of a translation's own tokens: explain(..., predict='target')."
        )
    curve = contributions.source_total.double().numpy()
    texts = contributions.merge_subwords().target_tokens
    z = usual_z(curve, *calibration.at(contributions.steps), contributions.target_words)
    flagged = is_unusual(z, texts, threshold).tolist()
    words = [row for row in zip(texts, z.tolist(), flagged, strict=True) if not looks_special(row[0])]
    return Score(
        score=_mean(calibration.z_scores(curve)),
        source_total=_mean(from_second_step(curve)),
        log_probability=float(contributions.log_probability.double().mean()),
        words=tuple(text for text, *_ in words),
        z=tuple(None if math.isnan(mean) else mean for _, mean, _ in words),
        flagged=tuple(flag for *_, flag in words),
    )


def _mean(values: np.ndarray) -> float | None:
    """Without nan; None if there is nothing else."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else None


# ---- a corpus


def score_corpus(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    out: str | Path,
    *,
    prompt: Any = None,
    calibration: Calibration | Sequence[str] | None = None,
    threshold: float = THRESHOLD,
    progress: bool = False,
    page: str | Path | None = None,
    **generate_options: Any,
) -> list[dict[str, Any]]:
    """Score translations and write a row for each into a file; interrupted and called again, it goes on.

    Args:
        model, tokenizer: as for `hf_lrp.explain`.
        pairs: sources and translations, as text.
        out: a file ``.tsv`` or ``.jsonl``, which is replaced. The calibration and unfinished work stand beside it.
        prompt: for a model without an encoder, as for :func:`hf_lrp.explain`, the same for all pairs.
        calibration: how much the model usually depends on its source: an earlier calibration, or sentences to
            translate for one. None: up to 200 of the sources.
        threshold: words with a z-score below it are flagged.
        progress: show progress bars.
        page: a file ``.html`` to write as well: the pairs with the lowest scores, up to 1,000, as a list that opens
            each with its contributions, which are computed in addition.
        **generate_options: passed to ``model.generate``, for the translations to calibrate on.

    Returns:
        what the file holds: the fields of `Score` with ``source`` and ``translation``.
    """
    out = Path(out)
    if out.suffix not in KINDS:
        raise ValueError(f"The file of the scores must end with {' or '.join(KINDS)}, not {out.name!r}.")
    if isinstance(calibration, Calibration) and generate_options:
        raise ValueError("Options for generate are for translations to calibrate on: the calibration is given.")
    _require_texts(pairs)
    read = kind_of(model).corpus_prompt(model, tokenizer, prompt)
    beside = (_beside(out, "calibration.partial"), _beside(out, "calibration.json"))
    for path in (out, *beside, *(() if page is None else (page,))):
        prepare_destination(path)
    with one_writer(_beside(out, "lock"), str(out)):
        if isinstance(calibration, Calibration):
            require_own(calibration, model, read)
        else:
            chosen = _sources_of(pairs) if calibration is None else list(calibration)
            saved = _beside(out, "calibration.json")
            calibration = load_or_calibrate(model, tokenizer, chosen, saved, progress, read, **generate_options)
        warn_if_lost(calibration.kept)
        journal = _score(model, tokenizer, pairs, read, calibration, threshold, _beside(out, "partial"), progress)
        if page is not None:
            _write_page(model, tokenizer, journal.rows, read, calibration, threshold, page, progress)
        write_atomically(out, _format(journal.rows, out.suffix))
        journal.remove()
    return journal.rows


def _sources_of(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Different sources to calibrate on, not too many."""
    return list(dict.fromkeys(source for source, _ in pairs))[:MOST_SENTENCES]


def _require_texts(pairs: Sequence[tuple[str, str]]) -> None:
    for number, pair in enumerate(pairs, 1):
        if not all(text and text.strip() for text in pair):
            raise ValueError(f"Pair {number} has an empty side: there is nothing to score.")


def _score(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    prompt: Prompt | None,
    calibration: Calibration,
    threshold: float,
    path: Path,
    progress: bool,
) -> Journal:
    """A row per pair; those that an interrupted run has left are not computed again."""
    settings = {"model": calibration.weights, "calibration": _digest([*calibration.mean, *calibration.deviation])}
    if prompt is not None:
        settings["prompt"] = _digest(prompt.settings)
    journal = Journal(path, settings | {"data": _digest([list(pair) for pair in pairs]), "threshold": threshold})
    done = len(journal.rows)
    bar = tqdm(pairs[done:], initial=done, total=len(pairs), desc="Scoring", disable=not progress)
    explainer = Explainer(model, tokenizer)
    for source, translation in bar:
        asked: dict[str, Any] = {"prompt": prompt, "predict": "target", "source_tokens": False}
        contributions = explainer.explain(source, translation, **asked)
        assert isinstance(contributions, Contributions)
        scored = asdict(score_translation(contributions, calibration, threshold))
        journal.append({"source": source, "translation": translation, **scored})
    return journal


def _write_page(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[dict[str, Any]],
    prompt: Prompt | None,
    calibration: Calibration,
    threshold: float,
    page: str | Path,
    progress: bool,
) -> None:
    """Explain the pairs with the lowest scores in full, and write them as one page."""
    lowest = sorted(range(len(rows)), key=lambda i: (rows[i]["score"] is None, rows[i]["score"] or 0.0))[:MOST_ON_PAGE]
    kept = sorted(lowest)
    sources, targets = ([rows[i][side] for i in kept] for side in ("source", "translation"))
    results = explain(model, tokenizer, sources, targets, prompt=prompt, predict="target", progress=progress)
    assert isinstance(results, list)
    scores, numbers = [rows[i]["score"] for i in kept], [i + 1 for i in kept]
    title = "Translations and how much they depend on their sources"
    if len(kept) < len(rows):
        title += f": the {len(kept)} lowest scores of {len(rows)}"
    options: dict[str, Any] = {
        "calibration": calibration,
        "threshold": threshold,
        "scores": scores,
        "numbers": numbers,
    }
    write_page(page, results, title, **options)


def _format(rows: Sequence[dict[str, Any]], kind: str) -> bytes:
    if kind == ".jsonl":
        return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows).encode()
    return tsv_table(_COLUMNS, map(_cells, rows))


def _cells(row: dict[str, Any]) -> list[Any]:
    flagged = " ".join(word for word, flag in zip(row["words"], row["flagged"], strict=True) if flag)
    return [*(row[name] for name in _COLUMNS[:3]), flagged, row["source"], row["translation"]]


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}.{ending}")


def _digest(content: Any) -> str:
    return hashlib.sha256(json_bytes(content)).hexdigest()
