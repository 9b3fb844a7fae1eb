"""A function over all rows of a table, in several processes, and found again in the cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hf_lrp.data.reading import digest

if TYPE_CHECKING:
    from datasets import Dataset

_WORTH_A_PROCESS = 10_000  # rows


def map_table(pairs: Dataset, function: Any, features: Any, name: str, workers: int | None) -> Dataset:
    """`pairs.map`, in several processes; found in the cache by `name`, as tokenizers do not always hash alike."""
    workers = workers or min(_available_cores(), 1 + len(pairs) // _WORTH_A_PROCESS)
    with _one_thread_each(workers):
        return pairs.map(
            function,
            batched=True,
            num_proc=workers if workers > 1 else None,
            remove_columns=pairs.column_names,
            features=features,
            new_fingerprint=digest(pairs._fingerprint, name),
        )


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _one_thread_each(workers: int) -> Iterator[None]:
    """Tokenizers warn when they are forked after having used threads, unless they are told not to use any."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    if workers > 1:
        os.environ[name] = "false"
    try:
        yield
    finally:
        if workers > 1:
            os.environ.pop(name)
            if before is not None:
                os.environ[name] = before
