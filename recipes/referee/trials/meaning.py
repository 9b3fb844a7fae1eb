"""Whether R(source) says how much a prediction moves when the source is another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from trials.interventions import distributions
from trials.sentences import Sentence

OTHERS = 3  # sentences whose source, and whose target, take the place of a sentence's own
THIRDS = 3  # of a sentence
END, PUNCTUATION, FIRST, CONTINUATION = range(4)


def movements(model: PreTrainedModel, sentences: Sequence[Sentence], number: int) -> dict[str, list[float | None]]:
    """How far predictions move, KL(p ‖ q) in nats, from step 2 on; None where no other prefix is that long.

    Returns:
        ``moved_source``, ``moved_prefix`` and the source's part in their sum, ``moved_share``.
    """
    own = sentences[number]
    before = distributions(model, own, own)
    others = _others(sentences, number)
    steps = len(own.target)
    moved: dict[str, list[np.ndarray]] = {"moved_source": [], "moved_prefix": []}
    for other in others:
        moved["moved_source"].append(_divergence(before, distributions(model, other, own)))
        after = distributions(model, own, other)[:steps]
        found = np.full(steps, np.nan)
        found[: len(after)] = _divergence(before[: len(after)], after)
        moved["moved_prefix"].append(found)
    means = {name: _mean(np.stack(rows))[1:] for name, rows in moved.items()}
    total = means["moved_source"] + means["moved_prefix"]
    means["moved_share"] = np.divide(means["moved_source"], total, out=np.full_like(total, np.nan), where=total > 0)
    return {name: [value if np.isfinite(value) else None for value in row.tolist()] for name, row in means.items()}


def classes(tokens: Sequence[str], words: Sequence[int], ended: bool) -> dict[str, list[float]]:
    """Class of each predicted token from step 2 on: what it is, and in which third of the sentence."""
    found = []
    for place in range(1, len(tokens)):
        if ended and place == len(tokens) - 1:
            kind = END
        elif not re.search(r"\w", tokens[place].replace("▁", "").replace("Ġ", "")):
            kind = PUNCTUATION
        else:
            kind = CONTINUATION if words[place] == words[place - 1] else FIRST
        found.append(float(kind * THIRDS + place * THIRDS // len(tokens)))
    return {"classes": found, "one_class": [0.0] * len(found)}


def rows(
    shares: Mapping[str, np.ndarray], moved: Mapping[str, list[float | None]], kinds: Mapping[str, list[float]]
) -> dict[str, dict[str, list[float]]]:
    """By method, R(source) and the rest from step 2 on beside what moved, tokens without a movement left out.

    Args:
        shares: by method, R(source) of each step, `[T]`.
    """
    columns = {name: np.array(values, dtype=np.float64) for name, values in (*moved.items(), *kinds.items())}
    kept = np.isfinite(columns["moved_share"])
    common = {name: values[kept].tolist() for name, values in columns.items()}
    return {
        name: {"share": share[1:][kept].tolist(), "rest": (1 - share[1:][kept]).tolist(), **common}
        for name, share in shares.items()
    }


def _others(sentences: Sequence[Sentence], number: int) -> list[Sentence]:
    """The sentences after this one, the last followed by the first."""
    return [sentences[(number + k) % len(sentences)] for k in range(1, OTHERS + 1)]


def _divergence(before: Tensor, after: Tensor) -> np.ndarray:
    """KL of each row."""
    return (before.exp() * (before - after)).sum(-1).clamp(min=0).numpy().astype(np.float64)


def _mean(rows: np.ndarray) -> np.ndarray:
    """Mean of each column over what is defined there; nan where nothing is."""
    known = np.isfinite(rows)
    totals = np.where(known, rows, 0.0).sum(0)
    return np.divide(totals, known.sum(0), out=np.full(rows.shape[1], np.nan), where=known.any(0))
