"""What to take for a question, from its answers on all models: fixed before any answer was seen.

Taken are the methods that no model decides against: on each model the winner or, where nobody wins, the one that came
first and those that it is not better than. Is there no such method, it depends on the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from judgement.questions import Question


@dataclass(frozen=True)
class Advice:
    """What may be taken.

    Attributes:
        take: methods; one alone has won on some model.
        leads: of the first of these over the best of all other methods, on each model, positive where it is better.
    """

    take: tuple[str, ...]
    leads: tuple[float, ...]


def advise(question: Question, found: Mapping[str, Any]) -> Advice:
    """The advice from a question's answers, by model."""
    undecided = [
        [one["winner"]] if one["winner"] is not None else [one["first"], *one["rivals"]] for one in found.values()
    ]
    take = tuple(name for name in undecided[0] if all(name in names for names in undecided))
    leads = tuple(lead for one in found.values() if (lead := _lead(question, one, take)) is not None)
    return Advice(take, leads)


def _lead(question: Question, one: Mapping[str, Any], take: tuple[str, ...]) -> float | None:
    sign = 1 if question.higher else -1
    figures = {name: sign * row["figure"][0] for name, row in one["standings"].items() if name not in one["beside"]}
    others = [value for name, value in figures.items() if name not in take]
    return figures[take[0]] - max(others) if take and others else None
