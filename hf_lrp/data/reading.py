"""Tables of sentence pairs from files and from the Hub."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    Pairs: TypeAlias = Dataset | IterableDataset

_KINDS = {".tsv": "tsv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}


def import_datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise ImportError("Pairs of sentences are read with the datasets library: pip install datasets") from error
    return datasets


def is_stream(pairs: Pairs) -> bool:
    return isinstance(pairs, import_datasets().IterableDataset)


def local_files(data: str | Path | Sequence[str | Path]) -> list[Path] | None:
    """The files that `data` names; None if it is the name of a dataset on the Hub."""
    if not isinstance(data, (str, Path)):
        files = [Path(file) for file in data]
        if not files:
            raise ValueError("data is an empty list: name at least one file.")
    elif isinstance(data, Path) or Path(data).is_file() or Path(data).suffix in _KINDS:
        files = [Path(data)]
    elif Path(data).exists() or data.startswith((".", "~", os.sep)) or data.count("/") > 1:
        raise FileNotFoundError(f"{data} is not a file. Name a file, a list of files or a dataset on the Hub.")
    else:
        return None
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        raise FileNotFoundError(f"No such file: {', '.join(missing)}.")
    return files


def kind_of_files(files: Sequence[Path]) -> str:
    """tsv, json, parquet or text, by the files' extensions."""
    kinds = {_KINDS.get(file.suffix, "text") for file in files}
    names = ", ".join(file.name for file in files)
    if len(kinds) > 1:
        raise ValueError(f"{names}: files of different kinds. Give files of one kind.")
    if kinds == {"text"} and len(files) != 2:
        raise ValueError(
            f"{names}: unknown kind of file. Known are {', '.join(_KINDS)} by extension, and two plain text files, "
            "one with the sources and one with the targets."
        )
    return kinds.pop()


def load_table(*arguments: Any, **options: Any) -> Any:
    datasets = import_datasets()
    try:
        return datasets.load_dataset(*arguments, **options)
    except (datasets.exceptions.DatasetNotFoundError, ConnectionError) as error:
        name = arguments[0]
        raise FileNotFoundError(f"{name} is not a file here, and not found on the Hub either: {error}") from error


def _lines(path: Path) -> Iterator[str]:
    """Lines without their ends; a carriage return elsewhere or a Unicode line separator is plain text."""
    try:
        with open(path, encoding="utf-8-sig", newline="\n") as lines:
            for line in lines:
                yield line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error.reason}): convert it, for example with iconv.") from error


def tsv_rows(files: tuple[Path, ...]) -> Iterator[tuple[str, str]]:
    for path in files:
        empty = True
        for number, line in enumerate(_lines(path), 1):
            if not line.strip():
                continue
            fields = line.split("\t", 2)
            if len(fields) < 2:
                raise ValueError(
                    f"{path}, line {number} has no tab: every line needs a source and a target, separated by a tab."
                )
            empty = False
            yield fields[0], fields[1]
        if empty:
            raise ValueError(f"{path} is empty: every line needs a source and a target, separated by a tab.")


def parallel_rows(files: tuple[Path, ...]) -> Iterator[tuple[str, str]]:
    sources, targets = map(_lines, files)
    number = 0
    for number, source in enumerate(sources, 1):
        target = next(targets, None)
        if target is None:
            raise ValueError(f"{files[1]} has {number - 1} lines and {files[0]} has more: they do not go together.")
        yield source, target
    if next(targets, None) is not None:
        raise ValueError(f"{files[0]} has {number} lines and {files[1]} has more: they do not go together.")
    if not number:
        raise ValueError(f"{files[0]} and {files[1]} are empty.")


def _numbered_rows(rows: Callable[..., Iterator[tuple[str, str]]], files: tuple[Path, ...]) -> Iterator[dict]:
    for example, (source, target) in enumerate(rows(files)):
        yield {"source": source, "target": target, "example": example}


def read_lines(rows: Callable[..., Iterator[tuple[str, str]]], files: Sequence[Path], streaming: bool) -> Pairs:
    datasets = import_datasets()
    features = datasets.Features(
        {"source": datasets.Value("string"), "target": datasets.Value("string"), "example": datasets.Value("int64")}
    )
    arguments = {"rows": rows, "files": tuple(files)}  # a list would be read as shards, each numbered from 0
    if streaming:
        next(rows(tuple(files)))
        return datasets.IterableDataset.from_generator(_numbered_rows, features=features, gen_kwargs=arguments)
    states = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    fingerprint = digest(rows.__name__, *states)
    try:
        return datasets.Dataset.from_generator(
            _numbered_rows, features=features, gen_kwargs=arguments, fingerprint=fingerprint
        )
    except datasets.exceptions.DatasetGenerationError as error:
        raise (error.__cause__ if isinstance(error.__cause__, ValueError) else error) from None


def two_columns(table: Any, name: str, source: str, target: str) -> Any:
    """The table with the columns `source` and `target` alone, taken out of `translation` where it has that."""
    first = next(iter(table), None)
    if first is None:
        raise ValueError(f"{name} is empty.")
    nested = isinstance(first.get("translation"), Mapping)
    row = first["translation"] if nested else first
    missing = [column for column in (source, target) if column not in row]
    if missing:
        kind = "language" if nested else "column"
        raise ValueError(
            f"{name} has no {kind} {' and no '.join(map(repr, missing))}, only {', '.join(map(repr, row))}: say with "
            "`source` and `target` which to take."
        )
    for column in (source, target):
        if not isinstance(row[column], (str, type(None))):
            raise ValueError(f"{name}: {column!r} holds {type(row[column]).__name__}, not text.")
    if nested and is_stream(table):
        return table.map(partial(_take_out, source=source, target=target), remove_columns=list(first))
    if nested:
        table, source, target = table.flatten(), f"translation.{source}", f"translation.{target}"
    table = table.select_columns([source, target])
    return (
        table
        if (source, target) == ("source", "target")
        else table.rename_columns({source: "source", target: "target"})
    )


def _take_out(row: dict, source: str, target: str) -> dict[str, str]:
    return {"source": row["translation"][source], "target": row["translation"][target]}


def numbered(table: Any) -> Any:
    if is_stream(table):
        return table.map(_with_number, with_indices=True)
    numbers = np.arange(len(table))
    return table.add_column("example", numbers, new_fingerprint=digest(table._fingerprint, "example"))


def _with_number(row: dict, number: int) -> dict:
    return row | {"example": number}


def digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def as_number(hashed: bytes) -> int:
    """The first 63 bits, so that numbers are ordered as the bytes are."""
    return int.from_bytes(hashed[:8], "big") >> 1
