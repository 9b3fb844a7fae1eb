"""What claims are decided by, of one evaluation: a small file that stays when models and contributions are gone."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from claims.curves import USE
from hf_lrp.corpus.manifest import RunError
from hf_lrp.corpus.measures import DIVERGENCE, influence_divergence
from hf_lrp.corpus.run import Run
from hf_lrp.corpus.shards import Row, import_parquet
from hf_lrp.data.files import write_atomically
from hf_lrp.results.quantities import source_entropy, source_total, source_use, target_entropy

_MEASURES: dict[str, Callable[[Row], np.ndarray]] = {
    "source_total": lambda sentence: source_total(sentence.source),
    "source_entropy": lambda sentence: source_entropy(sentence.source),
    "target_entropy": lambda sentence: target_entropy(sentence.target),
    "correct": lambda sentence: sentence.correct.astype(np.float64),
    USE: lambda sentence: source_use(sentence.source),
}
QUANTITIES = tuple(_MEASURES)
_ROUNDED = {"source_total": 1e-4, "source_entropy": 1e-4, "target_entropy": 1e-4, "correct": 1.0, USE: 1e-3}
_UNDEFINED = np.iinfo(np.uint16).max
_ABOUT = b"hf_lrp.results"


@dataclass(frozen=True, eq=False)
class Results:
    """Quantities of the sentences of an evaluation.

    Attributes:
        name: of the run.
        about: hashes of its `selection` and `tokenizer`, its `lengths` (None where mixed), and settings.
        rows: by prefix type and quantity (`QUANTITIES`), an array per sentence: by step; of `USE` by source position.
            Empty where no claim and no figure needs it: with other than reference prefixes all but those of the
            source; of checkpoints `USE`, of other runs `correct`.
        divergence: `[sentences]`, of a checkpoint: KL of the last one to it with reference prefixes, mean over steps.
    """

    name: str
    about: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, list[np.ndarray]]]
    divergence: np.ndarray | None = None

    @property
    def number(self) -> int:
        """Of sentences."""
        return len(next(iter(self.rows.values()))["source_total"])

    def prefix(self, prefix: str) -> Mapping[str, list[np.ndarray]]:
        """By quantity, an array per sentence with this type of prefix."""
        if prefix not in self.rows:
            raise RunError(f"{self.name!r} was evaluated with {', '.join(self.rows)} prefixes, not with {prefix!r}.")
        return self.rows[prefix]

    def write(self, path: Path) -> None:
        """Write a Parquet file of whole numbers: contributions and entropies in steps of 0.0001, uses of 0.001."""
        import pyarrow as pa

        split = {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in QUANTITIES}  # half of the bytes are alike
        columns: dict[str, Any] = {"prefix": [prefix for prefix in self.rows for _ in range(self.number)]}
        for name in QUANTITIES:
            values = [_to_whole(row, _ROUNDED[name]) for rows in self.rows.values() for row in rows[name]]
            columns[name] = pa.array(values, pa.list_(pa.uint8() if name == "correct" else pa.uint16()))
        if self.divergence is not None:
            absent = [None] * (len(columns["prefix"]) - self.number)
            columns[DIVERGENCE] = pa.array([*self.divergence.tolist(), *absent], pa.float32())
        about = json.dumps({"name": self.name, **self.about}, sort_keys=True).encode()
        table = pa.table(columns).replace_schema_metadata({_ABOUT: about})
        buffer = io.BytesIO()
        coding: dict[str, Any] = {"use_dictionary": ["prefix"], "column_encoding": split}
        import_parquet().write_table(table, buffer, compression="zstd", compression_level=19, **coding)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, buffer.getvalue())

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read what `write` wrote; values are exact to half a step.

        Raises:
            RunError: it is not such a file.
        """
        table = import_parquet().read_table(path)
        if _ABOUT not in (table.schema.metadata or {}):
            raise RunError(f"{path} holds no results of an evaluation: write them with the stage `export`.")
        about = json.loads(table.schema.metadata[_ABOUT])
        prefixes = table["prefix"].to_pylist()
        columns = {name: [_from_whole(row, name) for row in table[name].to_pylist()] for name in QUANTITIES}
        rows = {
            prefix: {
                name: [row for row, of in zip(column, prefixes, strict=True) if of == prefix]
                for name, column in columns.items()
            }
            for prefix in dict.fromkeys(prefixes)
        }
        divergence = None
        if DIVERGENCE in table.column_names:
            divergence = np.array(table[DIVERGENCE].drop_null().to_pylist(), dtype=np.float64)
        return cls(about.pop("name"), about, rows, divergence)


def measure_run(run: Run, last: Run | None = None) -> Results:
    """The results of a run; of a checkpoint, with its divergence from the last one."""
    divergence = None if last is None else influence_divergence(run, last, run.prefixes[0]).means[DIVERGENCE]
    manifest = run.manifest
    about = {
        **{part: manifest[part]["sha256"] for part in ("selection", "tokenizer")},
        "lengths": None if run.lengths is None else list(run.lengths),
        "rule": manifest["method"]["settings"]["rule"],
        "worst_conservation_error": max(part["worst_conservation_error"] for part in run.metrics.values()),
    }
    rows = {prefix: _measure(run.rows(prefix), _needed(prefix, last is not None)) for prefix in run.prefixes}
    return Results(run.name, about, rows, divergence)


def _needed(prefix: str, of_training: bool) -> Collection[str]:
    """Names of the quantities that claims and figures need."""
    if prefix != "reference":
        return {"source_total", "source_entropy"}
    return set(QUANTITIES) - {USE if of_training else "correct"}


def _measure(sentences: Iterable[Row], needed: Collection[str]) -> dict[str, list[np.ndarray]]:
    rows: dict[str, list[np.ndarray]] = {name: [] for name in QUANTITIES}
    for sentence in sentences:
        for name, measure in _MEASURES.items():
            rows[name].append(measure(sentence) if name in needed else np.empty(0))
    return rows


def _to_whole(values: np.ndarray, step: float) -> np.ndarray:
    whole = np.rint(np.where(np.isfinite(values), values, 0.0) / step)
    return np.where(np.isfinite(values), np.clip(whole, 0, _UNDEFINED - 1), _UNDEFINED).astype(np.uint16)


def _from_whole(values: list[int], name: str) -> np.ndarray:
    whole = np.asarray(values, dtype=np.float64)
    return np.where(whole == _UNDEFINED, np.nan, whole * _ROUNDED[name])
