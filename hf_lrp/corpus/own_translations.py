"""Usual range of a model's own translations: how far they cover their sources, how probable their words are."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from hf_lrp.corpus.journal import Journal
from hf_lrp.corpus.settings import hash_weights
from hf_lrp.corpus.support import Measures, Support, measure_pairs, read_others
from hf_lrp.data.json_files import json_bytes, read_json, write_json
from hf_lrp.inputs.options import check_generation, require_generate
from hf_lrp.inputs.prefixes import seeded
from hf_lrp.inputs.prompts import Prompt
from hf_lrp.kinds.kind import Asked
from hf_lrp.links.agreement import SENTENCES, link_heads
from hf_lrp.links.heads import Head
from hf_lrp.links.texts import read_texts
from hf_lrp.links.weights import HeadReader
from hf_lrp.pages.telling import may_be_spoken_of

LEAST_SENTENCES = 10  # to know what is usual
HEADS = 8  # of the link heads, the best first, that coverage is read from
CHUNK = 64  # pairs that are measured together
NAMES = ("coverage", "log_probability", "source_word", "target_word")

_FORMAT = "hf_lrp.own_translations.2"
_QUANTILES = 1001
_BATCH = 16  # sentences that are translated together


@dataclass(frozen=True)
class OwnTranslations:
    """Usual range of a model's own translations.

    Attributes:
        values: by name (`NAMES`) values in rising order: all, or 1,001 quantiles; of sentences and of words.
        measures: what words were measured by.
        heads: the link heads that coverage is read from.
        sentences: how many translations these are of.
        model: the model's name.
        weights: the SHA-256 of its weights.
        sources: the SHA-256 of the sentences that were translated.
        kept: the share of these translations that the tokenizer splits as the model wrote them.
        generate: options for `generate` that they were made with.
        prompt: what the model read them in, if it has no encoder.
    """

    values: dict[str, tuple[float, ...]]
    measures: Measures
    heads: tuple[Head, ...]
    sentences: int
    model: str
    weights: str
    sources: str
    kept: float
    generate: dict[str, Any] = field(default_factory=dict)
    prompt: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if sorted(self.values) != sorted(NAMES) or not all(self.values.values()):
            raise ValueError(f"there must be values of {', '.join(NAMES)}")
        for name, values in self.values.items():
            if not all(map(math.isfinite, values)) or list(values) != sorted(values):
                raise ValueError(f"the values of {name} must be finite and rise")
        if not self.heads or not (self.sentences >= 1 and 0 <= self.kept <= 1):
            raise ValueError(f"{len(self.heads)} heads and {self.sentences} sentences, {self.kept} kept, cannot be")

    def rank(self, name: str, value: float) -> float:
        """Which share of the model's own values is lower."""
        values = self.values[name]
        return float(np.searchsorted(values, value) / len(values))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file."""
        write_json(path, {"format": _FORMAT, **asdict(self)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> OwnTranslations:
        """Read what `save` wrote; a ValueError says what is wrong with the file."""
        try:
            content = read_json(path)
            if content.pop("format") != _FORMAT:
                raise ValueError("it has another format")
            content["values"] = {name: tuple(map(float, values)) for name, values in content["values"].items()}
            content["measures"] = Measures(**content["measures"])
            content["heads"] = tuple(Head(int(layer), int(head), step) for layer, head, step in content["heads"])
            return cls(**content)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} is not a calibration that `hf-lrp score` wrote ({error}): give another file, or sentences "
                "to calibrate on."
            ) from error


def load_or_measure(
    reader: HeadReader,
    sources: Sequence[str],
    path: Path,
    measures: Measures,
    progress: bool = False,
    prompt: Prompt | None = None,
    **generate_options: Any,
) -> OwnTranslations:
    """Usual range of a model's translations of these sources, kept in a file; interrupted, it goes on."""
    made: dict[str, Any] = {
        "weights": hash_weights(reader.model),
        "sources": hashlib.sha256(json_bytes(list(sources))).hexdigest(),
        "generate": generate_options,
        "prompt": None if prompt is None else prompt.settings,
    }
    if path.exists():
        own = OwnTranslations.load(path)
        if own.measures == measures and all(getattr(own, name) == value for name, value in made.items()):
            return own
    journal = Journal(path.with_suffix(".partial"), made)
    _translate(reader, sources, journal, progress, prompt, generate_options)
    own = _measure(reader, sources, journal.rows, measures, made, progress)
    own.save(path)
    journal.remove()
    return own


def _translate(
    reader: HeadReader,
    sources: Sequence[str],
    journal: Journal,
    progress: bool,
    prompt: Prompt | None,
    options: dict[str, Any],
) -> None:
    """Translate the sources that the journal has no row for: ids, and whether their text becomes them again."""
    model, _ = reader.network()
    require_generate(model)
    check_generation(options, reader.vocabulary.sizes["target"])
    with tqdm(total=len(sources), desc="Translating", unit="sentence", disable=not progress) as bar:
        bar.update(len(journal.rows))
        while len(journal.rows) < len(sources):
            chunk = list(sources[len(journal.rows) : len(journal.rows) + _BATCH])
            reading = reader.kind.read(Asked(model, reader.vocabulary, chunk, prompt, None, options))
            with seeded(0, model.device):
                prefixes = reading.generate(model, _BATCH, options, False)
            for prefix in prefixes:
                ids = prefix.ids.tolist()
                journal.append({"ids": ids, "kept": reader.kind.keeps(reader.vocabulary, prompt, ids)})
                bar.update()


def _measure(
    reader: HeadReader,
    sources: Sequence[str],
    rows: Sequence[dict[str, Any]],
    measures: Measures,
    made: dict[str, Any],
    progress: bool,
) -> OwnTranslations:
    tokenizer: Any = reader.vocabulary.tokenizer
    texts = [tokenizer.decode(row["ids"], skip_special_tokens=True).strip() for row in rows]
    written = [number for number, text in enumerate(texts) if text]
    if len(written) < LEAST_SENTENCES:
        raise ValueError(
            f"{len(written)} translations are too few to know what is usual for a model: calibrate on at least "
            f"{LEAST_SENTENCES} sentences, better 100."
        )
    first = written[:SENTENCES]
    sides = read_texts([sources[n] for n in first], "source"), read_texts([texts[n] for n in first], "target")
    heads = link_heads(reader, *sides).heads[:HEADS]
    found: list[Support] = []
    with tqdm(total=len(written), desc="Calibrating", unit="sentence", disable=not progress) as bar:
        for start in range(0, len(written), CHUNK):
            chosen = written[start : start + CHUNK]
            targets = [rows[n]["ids"] for n in chosen]
            pairs = reader.read([sources[n] for n in chosen], targets)
            others = read_others(reader, sources, [sources[n] for n in chosen], targets) if measures.ratio else ()
            found += measure_pairs(reader, pairs, heads, measures, others)
            bar.update(len(chosen))
    return OwnTranslations(
        values=_usual(found),
        measures=measures,
        heads=heads,
        sentences=len(written),
        model=str(reader.model.config.name_or_path),
        kept=sum(row["kept"] for row in rows) / len(rows),
        **made,
    )


def _usual(found: Sequence[Support]) -> dict[str, tuple[float, ...]]:
    words = {
        f"{side}_word": [
            value
            for one in found
            for text, value in zip(getattr(one, side).texts, getattr(one, side).values, strict=True)
            if may_be_spoken_of(text)
        ]
        for side in ("source", "target")
    }
    values = {"coverage": [one.coverage for one in found], "log_probability": [one.log_probability for one in found]}
    return {name: _quantiles(numbers) for name, numbers in (values | words).items()}


def _quantiles(values: Sequence[float]) -> tuple[float, ...]:
    """All values in rising order, or so many of them, evenly spaced."""
    if len(values) <= _QUANTILES:
        return tuple(sorted(values))
    levels = np.linspace(0, 1, _QUANTILES)
    return tuple(np.quantile(values, levels, method="inverted_cdf").tolist())


def require_own(
    own: OwnTranslations, model: PreTrainedModel, measures: Measures, prompt: Prompt | None = None
) -> None:
    """Raise a ValueError if this is of another model or prompt, or if words were measured by something else."""
    if own.prompt != (None if prompt is None else prompt.settings):
        raise ValueError(
            "The calibration was measured with another prompt: give that one, or sentences to calibrate on."
        )
    if own.weights != hash_weights(model):
        raise ValueError(
            f"The calibration was measured on {own.model} with other weights: give sentences to calibrate "
            "this model on."
        )
    if own.measures != measures:
        raise ValueError(
            f"The calibration is of words by {' and '.join(own.measures.names)}, not by "
            f"{' and '.join(measures.names)}: ask for those, or give sentences to calibrate on."
        )
