"""How much a model usually depends on its source: R_t(source) in its own translations, by position."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from hf_lrp.corpus.journal import Journal
from hf_lrp.corpus.settings import hash_weights
from hf_lrp.data.json_files import json_bytes, read_json, write_json
from hf_lrp.explaining.explainer import Explainer
from hf_lrp.kinds.table import kind_of
from hf_lrp.models.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hf_lrp.inputs.prompts import Prompt

LEAST_SENTENCES = 10  # to calibrate on
LEAST_VALUES = 30  # of R_t(source) in a bin

_FORMAT = "hf_lrp.calibration"
_CHUNK = 16  # sentences that are translated together


@dataclass(frozen=True)
class Calibration:
    """Mean and standard deviation of R_t(source) in a model's own translations, by position.

    Entry i is for step i + 2 (at the first step R_t(source) is always 1), the last entry for all later steps too.

    Attributes:
        mean: by position.
        deviation: by position.
        sentences: how many translations these are of.
        model: the model's name.
        weights: the SHA-256 of its weights.
        sources: the SHA-256 of the sentences that were translated.
        kept: the share of these translations that the tokenizer splits as the model wrote them.
        generate: options for `generate` that they were made with.
        prompt: what the model read them in, if it has no encoder.
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    sentences: int
    model: str
    weights: str
    sources: str
    kept: float
    generate: dict[str, Any] = field(default_factory=dict)
    prompt: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if not self.mean or len(self.mean) != len(self.deviation):
            raise ValueError(f"{len(self.mean)} means and {len(self.deviation)} deviations do not go together")
        if not all(map(math.isfinite, (*self.mean, *self.deviation))) or min(self.deviation) <= 0:
            raise ValueError("means must be finite, and deviations above 0: with others, every word would be flagged")
        if not (self.sentences >= 1 and 0 <= self.kept <= 1):
            raise ValueError(f"{self.sentences} sentences of which {self.kept} are kept cannot be")

    def at(self, steps: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation at these steps, counted from 1, each [T]; nan at the first step."""
        numbers = np.asarray(steps, dtype=np.int64)
        places = np.clip(numbers - 2, 0, len(self.mean) - 1)
        mean, deviation = (np.where(numbers > 1, np.array(v)[places], math.nan) for v in (self.mean, self.deviation))
        return mean, deviation

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file."""
        write_json(path, {"format": _FORMAT, **asdict(self)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read what `save` wrote; a ValueError says what is wrong with the file."""
        try:
            content = read_json(path)
            if content.pop("format") != _FORMAT:
                raise ValueError("it has another format")
            content |= {name: tuple(map(float, content[name])) for name in ("mean", "deviation")}
            return cls(**content)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} is not a range of R(source) that `hf-lrp score --source-share` wrote ({error}): give its "
                ".source-share.json."
            ) from error


def calibrate(
    rows: Sequence[Mapping[str, Any]],
    *,
    model: str,
    weights: str,
    sources: str,
    generate: dict[str, Any] | None = None,
    prompt: dict[str, Any] | None = None,
) -> Calibration:
    """Mean and deviation of R_t(source) by position, from the rows of `translate_and_measure`.

    Neighbouring positions with fewer than 30 values are pooled.
    """
    curves = [row["curve"] for row in rows]
    if len(curves) < LEAST_SENTENCES or sum(map(len, curves)) < len(curves) + LEAST_VALUES:
        raise ValueError(
            f"{len(curves)} sentences with {sum(map(len, curves))} tokens are too few to know how much a model "
            f"usually depends on its source: calibrate on at least {LEAST_SENTENCES}, better 100."
        )
    pools = _pool([[curve[t] for curve in curves if len(curve) > t] for t in range(1, max(map(len, curves)))])
    deviations = [float(np.std(values, ddof=1)) for values, _ in pools]
    if min(deviations) == 0:
        raise ValueError(
            "R_t(source) is the same in all translations of the model at some position, so that nothing can differ "
            "from what is usual: calibrate on other sentences."
        )
    return Calibration(
        mean=tuple(float(np.mean(values)) for values, width in pools for _ in range(width)),
        deviation=tuple(chain.from_iterable([d] * width for d, (_, width) in zip(deviations, pools, strict=True))),
        sentences=len(curves),
        model=model,
        weights=weights,
        sources=sources,
        kept=sum(row["kept"] for row in rows) / len(rows),
        generate=generate or {},
        prompt=prompt,
    )


def _pool(by_position: Sequence[list[float]]) -> list[tuple[list[float], int]]:
    """Values of neighbouring positions put together until they are enough, and how many positions these are."""
    pools: list[tuple[list[float], int]] = []
    values: list[float] = []
    width = 0
    for more in by_position:
        values, width = values + more, width + 1
        if len(values) >= LEAST_VALUES:
            pools.append((values, width))
            values, width = [], 0
    if width and pools:  # too few are left at the end
        last, before = pools.pop()
        values, width = last + values, before + width
        pools.append((values, width))
    return pools


def translate_and_measure(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    journal: Journal,
    progress: bool = False,
    prompt: Prompt | None = None,
    **generate_options: Any,
) -> None:
    """Translate the sources that the journal has no row for, and keep what `calibrate` needs.

    A row's `curve` is R_t(source) of the translation; `kept`: the tokenizer splits its text as the model wrote it.
    """
    explainer, kind, vocabulary = Explainer(model, tokenizer), kind_of(model), Vocabulary(model, tokenizer)
    with tqdm(total=len(sources), desc="Calibrating", unit="sentence", disable=not progress) as bar:
        bar.update(len(journal.rows))
        while len(journal.rows) < len(sources):
            chunk = list(sources[len(journal.rows) : len(journal.rows) + _CHUNK])
            asked: dict[str, Any] = {"prompt": prompt, "predict": "target", "source_tokens": False}
            results = explainer.explain(chunk, **asked, **generate_options)
            for c in results:
                kept = kind.keeps(vocabulary, prompt, c.target_ids.tolist())
                journal.append({"curve": c.source_total.tolist(), "kept": kept})
                bar.update()


def load_or_calibrate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    path: Path,
    progress: bool = False,
    prompt: Prompt | None = None,
    **generate_options: Any,
) -> Calibration:
    """The calibration of a model on the translations of these sources, kept in a file; interrupted, it goes on."""
    measured: dict[str, Any] = {
        "weights": hash_weights(model),
        "sources": hashlib.sha256(json_bytes(list(sources))).hexdigest(),
        "generate": generate_options,
        "prompt": None if prompt is None else prompt.settings,
    }
    if path.exists():
        calibration = Calibration.load(path)
        if all(getattr(calibration, name) == value for name, value in measured.items()):
            return calibration
    journal = Journal(path.with_suffix(".partial"), measured)
    translate_and_measure(model, tokenizer, sources, journal, progress, prompt, **generate_options)
    calibration = calibrate(journal.rows, model=str(model.config.name_or_path), **measured)
    calibration.save(path)
    journal.remove()
    return calibration


def require_own(calibration: Calibration, model: PreTrainedModel, prompt: Prompt | None = None) -> None:
    """Raise a ValueError if a calibration is of another model or prompt."""
    if calibration.prompt != (None if prompt is None else prompt.settings):
        raise ValueError(
            "The calibration was measured with another prompt: give that one, or sentences to calibrate on."
        )
    if calibration.weights != hash_weights(model):
        raise ValueError(
            f"The calibration was measured on {calibration.model} with other weights: give sentences to calibrate "
            "this model on."
        )
