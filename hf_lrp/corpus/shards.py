"""Shards of a run: Parquet files that hold results whole, one row group per prefix type, one row per sentence.

Tensors and tokens are columns; whatever else a result has stands in the column ``description``, as JSON. Row t of
``target`` holds the t - 1 tokens before step t, counted from 1. Parts of a prompt: ``span_shares`` holds the shares
[T, n] of each, one step after the other, and ``description`` its name and tokens.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from hf_lrp.corpus.manifest import AGAIN, RunError, sha256_of, shard_name
from hf_lrp.data.files import write_atomically
from hf_lrp.data.json_files import read_json, write_json
from hf_lrp.results.contributions import Contributions
from hf_lrp.results.saving import from_fields, to_fields

_VECTORS = ("start", "logits", "log_probability", "scale")
_IDS = ("source_ids", "target_ids", "predicted_ids")
_TOKENS = ("source_tokens", "target_tokens", "predicted_tokens")
_SPAN = "spans/"


class Stored(NamedTuple):
    """A result with its place: ``sentence``, the number in the evaluation set, ``pair``, that in the corpus."""

    sentence: int
    pair: int
    result: Contributions


@dataclass(frozen=True, eq=False)
class Row:
    """Arrays of a stored result, from which tables are made without building the result.

    Attributes:
        sentence: number in the evaluation set, from 0 on.
        pair: number of the pair in the corpus.
        prefix: ``"reference"``, ``"model"`` or ``"random"``.
        source: [T, S] float32; rows of source and target together sum to 1: the start token is left out.
        target: [T, T] float32, strictly lower triangular.
        start: [T] float32, the raw share of the start token and of forced tokens.
        log_probability: [T] float32, of the predicted token; `probability` is derived from it.
        source_ids, target_ids, predicted_ids: [S], [T], [T] int32.
        source_tokens, target_tokens, predicted_tokens: the same as the tokenizer's pieces.
        conservation_error: largest |sum - 1| of the raw shares.
        spans: for a model without an encoder, the raw share [T] float32 of each part of its prompt, by name; ``start``
            is their sum.
    """

    sentence: int
    pair: int
    prefix: str
    source: np.ndarray
    target: np.ndarray
    start: np.ndarray
    log_probability: np.ndarray
    source_ids: np.ndarray
    target_ids: np.ndarray
    predicted_ids: np.ndarray
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    predicted_tokens: tuple[str, ...]
    conservation_error: float
    spans: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def correct(self) -> np.ndarray:
        """[T] bool, whether the token that follows in the prefix was the most probable one."""
        same: np.ndarray = self.predicted_ids == self.target_ids
        return same

    @property
    def probability(self) -> np.ndarray:
        """[T], of the predicted token."""
        return np.exp(self.log_probability)

    @property
    def part_totals(self) -> dict[str, np.ndarray]:
        """Raw shares [T] of the parts of a prompt, of source and of target, which sum to 1; none without a prompt."""
        if not self.spans:
            return {}
        kept = 1 - self.start.astype(np.float64)
        totals = {"source": self.source.sum(axis=1) * kept, "target": self.target.sum(axis=1) * kept}
        return {name: share.astype(np.float64) for name, share in self.spans.items()} | totals


# ---- writing


def write_shard(folder: Path, number: int, stored: Sequence[Stored], settings: str) -> dict[str, Any]:
    """Write a shard, then its sidecar; return how the manifest lists it.

    Args:
        folder: of the run.
        stored: grouped by prefix type, in the order of the run's types; within a type in the order of the set.
        settings: a digest of what the results depend on, for `find_shard`.
    """
    path = folder / "shards" / shard_name(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = _encode(stored)
    write_atomically(path, content)
    entry = {"file": path.name, "rows": len(stored), "sha256": hashlib.sha256(content).hexdigest()}
    write_json(path.with_suffix(".json"), entry | {"settings": settings})
    return entry


def _encode(stored: Sequence[Stored]) -> bytes:
    """A Parquet file with one row group per prefix type; the same results give the same bytes."""
    parquet = import_parquet()
    schema = _schema()
    buffer = io.BytesIO()
    dictionaries = ["prefix", *(f"{name}.list.element" for name in _TOKENS)]
    with parquet.ParquetWriter(buffer, schema, compression="zstd", use_dictionary=dictionaries) as writer:
        for _, group in itertools.groupby(stored, key=lambda each: each.result.prefix):
            writer.write_table(_table(list(group), schema), row_group_size=len(stored))
    return buffer.getvalue()


def _schema() -> Any:
    import pyarrow as pa

    shares = pa.list_(pa.list_(pa.float32()))
    return pa.schema(
        {
            "sentence": pa.int32(),
            "pair": pa.int64(),
            "prefix": pa.string(),
            "source_length": pa.int32(),
            "target_length": pa.int32(),
            "source": shares,
            "target": shares,
            **{name: pa.list_(pa.float32()) for name in _VECTORS},
            **{name: pa.list_(pa.int32()) for name in _IDS},
            **{name: pa.list_(pa.string()) for name in _TOKENS},
            "conservation_error": pa.float64(),
            "span_names": pa.list_(pa.string()),
            "span_shares": shares,
            "description": pa.string(),
        }
    )


def _table(stored: Sequence[Stored], schema: Any) -> Any:
    import pyarrow as pa

    columns: dict[str, list] = {name: [] for name in schema.names}
    for sentence, pair, c in stored:
        tensors, described = to_fields(c)
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        spans = [arrays[f"{_SPAN}{name}"].astype(np.float32).ravel() for name in c.spans]
        row = {
            "sentence": sentence,
            "pair": pair,
            "source_length": len(c.source_tokens),
            "target_length": len(c.target_tokens),
            "source": list(arrays["source"].astype(np.float32)),
            "target": [shares[:step] for step, shares in enumerate(arrays["target"].astype(np.float32))],
            **{name: arrays[name].astype(np.float32) for name in _VECTORS},
            **{name: arrays[name].astype(np.int32) for name in _IDS},
            **{name: described.pop(name) for name in (*_TOKENS, "prefix", "conservation_error")},
            "span_names": list(c.spans),
            "span_shares": spans,
            "description": json.dumps(described, ensure_ascii=False, sort_keys=True),
        }
        for name in schema.names:
            columns[name].append(row[name])
    return pa.table(columns, schema=schema)


# ---- reading


def find_shard(folder: Path, number: int, settings: str) -> dict[str, Any] | None:
    """How the manifest lists a shard; None if it or its sidecar is missing, damaged, or of other settings."""
    path = folder / "shards" / shard_name(number)
    try:
        entry = read_json(path.with_suffix(".json"))
        whole = entry.pop("settings") == settings and entry["sha256"] == sha256_of(path)
        whole = whole and entry.keys() == {"file", "rows", "sha256"} and entry["file"] == path.name
        return entry if whole and entry["rows"] == import_parquet().read_metadata(path).num_rows else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def read_rows(path: Path, group: int) -> Iterator[Row]:
    """The arrays of one prefix type, given the place of this type among the run's."""
    table = _read(path, group, [name for name in _schema().names if name not in ("description", "logits", "scale")])
    columns = {name: _lists(table[name]) for name in ("source", "target", "start", "log_probability", *_IDS)}
    columns["span_shares"] = _lists(table["span_shares"], nested=1)
    plain = ("sentence", "pair", "prefix", "conservation_error", *_TOKENS, "span_names")
    values = {name: table[name].to_pylist() for name in plain}
    for row in range(table.num_rows):
        arrays = {name: next(column) for name, column in columns.items()}
        steps = len(arrays["start"])
        names, spans = values["span_names"][row], arrays.pop("span_shares")
        totals = {name: s.reshape(steps, -1).sum(axis=1) for name, s in zip(names, spans, strict=True)}
        shares = {"source": arrays["source"].reshape(steps, -1), "target": _square(arrays["target"], steps)}
        tokens = {name: tuple(values[name][row]) for name in _TOKENS}
        numbers = {name: values[name][row] for name in ("sentence", "pair", "prefix", "conservation_error")}
        fields: dict[str, Any] = {**arrays, **shares, **tokens, **numbers}
        yield Row(**fields, spans=totals)


def read_results(path: Path, group: int, rows: Sequence[int] | None = None) -> Iterator[Stored]:
    """Results of one prefix type as they were; rows: by their places in the shard, all by default."""
    table = _read(path, group)
    for row in range(table.num_rows) if rows is None else rows:
        one = {name: table[name][row].as_py() for name in (*_TOKENS, "sentence", "pair", "prefix", "description")}
        one["conservation_error"] = table["conservation_error"][row].as_py()
        described, sentence, pair = json.loads(one.pop("description")), one.pop("sentence"), one.pop("pair")
        part = table.slice(row, 1)
        arrays = {name: next(_lists(part[name])) for name in ("source", "target", *_VECTORS, *_IDS)}
        steps = len(arrays["start"])
        arrays |= {"source": arrays["source"].reshape(steps, -1), "target": _square(arrays["target"], steps)}
        arrays |= {name: arrays[name].astype(np.int64) for name in _IDS}
        for name, shares in zip(part["span_names"][0].as_py(), next(_lists(part["span_shares"], 1)), strict=True):
            arrays[f"{_SPAN}{name}"] = shares.reshape(steps, -1)
        tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        yield Stored(sentence, pair, Contributions(**from_fields(one | described | tensors)))


def import_parquet() -> Any:
    """pyarrow.parquet, or an error that says how to get it."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("Evaluations are stored with pyarrow: pip install pyarrow") from error
    return pyarrow.parquet


def _read(path: Path, group: int, columns: list[str] | None = None) -> Any:
    try:
        file = import_parquet().ParquetFile(path)
        if group < file.num_row_groups:
            return file.read_row_group(group, columns=columns, use_threads=False).combine_chunks()
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is missing or damaged: {AGAIN}.") from error
    raise RunError(f"{path} has {file.num_row_groups} prefix types, fewer than the manifest says: {AGAIN}.")


def _lists(column: Any, nested: int = 0) -> Iterator[Any]:
    """The numbers of each row of a column, flat; with `nested` levels as lists of such."""
    import pyarrow as pa

    for chunk in column.chunks:
        bounds = chunk.offsets.to_numpy()
        inner = chunk.values
        if nested:
            parts = inner.offsets.to_numpy()
            flat = inner.values.to_numpy(zero_copy_only=False)
            for start, end in itertools.pairwise(bounds):
                yield [flat[a:b] for a, b in itertools.pairwise(parts[start : end + 1])]
            continue
        while pa.types.is_list(inner.type):
            bounds, inner = inner.offsets.to_numpy()[bounds], inner.values
        flat = inner.to_numpy(zero_copy_only=False)
        yield from (flat[start:end] for start, end in itertools.pairwise(bounds))


def _square(lower: np.ndarray, steps: int) -> np.ndarray:
    """[T, T] of what stands below the diagonal."""
    square = np.zeros((steps, steps), np.float32)
    square[np.tril_indices(steps, -1)] = lower
    return square
