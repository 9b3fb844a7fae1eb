"""Evaluations of several seeds as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from claims.curves import USE, Curves
from claims.results import QUANTITIES, Results, measure_run
from claims.training import Training
from hf_lrp.corpus.run import Run, RunError


def read_curves(runs: Mapping[int, Run | Results], prefix: str) -> Curves:
    """Curves of one kind of model, from its evaluations by seed.

    Raises:
        RunError: they are not of the same sentences and tokens.
    """
    results = {seed: as_results(run) for seed, run in runs.items()}
    check_same_sentences(list(results.values()))
    rows = [each.prefix(prefix) for each in results.values()]
    values = {name: _pad([row for of_seed in rows for row in of_seed[name]]) for name in QUANTITIES}
    shape = len(runs), next(iter(results.values())).number
    return Curves(tuple(runs), {name: array.reshape(*shape, array.shape[-1]) for name, array in values.items()})


def read_training(runs: Mapping[int, Mapping[int, Run | Results]]) -> Training:
    """Checkpoints from their evaluations with reference prefixes, by seed and by the number of updates.

    Raises:
        RunError: they are not of the same sentences and tokens, or not of the same updates for all seeds.
    """
    updates = {tuple(sorted(checkpoints)) for checkpoints in runs.values()}
    if len(updates) != 1:
        raise RunError(
            "The trainings have checkpoints after different numbers of updates: evaluate the same ones of each."
        )
    steps = updates.pop()
    results = {
        seed: {step: as_results(checkpoints[step], checkpoints[steps[-1]]) for step in steps}
        for seed, checkpoints in runs.items()
    }
    check_same_sentences([each for checkpoints in results.values() for each in checkpoints.values()])
    curves = [read_curves(checkpoints, "reference") for checkpoints in results.values()]  # a row each
    divergence = [[_divergence(each) for each in checkpoints.values()] for checkpoints in results.values()]
    values = {name: np.stack([of_seed.of(name) for of_seed in curves]) for name in QUANTITIES if name != USE}
    return Training(tuple(runs), np.array(steps, dtype=np.float64), divergence=np.array(divergence), **values)


def as_results(run: Run | Results, last: Run | Results | None = None) -> Results:
    """The results of a run; of a checkpoint, with its divergence from the last one."""
    if isinstance(run, Results):
        return run
    return measure_run(run, last if isinstance(last, Run) else None)


def _divergence(results: Results) -> np.ndarray:
    if results.divergence is None:
        raise RunError(
            f"{results.name!r} has no divergence from the last checkpoint: measure it as one of a training."
        )
    return results.divergence


def check_same_sentences(results: Sequence[Results]) -> None:
    """Raise a RunError for evaluations of other sentences or tokens."""
    first = results[0]
    for other in results[1:]:
        if any(first.about[part] != other.about[part] for part in ("selection", "tokenizer")):
            raise RunError(
                f"Mismatched runs {first.name!r} and {other.name!r}: a claim compares the same sentences, cut into "
                "the same tokens. Evaluate all on the same data with the same lengths, number, seed and tokenizer."
            )


def _pad(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of different length as one array, nan after the end of each."""
    padded = np.full((len(rows), max(len(row) for row in rows)), np.nan)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return padded
