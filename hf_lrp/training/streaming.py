"""Micro-batches from a stream of encoded pairs, for corpora that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import IterableDataset

from hf_lrp.data.json_files import read_json, write_json
from hf_lrp.training.batching import TokenBudgetBatchSampler

Row = Mapping[str, Any]


class Position(NamedTuple):
    """An update of a stream: which pass over the data it is in, and its number there."""

    data_pass: int = 0
    update: int = 0


BEGINNING = Position()
_FILE = "stream.json"  # in a checkpoint


def write_position(checkpoint: Path, latest: Position, step: int) -> None:
    """Note in a checkpoint the update of the stream that was trained on last, and how many were trained in all."""
    write_json(checkpoint / _FILE, {"pass": latest.data_pass, "update": latest.update, "step": step})


def read_position(checkpoint: Path) -> tuple[Position, int]:
    """The update of the stream to continue with, and how many were trained before."""
    if not (checkpoint / _FILE).is_file():
        raise ValueError(f"{checkpoint} was not trained on a stream: it does not say where to continue in one.")
    latest = read_json(checkpoint / _FILE)
    return Position(latest["pass"], latest["update"] + 1), latest["step"]


class TokenBudgetStream(IterableDataset):
    """Endless micro-batches from pairs that can be read again and again, a function of their order and the seed only.

    `buffer` pairs are taken at a time (up to twice as many are in memory) and become micro-batches as
    `TokenBudgetBatchSampler` makes them: sorted by length, cut by the budget, in random order, a multiple of
    `batches_per_update`. So every pair is in every pass once, no update is incomplete, and none has pairs of two
    buffers or passes.

    Every process reads the whole stream and keeps its part of every update: updates are the same on any number of
    processes. A micro-batch carries its `position`, (pass, update), as it is read before it is trained on.

    Args:
        rows: `input_ids`, `labels` and `example` of each pair; each iteration is a pass.
        collate: makes a micro-batch of its rows.
        tokens, batches_per_update, seed: as of `TokenBudgetBatchSampler`.
        buffer: pairs that are sorted at a time.
        process, processes: whose part of each update is wanted.
        start: the first update to give; those before it in its pass are read, but not given.
        skipped: how many times None comes first, in the place of micro-batches that Trainer skips.
    """

    def __init__(
        self,
        rows: Iterable[Row],
        collate: Callable[[list[Row]], dict[str, Any]],
        *,
        tokens: int,
        batches_per_update: int,
        seed: int,
        buffer: int,
        process: int = 0,
        processes: int = 1,
        start: Position = BEGINNING,
        skipped: int = 0,
    ) -> None:
        self._rows, self._collate, self._buffer = rows, collate, buffer
        self._tokens, self._batches_per_update, self._seed = tokens, batches_per_update, seed
        self._process, self._processes = process, processes
        self._start, self._skipped = start, skipped

    def __iter__(self) -> Iterator[dict[str, Any] | None]:
        yield from repeat(None, self._skipped)
        for data_pass in count(self._start.data_pass):
            number = 0
            for number, update in enumerate(self._updates(data_pass), 1):
                position = Position(data_pass, number - 1)
                if position >= self._start:
                    for rows in update[self._process :: self._processes]:
                        yield self._collate(rows) | {"position": tuple(position)}
            self._check(Position(data_pass, number))

    def _check(self, end: Position) -> None:
        if not end.update:
            raise ValueError("The stream has no pair to train on.")
        if end.data_pass == self._start.data_pass and end.update < self._start.update:
            raise ValueError(
                f"The checkpoint was written after {self._start.update} updates of a pass over the stream, which now "
                f"has {end.update}: it is not the same stream, or source_tokens, device_tokens, stream_buffer or the "
                "seed have changed."
            )

    def _updates(self, data_pass: int) -> Iterator[list[list[Row]]]:
        """The updates of a pass, each as the rows of its micro-batches."""
        for number, rows in enumerate(_buffers(self._rows, self._buffer)):
            sampler = TokenBudgetBatchSampler(
                [len(row["input_ids"]) for row in rows],
                [len(row["labels"]) for row in rows],
                tokens=self._tokens,
                batches_per_update=self._batches_per_update,
                seed=int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0]),
            )
            sampler.set_epoch(data_pass)
            batches = [[rows[index] for index in batch] for batch in sampler]
            for start in range(0, len(batches), self._batches_per_update):
                yield batches[start : start + self._batches_per_update]


def _buffers(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Lists of `size` rows; the last one has up to twice as many, so that none is too short for an update."""
    buffer: list[Row] = []
    for row in rows:
        buffer.append(_compact(row))
        if len(buffer) == 2 * size:
            yield buffer[:size]
            buffer = buffer[size:]
    if buffer:
        yield buffer


def _compact(row: Row) -> Row:
    """Columns that a micro-batch needs of a row, in less memory than lists of integers take."""
    ids = {name: np.asarray(row[name], dtype=np.int32) for name in ("input_ids", "labels")}
    return {**ids, "example": row["example"]}
