"""Translations that depend less on their source than usual: R_t(source) against a model's own translations."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from hf_lrp.analysis.run.journal import Journal
from hf_lrp.data.json_files import read_json, write_json
from hf_lrp.result.quantities import from_second_step
from hf_lrp.result.words import looks_special

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hf_lrp.result.contributions import Contributions

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
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    sentences: int
    model: str
    weights: str
    sources: str
    kept: float

    def z_scores(self, source_total: Sequence[float] | np.ndarray) -> np.ndarray:
        """How many standard deviations above the mean each R_t(source) is, [T] for [T]; nan at the first step."""
        curve = np.asarray(source_total, dtype=np.float64)
        places = np.minimum(np.arange(len(curve)) - 1, len(self.mean) - 1)
        z = (curve - np.array(self.mean)[places]) / np.array(self.deviation)[places]
        z[:1] = math.nan
        return z

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
                f"{path} is no calibration that `hf-lrp score` has written ({error}): give another file, or sentences "
                "to calibrate on."
            ) from error


def calibrate(rows: Sequence[Mapping[str, Any]], *, model: str, weights: str, sources: str) -> Calibration:
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
    return Calibration(
        mean=tuple(float(np.mean(values)) for values, width in pools for _ in range(width)),
        deviation=tuple(float(np.std(values, ddof=1)) for values, width in pools for _ in range(width)),
        sentences=len(curves),
        model=model,
        weights=weights,
        sources=sources,
        kept=sum(row["kept"] for row in rows) / len(rows),
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


@dataclass(frozen=True)
class Score:
    """How much less than usual a translation depends on its source.

    Attributes:
        score: the mean of the z-scores of R_t(source), from the second step on; the lower, the more detached.
        source_total: the mean of R_t(source) over the same steps.
        log_probability: the mean over all steps, the first too, for comparison.
        words: of the translation, without special tokens.
        z: the mean z-score of each word's tokens; None where only the first step predicts it.
        flagged: which words are below the threshold.
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
    z = calibration.z_scores(curve)
    texts = contributions.merge_subwords().target_tokens
    members = np.array(contributions.target_words)
    words = [(text, _mean(z[members == word])) for word, text in enumerate(texts) if not looks_special(text)]
    return Score(
        score=_mean(z),
        source_total=_mean(from_second_step(curve)),
        log_probability=float(contributions.probability.double().log().mean()),
        words=tuple(text for text, _ in words),
        z=tuple(mean for _, mean in words),
        flagged=tuple(mean is not None and mean < threshold for _, mean in words),
    )


def _mean(values: np.ndarray) -> float | None:
    """Without nan; None if there is nothing else."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else None


def translate_and_measure(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    journal: Journal,
    progress: bool = False,
) -> None:
    """Translate the sources that the journal has no row for, and keep what `calibrate` needs.

    A row's `curve` is R_t(source) of the translation; `kept`: the tokenizer splits its text as the model wrote it.
    """
    from hf_lrp.data.vocabulary import Vocabulary
    from hf_lrp.explaining.explain import explain

    vocabulary = Vocabulary(model, tokenizer)
    with tqdm(total=len(sources), desc="Calibrating", unit="sentence", disable=not progress) as bar:
        bar.update(len(journal.rows))
        while len(journal.rows) < len(sources):
            chunk = list(sources[len(journal.rows) : len(journal.rows) + _CHUNK])
            results = explain(model, tokenizer, chunk, predict="target")
            assert isinstance(results, list)
            for c in results:
                text = str(tokenizer.decode(c.target_ids.tolist(), skip_special_tokens=True)).strip()
                kept = bool(text) and vocabulary.encode([text], "target")[0] == c.target_ids.tolist()
                journal.append({"curve": c.source_total.tolist(), "kept": kept})
                bar.update()
