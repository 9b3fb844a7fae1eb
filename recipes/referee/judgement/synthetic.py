"""How often the verdicts err, on made-up findings for which the truth is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from judgement.decide import Answer, answer
from judgement.measures import Row, area_under_curve, mean_of, rank_correlation
from judgement.questions import BASELINE, QUESTIONS, Question

METHODS = (BASELINE, *(f"method {number}" for number in range(1, 8)))
PLANTED = METHODS[3]
# how far the planted method leads the others, in minimum differences
CASES = {"equals": 0.0, "half the minimum": 0.5, "twice the minimum": 2.0, "four times the minimum": 4.0}
SETS = 100
SENTENCES = 120
TOKENS = 25


def error_rates(sets: int = SETS, draws: int = 400) -> dict[str, dict[str, Counter[str]]]:
    """By kind of figure and case: in how many sets the planted method won, or another, or equals differed."""
    table: dict[str, dict[str, Counter[str]]] = {}
    for kind, (question, make) in _WORLDS.items():
        for case, lead in CASES.items():
            counts: Counter[str] = Counter()
            for repeat in range(sets):
                rng = np.random.default_rng([list(_WORLDS).index(kind), list(CASES).index(case), repeat])
                found = answer(question, make(rng, lead * question.minimum), METHODS, draws)
                counts.update(_count(found))
            table.setdefault(kind, {})[case] = counts
    return table


def _count(found: Answer) -> Counter[str]:
    wrong = [one for name, one in found.standings.items() if name != PLANTED and one.against in ("better", "worse")]
    return Counter(
        {
            "planted wins": int(found.winner == PLANTED),
            "another wins": int(found.winner not in (None, PLANTED)),
            "an equal differs": int(bool(wrong)),
            "planted better": int(found.standings[PLANTED].against == "better"),
        }
    )


def _means(rng: np.random.Generator, lead: float) -> Mapping[str, Sequence[Row]]:
    """Falls of log-probability as they are seen: sentences differ by more than methods do."""
    sentence = rng.gamma(4.0, 1.0, SENTENCES)
    return {
        name: [{"value": [value]} for value in sentence + rng.normal(0, 0.8, SENTENCES) + lead * (name == PLANTED)]
        for name in METHODS
    }


def _correlations(rng: np.random.Generator, lead: float) -> Mapping[str, Sequence[Row]]:
    """Shares that follow what moves, with a correlation of about 0.4."""
    moved = rng.normal(size=(SENTENCES, TOKENS))
    shared = rng.normal(size=(SENTENCES, TOKENS))
    labels = rng.integers(3, size=(SENTENCES, TOKENS))
    found = {}
    for name in METHODS:
        rho = 0.4 + lead * (name == PLANTED)
        noise = (shared + rng.normal(size=moved.shape)) / np.sqrt(2)
        share = rho * moved + np.sqrt(1 - rho**2) * noise
        found[name] = [{"share": x, "moved": y, "classes": z} for x, y, z in zip(share, moved, labels, strict=True)]
    return found


def _marks(rng: np.random.Generator, lead: float) -> Mapping[str, Sequence[Row]]:
    """Marked tokens score higher: by as much as gives an AUROC of 0.75, plus the lead."""
    marked = rng.random((SENTENCES, TOKENS)) < 0.15
    shared = rng.normal(size=marked.shape)
    found = {}
    for name in METHODS:
        distance = np.sqrt(2) * NormalDist().inv_cdf(0.75 + lead * (name == PLANTED))
        score = distance * marked + (shared + rng.normal(size=marked.shape)) / np.sqrt(2)
        found[name] = [{"score": x, "marked": y} for x, y in zip(score, marked, strict=True)]
    return found


_BY_NAME = {question.name: question for question in QUESTIONS}
_World = Callable[[np.random.Generator, float], Mapping[str, Sequence[Row]]]
_WORLDS: dict[str, tuple[Question, _World]] = {
    "mean": (replace(_BY_NAME["tokens"], measure=mean_of("value"), further=()), _means),
    "rank correlation": (
        replace(_BY_NAME["meaning"], measure=rank_correlation("share", "moved", "classes"), further=()),
        _correlations,
    ),
    "AUROC": (replace(_BY_NAME["left-out"], measure=area_under_curve("score", "marked"), further=()), _marks),
}
