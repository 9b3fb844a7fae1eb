"""Risks, which Minimum Risk Training minimises: how bad a candidate is, given the reference."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from transformers import PreTrainedTokenizerBase

# Candidates and their reference as token ids, without end-of-sentence token and padding, to one risk per candidate.
# Lower is better.
Risk = Callable[[Sequence[Sequence[int]], Sequence[int]], Sequence[float]]

SMOOTHINGS = ("add-one", "released")
_ORDERS = (1, 2, 3, 4)
_FLOOR = 0.1  # what the released code counts in the place of no match
_ERROR_RATES = frozenset({"ter", "wer", "cer"})  # metrics of which lower is better


def negative_sentence_bleu(
    candidates: Sequence[Sequence[int]], reference: Sequence[int], *, smoothing: str = "add-one"
) -> list[float]:
    """Minus the smoothed sentence BLEU of each candidate, between -1 (equal to the reference) and 0.

    With c and r the lengths of candidate and reference, m_n the number of the candidate's n-grams that are in the
    reference (each at most as often as there) and t_n = max(c - n + 1, 0) the number of all its n-grams,

        BLEU = min(1, exp(1 - r / c)) · (m_1 / t_1 · Π_{n=2..4} (m_n + 1) / (t_n + 1)) ^ (1/4),

    and 0 if no token of the candidate is in the reference. This is "add one for n > 1" (Lin & Och 2004), sacrebleu's
    ``add-k`` with k = 1. With ``smoothing="released"``, as in the code released with the paper, nothing is added, but
    0.1 counted for each m_n that is 0, and 1 for each t_n that is 0.
    """
    counted = [Counter(_ngrams(reference, order)) for order in _ORDERS]
    return [-_sentence_bleu(candidate, counted, len(reference), smoothing) for candidate in candidates]


def _sentence_bleu(
    candidate: Sequence[int], counted: list[Counter[tuple[int, ...]]], length: int, smoothing: str
) -> float:
    """BLEU, given the reference's n-gram counts by order and its length."""
    logarithm = 0.0
    for order, available in zip(_ORDERS, counted, strict=True):
        matches = sum(min(n, available[gram]) for gram, n in Counter(_ngrams(candidate, order)).items())
        if not matches and order == 1:
            return 0.0
        total = max(len(candidate) - order + 1, 0)
        if smoothing == "released":
            logarithm += math.log((matches or _FLOOR) / max(total, 1))
        else:
            logarithm += math.log((matches + (order > 1)) / (total + (order > 1)))
    return math.exp(logarithm / len(_ORDERS) + min(0.0, 1 - length / len(candidate)))


def _ngrams(ids: Sequence[int], order: int) -> zip[tuple[int, ...]]:
    return zip(*(islice(ids, start, None) for start in range(order)), strict=False)


class TextRisk:
    """A risk on decoded text.

    ``metric``: a sacrebleu metric such as ``BLEU(effective_order=True)``, ``CHRF()`` or ``TER()``, or a module of
    `evaluate`. The risk is the score's negative, or the score itself for error rates (TER, WER, CER); scores out of
    100 are divided by 100.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, metric: Any) -> None:
        self.tokenizer = tokenizer
        self._score = _scorer(metric)
        name = getattr(metric, "name", None) or type(metric).__name__
        self._sign = 1.0 if name.lower() in _ERROR_RATES else -1.0

    @classmethod
    def chrf(cls, tokenizer: PreTrainedTokenizerBase) -> TextRisk:
        """Minus chrF, between -1 and 0."""
        try:
            from sacrebleu.metrics import CHRF
        except ImportError as error:
            raise ImportError("chrF comes from sacrebleu: pip install sacrebleu") from error
        return cls(tokenizer, CHRF())

    def __call__(self, candidates: Sequence[Sequence[int]], reference: Sequence[int]) -> list[float]:
        rows = [list(ids) for ids in (reference, *candidates)]
        expected, *texts = self.tokenizer.batch_decode(rows, skip_special_tokens=True)
        return [self._sign * self._score(text, expected) for text in texts]


def _scorer(metric: Any) -> Callable[[str, str], float]:
    """A function of (hypothesis, reference), whose values are out of 1 where they are known to be out of 100."""
    if hasattr(metric, "sentence_score"):
        return lambda text, expected: metric.sentence_score(text, [expected]).score / 100
    if hasattr(metric, "compute") and hasattr(metric, "features"):
        return _evaluate_scorer(metric)
    raise TypeError(
        f"{metric!r} is neither a sacrebleu metric (an object with sentence_score, such as sacrebleu.metrics.CHRF()) "
        "nor a loaded module of evaluate (evaluate.load(...)). Pass one of these to TextRisk, or as the risk a "
        "function that takes (candidates, reference) as token ids and returns one number per candidate."
    )


def _evaluate_scorer(module: Any) -> Callable[[str, str], float]:
    features = module.features[0] if isinstance(module.features, list) else module.features
    nested = not hasattr(features["references"], "dtype") or features["references"].dtype != "string"

    def score(text: str, expected: str) -> float:
        results = module.compute(predictions=[text], references=[[expected] if nested else expected])
        if "score" in results:  # sacrebleu's metrics
            return results["score"] / 100
        value = results.get(module.name, next(iter(results.values())) if len(results) == 1 else None)
        if not isinstance(value, int | float):
            raise ValueError(
                f"The metric {module.name} returns {sorted(results)}, and none of these is known to be the score of "
                "one sentence. Pass as the risk a function that takes (candidates, reference) as token ids, computes "
                "the metric, and returns one number per candidate."
            )
        return float(value)

    return score
