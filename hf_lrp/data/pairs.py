"""Sentence pairs: reading, holding out, subsets."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from hf_lrp.data.mapping import map_table
from hf_lrp.data.reading import (
    as_number,
    digest,
    import_datasets,
    is_stream,
    kind_of_files,
    load_table,
    local_files,
    numbered,
    parallel_rows,
    read_lines,
    tsv_rows,
    two_columns,
)

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    Pairs: TypeAlias = Dataset | IterableDataset

COLUMNS = ("source", "target", "example")
_HASH_VALUES = 2**63  # what fits the signed integers of Arrow


def load_pairs(
    data: str | Path | Sequence[str | Path],
    *,
    source: str = "source",
    target: str = "target",
    split: str = "train",
    config: str | None = None,
    streaming: bool = False,
) -> Pairs:
    """Sentence pairs with the columns `source` and `target` (text) and `example`, the number of the row.

    `data` is one of these:
    - TSV files: the first two columns, whatever `source` and `target` say; no header, quotes are plain
      characters, empty lines are skipped;
    - JSON (lines) or Parquet files with the columns that `source` and `target` name, or one column `translation`
      that holds both by language, as WMT has it (`source="en", target="fr"`);
    - two plain text files, line by line: source and target;
    - the name of a dataset on the Hub, with its `config` if it has several (WMT14: `"fr-en"`) and `split`.

    Several files are read one after the other. What was read is cached; with `streaming` nothing is stored.
    """
    files = local_files(data)
    if files is None:
        table = load_table(str(data), config, split=split, streaming=streaming)
    elif (kind := kind_of_files(files)) in ("json", "parquet"):
        table = load_table(kind, data_files=[str(file) for file in files], split="train", streaming=streaming)
    else:
        return read_lines(tsv_rows if kind == "tsv" else parallel_rows, files, streaming)
    return numbered(two_columns(table, str(data), source, target))


def hold_out(pairs: Pairs, test: int = 1000, validation: int = 500) -> tuple[Pairs, Dataset, Dataset]:
    """Training, validation and test pairs; no held-out source sentence is in training.

    Source sentences, regarded without case, spaces and punctuation, are ordered by their SHA-256: the first are
    for testing, the next for validation, whatever the order of the data. Each keeps its first translation in
    the data; other translations of it are in no set. A stream is read through once for this.
    """
    if test + validation == 0:
        raise ValueError("There is nothing to hold out: give a size for test or validation.")
    return (_hold_out_of_stream if is_stream(pairs) else _hold_out_of_table)(pairs, test, validation)


def nested_subset(pairs: Pairs, size: int, seed: int, total: int | None = None) -> Pairs:
    """A random subset of `size` pairs, in the order of the data; with the same seed a smaller one is part of it.

    The pairs with the smallest hashes of (seed, source, target) are taken. Of a stream, these are pairs with a hash
    below `size / total`: the size is met only nearly (a standard deviation of at most √size), and pairs that occur
    twice are taken twice. A stream that does not know its length needs `total`.
    """
    hash_rows = partial(_hash_pairs, seed=seed)
    if not is_stream(pairs):
        if not 0 < size <= len(pairs):
            raise ValueError(f"A subset of {size:,} pairs was asked for, but there are {len(pairs):,}.")
        order = np.argsort(_hash_column(pairs, hash_rows), kind="stable")
        return pairs.select(np.sort(order[:size]))
    total = total or _known_length(pairs)
    if total is None:
        raise ValueError("This stream does not know its length: give the number of its pairs as `total`.")
    if not 0 < size <= total:
        raise ValueError(f"A subset of {size:,} pairs was asked for, but there are {total:,}.")
    return pairs.filter(_HashesBelow(hash_rows, size * _HASH_VALUES // total), batched=True)


# ---- hashes


def source_key(source: str) -> str:
    """Sentences that differ only in case, spaces or punctuation share a key, and so a side of the split."""
    return "".join(char for char in source.casefold() if char.isalnum()) or source


def _hash_sources(batch: Mapping[str, Sequence[str | None]]) -> list[int]:
    keys = (source_key(source or "") for source in batch["source"])
    return [as_number(hashlib.sha256(key.encode()).digest()) for key in keys]


def _hash_pairs(batch: Mapping[str, Sequence[str | None]], seed: int) -> list[int]:
    rows = zip(batch["source"], batch["target"], strict=True)
    texts = (f"{seed}\t{source}\t{target}" for source, target in rows)
    return [as_number(hashlib.blake2b(text.encode(), digest_size=8).digest()) for text in texts]


class _HashesBelow(NamedTuple):
    """Which rows of a batch have a hash below the bound."""

    hash_rows: Callable[[Mapping[str, Any]], list[int]]
    bound: int

    def __call__(self, batch: Mapping[str, Any]) -> list[bool]:
        return [value < self.bound for value in self.hash_rows(batch)]


def _hashes(batch: Mapping[str, Any], hash_rows: Callable[[Mapping[str, Any]], list[int]]) -> dict[str, list[int]]:
    return {"hash": hash_rows(batch)}


def _hash_column(pairs: Dataset, hash_rows: Any) -> np.ndarray:
    """A hash per pair [n]."""
    name = digest(getattr(hash_rows, "func", hash_rows).__name__, getattr(hash_rows, "keywords", {}))
    features = import_datasets().Features(hash=import_datasets().Value("int64"))
    hashed = map_table(pairs, partial(_hashes, hash_rows=hash_rows), features, name, None)
    return hashed.data["hash"].to_numpy()


def _hold_out_of_table(pairs: Dataset, test: int, validation: int) -> tuple[Dataset, Dataset, Dataset]:
    hashes = _hash_column(pairs, _hash_sources)
    distinct, first = np.unique(hashes, return_index=True)
    _check_size(len(distinct), test, validation)
    train = np.flatnonzero(hashes > distinct[test + validation - 1])
    return pairs.select(train), pairs.select(first[test : test + validation]), pairs.select(first[:test])


def _hold_out_of_stream(pairs: IterableDataset, test: int, validation: int) -> tuple[Pairs, Dataset, Dataset]:
    size = test + validation
    first: dict[int, dict] = {}  # rows with the smallest hashes
    largest: list[int] = []  # their negated hashes, as a heap
    distinct = 0
    for batch in pairs.iter(batch_size=1000):
        for number, value in enumerate(_hash_sources(batch)):
            if value in first or (len(first) == size and value > -largest[0]):
                distinct = max(distinct, len(first) + (value not in first))
                continue
            first[value] = {name: batch[name][number] for name in COLUMNS}
            distinct = max(distinct, len(first))
            heapq.heappush(largest, -value)
            if len(first) > size:
                del first[-heapq.heappop(largest)]
    _check_size(distinct, test, validation)
    rows = import_datasets().Dataset.from_list([first[value] for value in sorted(first)])
    train = pairs.filter(_HashesAbove(-largest[0]), batched=True)
    return train, rows.select(range(test, size)), rows.select(range(test))


class _HashesAbove(NamedTuple):
    """Which rows of a batch have a source whose hash is above the bound."""

    bound: int

    def __call__(self, batch: Mapping[str, Any]) -> list[bool]:
        return [value > self.bound for value in _hash_sources(batch)]


def _check_size(distinct: int, test: int, validation: int) -> None:
    if distinct <= test + validation:
        raise ValueError(
            f"{distinct:,} distinct source sentences are too few to hold out {test:,} for testing and "
            f"{validation:,} for validation: hold out fewer, or give more data."
        )


def _known_length(pairs: IterableDataset) -> int | None:
    splits = getattr(pairs.info, "splits", None) or {}
    return getattr(splits.get(str(pairs.split)), "num_examples", None) or None
