"""Runs of several seeds as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from claims.curves import USE, Curves
from claims.training import Training
from hf_lrp.analysis.measures.metrics import DIVERGENCE, influence_divergence
from hf_lrp.analysis.run.store import Run, RunError, Sentence
from hf_lrp.result.quantities import source_entropy, source_total, source_use, target_entropy

QUANTITIES = ("source_total", "source_entropy", "target_entropy", "correct", USE)


def read_curves(runs: Mapping[int, Run], prefix: str) -> Curves:
    """Curves of one kind of model, from its runs by seed.

    Raises:
        RunError: the runs are not of the same sentences and tokens.
    """
    check_same_sentences(list(runs.values()))
    of_seeds = [_read_run(run, prefix) for run in runs.values()]
    values = {name: _pad([row for rows in of_seeds for row in rows[name]]) for name in QUANTITIES}
    return Curves(tuple(runs), {name: array.reshape(len(runs), -1, array.shape[-1]) for name, array in values.items()})


def read_training(runs: Mapping[int, Mapping[int, Run]], prefix: str) -> Training:
    """Checkpoints from their runs, by seed and by the number of updates.

    Raises:
        RunError: the runs are not of the same sentences and tokens, or not of the same updates for all seeds.
    """
    updates = {tuple(sorted(checkpoints)) for checkpoints in runs.values()}
    if len(updates) != 1:
        raise RunError(
            "The trainings have checkpoints after different numbers of updates: evaluate the same ones of each."
        )
    steps = updates.pop()
    check_same_sentences([run for checkpoints in runs.values() for run in checkpoints.values()])
    curves = [
        read_curves({step: checkpoints[step] for step in steps}, prefix) for checkpoints in runs.values()
    ]  # of a seed: a row per checkpoint
    divergence = [
        [influence_divergence(checkpoints[step], checkpoints[steps[-1]], prefix).means[DIVERGENCE] for step in steps]
        for checkpoints in runs.values()
    ]
    values = {name: np.stack([of_seed.of(name) for of_seed in curves]) for name in QUANTITIES if name != USE}
    return Training(tuple(runs), np.array(steps, dtype=np.float64), divergence=np.array(divergence), **values)


def check_same_sentences(runs: Sequence[Run]) -> None:
    """Raise a RunError for runs of other sentences or tokens."""
    first = runs[0]
    for run in runs[1:]:
        selections, tokenizers = (
            [each.manifest[part]["sha256"] for each in (first, run)] for part in ("selection", "tokenizer")
        )
        if selections[0] != selections[1] or tokenizers[0] != tokenizers[1]:
            raise RunError(
                f"Mismatched runs {first.name!r} and {run.name!r}: a claim compares the same sentences, cut into the "
                "same tokens. Evaluate all on the same data with the same lengths, number, seed and tokenizer."
            )


def _read_run(run: Run, prefix: str) -> dict[str, list[np.ndarray]]:
    """By quantity, an array per sentence."""
    rows = [_measure(sentence) for sentence in run.sentences(prefix)]
    return {name: [row[name] for row in rows] for name in QUANTITIES}


def _measure(sentence: Sentence) -> dict[str, np.ndarray]:
    return {
        "source_total": source_total(sentence.source),
        "source_entropy": source_entropy(sentence.source),
        "target_entropy": target_entropy(sentence.target),
        "correct": sentence.correct.astype(np.float64),
        USE: source_use(sentence.source),
    }


def _pad(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of different length as one array, nan after the end of each."""
    padded = np.full((len(rows), max(len(row) for row in rows)), np.nan)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return padded
