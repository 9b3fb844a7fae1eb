"""Runs with the same tokens but other shares, as two checkpoints of a model have."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from example_run import write_run

from hf_lrp.analysis.run.store import Run, Sentence, write_shard
from hf_lrp.data.json_files import write_json


def write_sentences(folder: Path, sentences: list[Sentence]) -> Run:
    """A run of one prefix type with exactly these sentences, whose references have the lengths (4, 5)."""
    run = write_run(folder, number=len(sentences), prefixes=[sentences[0].prefix], lengths=(4, 5))
    shard = write_shard(folder, 0, sentences, "made up")
    write_json(folder / "manifest.json", run.manifest | {"shards": [shard]})
    return Run.open(folder)


def change_run(run: Run, folder: Path, change: Callable[[Sentence], Sentence], prefix: str = "reference") -> Run:
    """A copy of a run with changed sentences."""
    return write_sentences(folder, [change(sentence) for sentence in run.sentences(prefix)])


def sharpen(sentence: Sentence, power: float = 2.0) -> Sentence:
    """The same tokens with large shares made larger (power over 1) or smaller (under 1)."""
    shares = np.hstack([sentence.source, sentence.target]).astype(np.float64) ** power
    shares[:, sentence.source.shape[1] :] *= np.tri(len(shares), k=-1)
    shares /= shares.sum(1, keepdims=True)
    positions = sentence.source.shape[1]
    return replace(
        sentence, source=shares[:, :positions].astype(np.float32), target=shares[:, positions:].astype(np.float32)
    )
