"""Scores of translations: what they leave out, what has no support, against a model's own translations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from hf_lrp.corpus.calibration import load_or_calibrate
from hf_lrp.corpus.journal import Journal
from hf_lrp.corpus.own_translations import CHUNK, OwnTranslations, load_or_measure, require_own
from hf_lrp.corpus.support import Measures, Support, Words, measure_pairs, read_others
from hf_lrp.corpus.tokenizer_check import warn_of_other_splits
from hf_lrp.data.files import prepare_destination, write_atomically
from hf_lrp.data.json_files import json_bytes
from hf_lrp.data.locks import one_writer
from hf_lrp.data.tables import tsv_table
from hf_lrp.explaining.explainer import Explainer
from hf_lrp.kinds.table import kind_of
from hf_lrp.links.texts import piece_spans
from hf_lrp.links.weights import HeadReader, PairsRead
from hf_lrp.pages.scores import write_scores
from hf_lrp.pages.telling import may_be_spoken_of

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hf_lrp.inputs.prompts import Prompt
    from hf_lrp.models.vocabulary import Side

MOST_SENTENCES = 200  # to calibrate on, where the pairs' own sources are taken
RARITY = 0.02
TARGET_PART = 0.25  # of the rarity: good translations by others have words that the model would not write
KINDS = (".tsv", ".jsonl")

_COLUMNS = ("coverage", "coverage_rank", "log_probability", "log_probability_rank", "source_total")


@dataclass(frozen=True)
class ScoredWord:
    """A word of either side.

    Attributes:
        text: the word.
        span: where it stands in the text; None where that is not known.
        value: what it is measured by.
        rank: the share of the words in the model's own translations that have less.
        flagged: whether that is less than the rarity that was asked for, or on the target side a quarter of it;
            punctuation never is.
    """

    text: str
    span: tuple[int, int] | None
    value: float
    rank: float
    flagged: bool


@dataclass(frozen=True)
class Score:
    """How a translation and its source go together, against the model's own translations.

    Attributes:
        coverage: how far the source is covered: the mean over its tokens of the largest weight that the link heads
            together give them at any step.
        coverage_rank: the share of the model's own translations that cover less of their sources.
        log_probability: the mean over the translation's tokens.
        log_probability_rank: the share of the model's own translations that are less probable.
        source_total: the mean of R_t(source) from the second step on, where it was asked for.
        source_words: those flagged may be left out of the translation.
        target_words: those flagged may be without support in the source.
    """

    coverage: float
    coverage_rank: float
    log_probability: float
    log_probability_rank: float
    source_total: float | None
    source_words: tuple[ScoredWord, ...]
    target_words: tuple[ScoredWord, ...]


def score_pairs(
    reader: HeadReader,
    pairs: Sequence[tuple[str, str]],
    own: OwnTranslations,
    *,
    rarity: float = RARITY,
    sources: Sequence[str] | None = None,
) -> list[Score]:
    """Scores of some pairs of source and translation, from batched forward passes.

    Args:
        own: what is usual for the model, which also says what words are measured by.
        rarity: source words are flagged that are rarer than this share of the words in the model's own translations,
            target words that are rarer than a quarter of it.
        sources: for ratios, which sources the others are taken from; None: those of the pairs.
    """
    texts = [source for source, _ in pairs], [translation for _, translation in pairs]
    read = reader.read(*texts)
    others = read_others(reader, sources or texts[0], *texts) if own.measures.ratio else ()
    found = measure_pairs(reader, read, own.heads, own.measures, others)
    return [_score(reader, read, n, pairs[n], support, own, rarity) for n, support in enumerate(found)]


def _score(
    reader: HeadReader,
    read: PairsRead,
    number: int,
    pair: tuple[str, str],
    support: Support,
    own: OwnTranslations,
    rarity: float,
) -> Score:
    ids = read.reading.sources.items[number], read.prefixes[number].ids
    return Score(
        coverage=support.coverage,
        coverage_rank=own.rank("coverage", support.coverage),
        log_probability=support.log_probability,
        log_probability_rank=own.rank("log_probability", support.log_probability),
        source_total=None,
        source_words=_words(reader, support.source, ids[0], pair[0], "source", own, rarity),
        target_words=_words(reader, support.target, ids[1], pair[1], "target", own, TARGET_PART * rarity),
    )


def _words(
    reader: HeadReader, words: Words, ids: Tensor, text: str, side: Side, own: OwnTranslations, rarity: float
) -> tuple[ScoredWord, ...]:
    spans = piece_spans(text, ids, side, reader.vocabulary)
    scored = []
    for word, tokens, value in zip(words.texts, words.tokens, words.values, strict=True):
        places = [span for token in tokens if (span := spans[token]) is not None]
        span = (min(start for start, _ in places), max(stop for _, stop in places)) if places else None
        rank = own.rank(f"{side}_word", value)
        scored.append(ScoredWord(word, span, value, rank, may_be_spoken_of(word) and rank < rarity))
    return tuple(scored)


# ---- a corpus


def score_corpus(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    out: str | Path,
    *,
    prompt: Any = None,
    calibration: OwnTranslations | Sequence[str] | None = None,
    rarity: float = RARITY,
    erasure: bool = False,
    ratio: bool = False,
    source_share: bool = False,
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
        calibration: what is usual in the model's own translations: that of an earlier run, or sentences to translate
            for one. None: up to 200 of the sources.
        rarity: source words are flagged that are rarer than this share of the words in the model's own translations,
            target words that are rarer than a quarter of it.
        erasure: measure source words by what the translation loses where they are hidden: a forward pass per token.
        ratio: measure target words by their log-probability over its mean with four other sources: four passes more.
        source_share: compute the mean of R_t(source) as well, a description, which takes as long as `explain`; its
            usual range, for pages, is written beside the file.
        progress: show progress bars.
        page: a file ``.html`` to write as well: all pairs with their flags.
        **generate_options: passed to ``model.generate``, for the translations to calibrate on.

    Returns:
        what the file holds: the fields of `Score` with ``source`` and ``translation``.
    """
    out, measures = Path(out), Measures(erasure, ratio)
    if out.suffix not in KINDS:
        raise ValueError(f"The file of the scores must end with {' or '.join(KINDS)}, not {out.name!r}.")
    if not 0 < rarity < 1:
        raise ValueError(f"rarity is a share of words, between 0 and 1, got {rarity}.")
    given = isinstance(calibration, OwnTranslations)
    if given and generate_options:
        raise ValueError("Options for generate are for translations to calibrate on: the calibration is given.")
    _require_texts(pairs)
    read = kind_of(model).corpus_prompt(model, tokenizer, prompt)
    beside = tuple(_beside(out, ending) for ending in ("calibration.partial", "calibration.json", "partial"))
    for path in (out, *beside, *(() if page is None else (page,))):
        prepare_destination(path)
    reader = HeadReader(model, tokenizer, read)
    with one_writer(_beside(out, "lock"), str(out)):
        if isinstance(calibration, OwnTranslations):
            own = calibration
            require_own(own, model, measures, read)
        else:
            chosen = _sources_of(pairs) if calibration is None else list(calibration)
            own = load_or_measure(reader, chosen, beside[1], measures, progress, read, **generate_options)
            if source_share:
                saved = _beside(out, "source-share.json")
                load_or_calibrate(model, tokenizer, chosen, saved, progress, read, **generate_options)
        warn_of_other_splits(own.kept)
        explainer = Explainer(model, tokenizer) if source_share else None
        journal = _score_all(reader, pairs, own, rarity, read, explainer, beside[2], progress)
        if page is not None:
            write_scores(page, journal.rows, own.sentences, (rarity, TARGET_PART * rarity), own.measures.names)
        write_atomically(out, _format(journal.rows, out.suffix, source_share))
        journal.remove()
    return journal.rows


def _sources_of(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Different sources to calibrate on, not too many."""
    return list(dict.fromkeys(source for source, _ in pairs))[:MOST_SENTENCES]


def _require_texts(pairs: Sequence[tuple[str, str]]) -> None:
    for number, pair in enumerate(pairs, 1):
        if not all(text and text.strip() for text in pair):
            raise ValueError(f"Pair {number} has an empty side: there is nothing to score.")


def _score_all(
    reader: HeadReader,
    pairs: Sequence[tuple[str, str]],
    own: OwnTranslations,
    rarity: float,
    prompt: Prompt | None,
    explainer: Explainer | None,
    path: Path,
    progress: bool,
) -> Journal:
    """A row per pair; those that an interrupted run has left are not computed again."""
    settings: dict[str, Any] = {"model": own.weights, "calibration": _digest(asdict(own)), "rarity": rarity}
    if prompt is not None:
        settings["prompt"] = _digest(prompt.settings)
    settings |= {"data": _digest([list(pair) for pair in pairs]), "source_share": explainer is not None}
    journal = Journal(path, settings)
    sources = [source for source, _ in pairs]
    with tqdm(total=len(pairs), initial=len(journal.rows), desc="Scoring", disable=not progress) as bar:
        while len(journal.rows) < len(pairs):
            chunk = pairs[len(journal.rows) : len(journal.rows) + CHUNK]
            scores = score_pairs(reader, chunk, own, rarity=rarity, sources=sources)
            for (source, translation), score in zip(chunk, scores, strict=True):
                row = asdict(score)
                if explainer is not None:
                    row["source_total"] = _source_share(explainer, source, translation, prompt)
                journal.append({"source": source, "translation": translation, **row})
                bar.update()
    return journal


def _source_share(explainer: Explainer, source: str, translation: str, prompt: Prompt | None) -> float | None:
    """The mean of R_t(source) from the second step on; None for one step."""
    asked: dict[str, Any] = {"prompt": prompt, "predict": "target", "source_tokens": False}
    contributions = explainer.explain(source, translation, **asked)
    return contributions.mean()["source_total"] if len(contributions) > 1 else None


def _format(rows: Sequence[dict[str, Any]], kind: str, source_share: bool) -> bytes:
    if kind == ".jsonl":
        return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows).encode()
    numbers = _COLUMNS if source_share else _COLUMNS[:-1]
    header = (*numbers, "left_out", "without_support", "source", "translation")
    cells = ([*(row[name] for name in numbers), *map(_flagged, _sides(row)), *_texts(row)] for row in rows)
    return tsv_table(header, cells)


def _sides(row: dict[str, Any]) -> tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]]:
    return row["source_words"], row["target_words"]


def _flagged(words: Sequence[dict[str, Any]]) -> str:
    return " ".join(word["text"] for word in words if word["flagged"])


def _texts(row: dict[str, Any]) -> tuple[str, str]:
    return row["source"], row["translation"]


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}.{ending}")


def _digest(content: Any) -> str:
    return hashlib.sha256(json_bytes(content)).hexdigest()
