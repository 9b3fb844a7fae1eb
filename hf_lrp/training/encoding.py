"""Sentence pairs as token ids to train on."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from transformers import PreTrainedTokenizerBase

from hf_lrp.data.mapping import map_table
from hf_lrp.data.pairs import COLUMNS
from hf_lrp.data.reading import as_number, digest, import_datasets, is_stream
from hf_lrp.models.fingerprints import tokenizer_fingerprint

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    Pairs: TypeAlias = Dataset | IterableDataset


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
_REASON, _HASH = ("reason", "int8"), ("hash", "int64")


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
    encoded = map_table(pairs, encoder, example_features(_REASON, _HASH), encoder.fingerprint(), workers)
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


def example_features(*further: tuple[str, str]) -> Any:
    """Columns of an encoded pair."""
    datasets = import_datasets()
    lists = {name: datasets.List(datasets.Value("int32")) for name in ("input_ids", "labels")}
    numbers = (("example", "int64"), ("source_length", "int32"), ("target_length", "int32"), *further)
    return datasets.Features(lists | {name: datasets.Value(kind) for name, kind in numbers})


def _check_columns(pairs: Pairs, tokenizer: PreTrainedTokenizerBase) -> None:
    columns = pairs.column_names or list(next(iter(pairs), {}))
    missing = [name for name in COLUMNS if name not in columns]
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
    return as_number(hashlib.blake2b(ids, digest_size=8).digest())


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
