"""Runs with the same tokens but other shares, as two checkpoints of a model have."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from example_run import write_run, write_shards

from hf_lrp.corpus.run import Run
from hf_lrp.corpus.shards import Row


def write_sentences(folder: Path, sentences: list[Row]) -> Run:
    """A run of one prefix type with exactly these sentences, whose references have the lengths (4, 5)."""
    run = write_run(folder, number=len(sentences), prefixes=[sentences[0].prefix], lengths=(4, 5))
    numbered = [replace(sentence, sentence=number) for number, sentence in enumerate(sentences)]
    return write_again(folder, run, numbered)


def write_again(folder: Path, run: Run, sentences: list[Row], **manifest_changes: Any) -> Run:
    """A run with the settings of another one and these sentences, in one shard."""
    settings = {name: value for name, value in run.manifest.items() if name not in ("shards", "metrics")}
    return write_shards(folder, settings, [sentences], **manifest_changes)


def change_run(run: Run, folder: Path, change: Callable[[Row], Row], prefix: str = "reference") -> Run:
    """A copy of a run with changed sentences."""
    return write_sentences(folder, [change(sentence) for sentence in run.rows(prefix)])


def sharpen(sentence: Row, power: float = 2.0) -> Row:
    """The same tokens with large shares made larger (power over 1) or smaller (under 1)."""
    shares = np.hstack([sentence.source, sentence.target]).astype(np.float64) ** power
    shares[:, sentence.source.shape[1] :] *= np.tri(len(shares), k=-1)
    shares /= shares.sum(1, keepdims=True)
    positions = sentence.source.shape[1]
    return replace(
        sentence, source=shares[:, :positions].astype(np.float32), target=shares[:, positions:].astype(np.float32)
    )
