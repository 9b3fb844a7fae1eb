"""Sentence pairs: reading, holding out, subsets, and token ids to train on."""

from __future__ import annotations

import hashlib
import heapq
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from transformers import PreTrainedTokenizerBase

from hf_lrp.data.reading import (
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
from hf_lrp.training.tokenization import tokenizer_fingerprint

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    Pairs: TypeAlias = Dataset | IterableDataset

_COLUMNS = ("source", "target", "example")
_HASH_VALUES = 2**63  # what fits the signed integers of Arrow
_WORTH_A_PROCESS = 10_000  # pairs


def load_pairs(
    data: str | Path | Sequence[str | Path],
    *,
    source: str = "en",
    target: str = "fr",
    split: str = "train",
    config: str | None = None,
    streaming: bool = False,
) -> Pairs:
    """Sentence pairs with the columns `source` and `target` (text) and `example`, the number of the row.

    `data` is one of these:
    - TSV files: the first two columns, whatever `source` and `target` say; no header, quotes are plain
      characters, empty lines are skipped;
    - JSON (lines) or Parquet files with the columns `source` and `target`, or one column `translation` that
      holds both, as WMT has it;
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


@dataclass
class DropReport:
    """How many pairs were read, and how many left out for which reason."""

    max_length: int
    max_ratio: float
    read: int = 0
    empty: int = 0
    too_long: int = 0
    bad_ratio: int = 0
    duplicate: int = 0

    @property
    def kept(self) -> int:
        return self.read - self.empty - self.too_long - self.bad_ratio - self.duplicate

    def to_dict(self) -> dict[str, int | float]:
        return asdict(self) | {"kept": self.kept}

    def __str__(self) -> str:
        reasons = {
            "a side is empty": self.empty,
            f"a side has more than {self.max_length} tokens": self.too_long,
            f"a side is more than {self.max_ratio:g} times as long as the other": self.bad_ratio,
            "the same pair came before": self.duplicate,
        }
        lines = [f"{count:>12,}  {reason}" for reason, count in reasons.items() if count]
        return "\n".join([f"{self.kept:,} of {self.read:,} pairs kept." + " Left out:" * bool(lines), *lines])

    def count(self, reason: int, number: int = 1) -> None:
        """Add pairs, given what became of them."""
        self.read += number
        if reason != _KEPT:
            name = _REASONS[reason]
            setattr(self, name, getattr(self, name) + number)

    def clear(self) -> None:
        self.read = self.empty = self.too_long = self.bad_ratio = self.duplicate = 0


_REASONS = ("kept", "empty", "too_long", "bad_ratio", "duplicate")
_KEPT, _EMPTY, _TOO_LONG, _BAD_RATIO, _DUPLICATE = range(5)


def encode_pairs(
    pairs: Pairs,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int = 128,
    max_ratio: float = 4.0,
    workers: int | None = None,
) -> tuple[Pairs, DropReport]:
    """Token ids to train on, and a report of the pairs left out.

    Columns: `input_ids` and `labels` (each ends with EOS), `source_length` and `target_length` (EOS included), and
    `example` as in `pairs`. Left out are pairs with an empty side, with a side of more than `max_length` tokens,
    with lengths whose ratio is above `max_ratio`, and pairs whose ids came before.
    Done by `workers` processes (None: one per core where it is worth it) and stored: the same pairs, tokenizer
    and limits are read from the cache.

    A stream is encoded as it is read. Its report then counts what the latest pass has read so far, in this process;
    a hash of every pair kept stays in memory, to know duplicates (about 100 MB per million).
    """
    _check_columns(pairs, tokenizer)
    report = DropReport(max_length, max_ratio)
    encoder = _Encoder(tokenizer, max_length, max_ratio)
    if is_stream(pairs):
        stream = partial(_encoded_rows, pairs=pairs, encoder=encoder, report=report)
        # without features, whose check of every row would take longer than encoding it
        return import_datasets().IterableDataset.from_generator(stream), report
    encoded = _map(pairs, encoder, _features(_REASON, _HASH), encoder.fingerprint(), workers)
    reasons = encoded.data["reason"].to_numpy().copy()
    fit = np.flatnonzero(reasons == _KEPT)
    _, first = np.unique(encoded.data["hash"].to_numpy()[fit], return_index=True)
    kept = fit[np.sort(first)]
    reasons[np.setdiff1d(fit, kept, assume_unique=True)] = _DUPLICATE
    for reason, number in zip(*np.unique(reasons, return_counts=True), strict=True):
        report.count(int(reason), int(number))
    if not len(kept):
        raise ValueError(f"No pair is left to train on. {report}")
    return encoded.remove_columns(["reason", "hash"]).select(kept), report


# ---- hashes


def source_key(source: str) -> str:
    """Sentences that differ only in case, spaces or punctuation share a key, and so a side of the split."""
    return "".join(char for char in source.casefold() if char.isalnum()) or source


def _hash_sources(batch: Mapping[str, Sequence[str | None]]) -> list[int]:
    keys = (source_key(source or "") for source in batch["source"])
    return [_as_number(hashlib.sha256(key.encode()).digest()) for key in keys]


def _hash_pairs(batch: Mapping[str, Sequence[str | None]], seed: int) -> list[int]:
    rows = zip(batch["source"], batch["target"], strict=True)
    texts = (f"{seed}\t{source}\t{target}" for source, target in rows)
    return [_as_number(hashlib.blake2b(text.encode(), digest_size=8).digest()) for text in texts]


def _as_number(hashed: bytes) -> int:
    """The first 63 bits, so that numbers are ordered as the bytes are."""
    return int.from_bytes(hashed[:8], "big") >> 1


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
    hashed = _map(pairs, partial(_hashes, hash_rows=hash_rows), features, name, None)
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
            first[value] = {name: batch[name][number] for name in _COLUMNS}
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


# ---- encoding

_REASON, _HASH = ("reason", "int8"), ("hash", "int64")


def _features(*further: tuple[str, str]) -> Any:
    """What an encoded pair consists of."""
    datasets = import_datasets()
    lists = {name: datasets.List(datasets.Value("int32")) for name in ("input_ids", "labels")}
    numbers = (("example", "int64"), ("source_length", "int32"), ("target_length", "int32"), *further)
    return datasets.Features(lists | {name: datasets.Value(kind) for name, kind in numbers})


def _check_columns(pairs: Pairs, tokenizer: PreTrainedTokenizerBase) -> None:
    columns = pairs.column_names or list(next(iter(pairs), {}))
    missing = [name for name in _COLUMNS if name not in columns]
    if missing:
        raise ValueError(f"The pairs have no column {', '.join(map(repr, missing))}: read them with load_pairs.")
    if not is_stream(pairs):
        numbers = np.asarray(pairs.with_format("numpy")["example"][:])
        if len(np.unique(numbers)) < len(numbers):
            raise ValueError("The numbers in the column 'example' are not unique: each pair needs its own.")
    for side in ("text", "text_target"):
        if tokenizer.eos_token_id not in tokenizer(**{side: "a"})["input_ids"]:
            raise ValueError(
                "The tokenizer does not mark the end of a sentence: a model trained so would never stop. Use one "
                "that appends its EOS token, such as those of train_tokenizer."
            )


class _Encoder(NamedTuple):
    """Encodes batches of pairs and says what becomes of each; pairs that do not fit get no ids."""

    tokenizer: PreTrainedTokenizerBase
    max_length: int
    max_ratio: float

    def fingerprint(self) -> str:
        """Raise the number whenever the same input gives another result, or old results are read from the cache."""
        return digest("encode 1", tokenizer_fingerprint(self.tokenizer), self.max_length, self.max_ratio)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list]:
        texts = [[text or "" for text in batch[side]] for side in ("source", "target")]
        options = dict(truncation=False, padding=False, verbose=False, return_attention_mask=False)
        sources = self.tokenizer(texts[0], **options)["input_ids"]
        targets = self.tokenizer(text_target=texts[1], **options)["input_ids"]
        rows = zip(*texts, sources, targets, strict=True)
        reasons = [self._reason(*row) for row in rows]
        fits = [reason == _KEPT for reason in reasons]
        return {
            "input_ids": [ids if fit else [] for ids, fit in zip(sources, fits, strict=True)],
            "labels": [ids if fit else [] for ids, fit in zip(targets, fits, strict=True)],
            "example": batch["example"],
            "source_length": [len(ids) for ids in sources],
            "target_length": [len(ids) for ids in targets],
            "reason": reasons,
            "hash": [_hash_ids(*ids) for ids in zip(sources, targets, strict=True)],
        }

    def _reason(self, source: str, target: str, source_ids: list[int], target_ids: list[int]) -> int:
        shorter, longer = sorted((len(source_ids), len(target_ids)))
        if not source.strip() or not target.strip():
            return _EMPTY
        if longer > self.max_length:
            return _TOO_LONG
        return _BAD_RATIO if longer > self.max_ratio * shorter else _KEPT


def _hash_ids(source: list[int], target: list[int]) -> int:
    ids = array("i", [*source, -1, *target]).tobytes()
    return _as_number(hashlib.blake2b(ids, digest_size=8).digest())


def _encoded_rows(pairs: IterableDataset, encoder: _Encoder, report: DropReport) -> Iterator[dict[str, Any]]:
    """One pass over a stream: the encoded pairs that are kept."""
    report.clear()
    seen: set[int] = set()
    for batch in pairs.iter(batch_size=1000):
        columns = encoder(batch)
        for row in (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)):
            reason, value = row.pop("reason"), row.pop("hash")
            if reason == _KEPT and value in seen:
                reason = _DUPLICATE
            report.count(reason)
            if reason == _KEPT:
                seen.add(value)
                yield row


def _map(pairs: Dataset, function: Any, features: Any, name: str, workers: int | None) -> Dataset:
    """`pairs.map`, in several processes; found in the cache by `name`, as tokenizers do not always hash alike."""
    workers = workers or min(_cores(), 1 + len(pairs) // _WORTH_A_PROCESS)
    with _one_thread_each(workers):
        return pairs.map(
            function,
            batched=True,
            num_proc=workers if workers > 1 else None,
            remove_columns=pairs.column_names,
            features=features,
            new_fingerprint=digest(pairs._fingerprint, name),
        )


def _cores() -> int:
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
