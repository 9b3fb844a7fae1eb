"""The folder of an evaluation: Parquet shards with checksums, a manifest, and a view that reads them back.

A run's folder holds ``manifest.json`` (the settings and, once all is there, the SHA-256 of all else),
``selection.json`` (the pairs), ``shards/00000.parquet`` with ``shards/00000.json`` beside it (its checksum), and
``metrics.json``. A shard holds one row group per prefix type, with one row per sentence.
"""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hf_lrp.corpus.manifest import AGAIN, RunError, check_files, read_manifest, sha256_of, shard_name
from hf_lrp.data.files import write_atomically
from hf_lrp.data.json_files import read_json, write_json

_PLAIN = ("sentence", "pair", "prefix", "conservation_error")
_VECTORS = {"start": np.float32, "log_probability": np.float32, "correct": np.bool_}
_IDS = ("source_ids", "target_ids", "predicted_ids")
_TOKENS = ("source_tokens", "target_tokens", "predicted_tokens")
_SPANS = ("span_names", "span_shares")  # only where a model reads prompts


@dataclass(frozen=True, eq=False)
class Sentence:
    """Contributions of S source tokens and of the prefix to T predictions, for one sentence and one prefix type.

    Attributes:
        sentence: number in the evaluation set, from 0 on.
        pair: number of the pair in the corpus.
        prefix: ``"reference"``, ``"model"`` or ``"random"``.
        source: [T, S] float32; rows of source and target together sum to 1: the start token is left out.
        target: [T, T] float32, strictly lower triangular.
        start: [T] float32, the raw share of the start token and of forced tokens.
        log_probability: [T] float32, of the predicted token; `probability` is derived from it.
        correct: [T] bool, whether the token that follows in the prefix was the most probable one.
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
    correct: np.ndarray
    source_ids: np.ndarray
    target_ids: np.ndarray
    predicted_ids: np.ndarray
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    predicted_tokens: tuple[str, ...]
    conservation_error: float
    spans: Mapping[str, np.ndarray] = field(default_factory=dict)

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


class Run:
    """A finished evaluation, read from its folder: `Run.open(folder)`.

    Attributes:
        folder: where it is.
        manifest: its settings, versions and shards.
        name: what legends call it: the manifest's ``label``, or else the folder's name.
        prefixes: the prefix types that were evaluated.
        lengths: (S, T) where all pairs have these lengths, EOS included; None for mixed lengths. Prefixes that the
            model wrote itself have lengths of their own.
        number: of sentences.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.name: str = manifest["label"] or folder.resolve().name
        self.prefixes: tuple[str, ...] = tuple(manifest["prefixes"])
        lengths = manifest["selection"]["lengths"]
        self.lengths: tuple[int, int] | None = None if lengths is None else (lengths[0], lengths[1])
        self.number: int = manifest["selection"]["number"]

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """The run in a folder; every file's checksum is compared.

        Raises:
            RunError: there is no run, it is not finished, or a file is damaged.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        if manifest is None:
            raise RunError(f"{folder} holds no evaluation (no manifest.json): write one with `hf-lrp analyze`.")
        if manifest.get("shards") is None:
            raise RunError(f"The evaluation in {folder} is not finished: start the same `hf-lrp analyze` again.")
        check_files(folder, manifest)
        return cls(folder, manifest)

    def sentences(self, prefix: str) -> Iterator[Sentence]:
        """The results of one prefix type in the order of the evaluation set; one shard at a time is in memory."""
        if prefix not in self.prefixes:
            raise RunError(
                f"{self.folder} was evaluated with prefix types {', '.join(self.prefixes)}, not with {prefix!r}: "
                "choose one of these, or evaluate into another folder."
            )
        number = 0
        for entry in self.manifest["shards"]:
            for sentence in read_shard(self.folder / "shards", entry, self.prefixes.index(prefix)):
                if (sentence.prefix, sentence.sentence) != (prefix, number):
                    raise RunError(
                        f"{self.folder / 'shards' / entry['file']} has sentence {sentence.sentence} with "
                        f"{sentence.prefix} prefix where the manifest says sentence {number} with {prefix} prefix: "
                        "these files belong to different evaluations. Evaluate into another folder."
                    )
                number += 1
                yield sentence

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """By prefix type, overall means and the worst conservation error: what ``metrics.json`` holds."""
        path = self.folder / "metrics.json"
        try:
            return read_json(path)
        except (OSError, ValueError) as error:
            raise RunError(f"{path} is missing or damaged: {AGAIN}.") from error

    def __repr__(self) -> str:
        return f"<Run {self.name!r}: {self.number} sentences, prefixes {', '.join(self.prefixes)}>"


# ---- shards


def write_shard(folder: Path, number: int, sentences: Sequence[Sentence], settings: str) -> dict[str, Any]:
    """Write a shard, then its sidecar; return how the manifest lists it.

    Args:
        folder: of the run.
        sentences: grouped by prefix type, in the order of the run's types; within a type in the order of the set.
        settings: a digest of what the results depend on, for `find_shard`.
    """
    path = folder / "shards" / shard_name(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = _encode(sentences)
    write_atomically(path, content)
    entry = {"file": path.name, "rows": len(sentences), "sha256": hashlib.sha256(content).hexdigest()}
    write_json(path.with_suffix(".json"), entry | {"settings": settings})
    return entry


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


def read_shard(folder: Path, entry: dict[str, Any], group: int) -> Iterator[Sentence]:
    """The sentences of one prefix type, given the place of this type among the run's.

    Raises:
        RunError: the file has changed since the run was opened.
    """
    path = folder / entry["file"]
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise RunError(f"{path} is missing or damaged: {AGAIN}.")
    file = import_parquet().ParquetFile(io.BytesIO(content))
    if group >= file.num_row_groups:
        raise RunError(f"{path} has {file.num_row_groups} prefix types, fewer than the manifest says: {AGAIN}.")
    table = file.read_row_group(group, use_threads=False).combine_chunks()
    for row in range(table.num_rows):
        values: dict[str, Any] = {name: table[name][row].as_py() for name in _PLAIN}
        values |= {name: tuple(table[name][row].as_py()) for name in _TOKENS}
        values |= {name: _read_numbers(table[name][row]) for name in (*_VECTORS, *_IDS, "source", "target")}
        steps = len(values["target_ids"])
        values["source"] = values["source"].reshape(steps, -1)
        lower, values["target"] = values["target"], np.zeros((steps, steps), np.float32)
        values["target"][np.tril_indices(steps, -1)] = lower
        if _SPANS[0] in table.column_names:
            names, shares = table[_SPANS[0]][row].as_py(), _read_numbers(table[_SPANS[1]][row])
            values["spans"] = dict(zip(names, shares.reshape(len(names), steps), strict=True))
        yield Sentence(**values)


def import_parquet() -> Any:
    """pyarrow.parquet, or an error that says how to get it."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("Evaluations are stored with pyarrow: pip install pyarrow") from error
    return pyarrow.parquet


def _read_numbers(scalar: Any) -> np.ndarray:
    values = scalar.values
    while hasattr(values, "flatten"):  # a list of lists
        values = values.flatten()
    return values.to_numpy(zero_copy_only=False)


def _encode(sentences: Sequence[Sentence]) -> bytes:
    """A Parquet file with one row group per prefix type; the same sentences give the same bytes."""
    parquet = import_parquet()
    has_spans = any(sentence.spans for sentence in sentences)
    schema = _schema(has_spans)
    buffer = io.BytesIO()
    texts = (*_TOKENS, *[_SPANS[0]] * has_spans)
    dictionaries = ["prefix", *(f"{name}.list.element" for name in texts)]
    with parquet.ParquetWriter(buffer, schema, compression="zstd", use_dictionary=dictionaries) as writer:
        for _, group in itertools.groupby(sentences, key=lambda sentence: sentence.prefix):
            writer.write_table(_table(list(group), schema), row_group_size=len(sentences))
    return buffer.getvalue()


def _schema(has_spans: bool) -> Any:
    """Columns of a shard. Row t of ``target`` holds the t - 1 tokens before it, counted from 1."""
    import pyarrow as pa

    shares = pa.list_(pa.list_(pa.float32()))
    vectors = {name: pa.list_(pa.from_numpy_dtype(dtype)) for name, dtype in _VECTORS.items()}
    return pa.schema(
        {
            "sentence": pa.int32(),
            "pair": pa.int64(),
            "prefix": pa.string(),
            "source_length": pa.int32(),
            "target_length": pa.int32(),
            "source": shares,
            "target": shares,
            **vectors,
            **{name: pa.list_(pa.int32()) for name in _IDS},
            **{name: pa.list_(pa.string()) for name in _TOKENS},
            "conservation_error": pa.float64(),
            **(dict(zip(_SPANS, (pa.list_(pa.string()), shares), strict=True)) if has_spans else {}),
        }
    )


def _table(sentences: Sequence[Sentence], schema: Any) -> Any:
    import pyarrow as pa

    own = (*_PLAIN, *_VECTORS, *_IDS, *_TOKENS)
    columns: dict[str, list] = {name: [getattr(sentence, name) for sentence in sentences] for name in own}
    columns["source_length"] = [len(sentence.source_ids) for sentence in sentences]
    columns["target_length"] = [len(sentence.target_ids) for sentence in sentences]
    columns["source"] = [list(sentence.source) for sentence in sentences]
    columns["target"] = [[row[:step] for step, row in enumerate(sentence.target)] for sentence in sentences]
    if _SPANS[0] in schema.names:
        columns[_SPANS[0]] = [list(sentence.spans) for sentence in sentences]
        columns[_SPANS[1]] = [list(sentence.spans.values()) for sentence in sentences]
    return pa.table(columns, schema=schema)
