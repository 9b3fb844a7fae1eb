"""Whether a prediction falls when the tokens are taken away that a method ranks highest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

import numpy as np
from transformers import PreTrainedModel

from trials.interventions import Changed, Edit, Way
from trials.sentences import Sentence

COUNTS = (1, 2, 4)
FRACTIONS = (0.1, 0.2, 0.5)
STEPS = 1  # of a sentence, drawn among those with a prefix of at least max(COUNTS) tokens
SIDES = ("both", "source", "prefix")
WAYS: tuple[Way, ...] = ("mask", "replace")
RANDOM = ("random-1", "random-2", "random-3")  # equals, among which no winner may be found
NEAREST = "nearest"

Token = tuple[str, int]  # "source" with a column, or "prefix" with a place in the target


def choose_steps(sentence: Sentence, number: int) -> list[int]:
    """The steps that are tried, from 0, ascending: the same for all methods."""
    possible = np.arange(max(COUNTS), len(sentence.target))
    drawn = np.random.default_rng([1, number]).permutation(possible)[:STEPS]
    return sorted(int(step) for step in drawn)


def measure(
    model: PreTrainedModel,
    sentence: Sentence,
    number: int,
    values: Mapping[str, tuple[np.ndarray, np.ndarray]],
) -> dict[str, dict[str, list[float]]]:
    """What each method's order of tokens takes from the predictions of one sentence.

    Args:
        number: of the sentence: what is drawn depends on it.
        values: by method, its values `[T, S]` and `[T, T]` of source and target tokens.

    Returns:
        by method, and of orders that know nothing, a list over steps of each figure, in nats.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for step in choose_steps(sentence, number):
        changed = Changed(model, sentence, step)
        orders = {name: _order(sentence, step, *both) for name, both in values.items()} | _blind(
            sentence, step, number
        )
        trials = {name: list(_trials(order)) for name, order in orders.items()}
        changed.compute(edit for edits in trials.values() for _, edit in edits)
        for name, edits in trials.items():
            collected: dict[str, list[float]] = {}
            for figures, edit in edits:
                for figure in figures:
                    collected.setdefault(figure, []).append(changed.untouched - changed[edit])
            for figure, falls in collected.items():
                found.setdefault(name, {}).setdefault(figure, []).append(float(np.mean(falls)))
    return found


def _trials(order: Sequence[Token]) -> Iterator[tuple[tuple[str, ...], Edit]]:
    """Pairs of the figures that an edit has a part in, and the edit."""
    for side in SIDES:
        tokens = [token for token in order if side in ("both", token[0])]
        for way in WAYS:
            for count in COUNTS:
                yield (f"{side}_fall", f"{side}_fall_{way}"), _remove(tokens[:count], way)
            for fraction in FRACTIONS:
                count = ceil(fraction * len(tokens))
                yield (f"{side}_fall_fractions",), _remove(tokens[:count], way)
                yield (f"{side}_loss_fractions",), _remove(tokens[count:], way)


def _remove(tokens: Sequence[Token], way: Way) -> Edit:
    by_side = {side: frozenset(place for own, place in tokens if own == side) for side in ("source", "prefix")}
    return Edit(by_side["source"], by_side["prefix"], way)


def _tokens(sentence: Sentence, step: int) -> list[Token]:
    return [("source", column) for column in sentence.removable] + [("prefix", place) for place in range(step)]


def _order(sentence: Sentence, step: int, source: np.ndarray, target: np.ndarray) -> list[Token]:
    """Tokens by a method's values at one step, the highest first."""
    values = {"source": source[step], "prefix": target[step]}
    return sorted(_tokens(sentence, step), key=lambda token: -values[token[0]][token[1]])


def _blind(sentence: Sentence, step: int, number: int) -> dict[str, list[Token]]:
    """Orders that do not look at the model."""
    tokens = _tokens(sentence, step)
    orders: dict[str, list[Token]] = {}
    for seed, name in enumerate(RANDOM):
        drawn = np.random.default_rng([2 + seed, number, step]).permutation(len(tokens))
        orders[name] = [tokens[place] for place in drawn]
    here = step * len(sentence.source) / len(sentence.target)  # the source's place on the diagonal

    def distance(token: Token) -> float:
        return abs(token[1] - here) if token[0] == "source" else step - 1 - token[1]

    orders[NEAREST] = sorted(tokens, key=distance)
    return orders
