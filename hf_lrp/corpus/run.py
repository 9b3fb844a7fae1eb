"""The folder of an evaluation, and a view that reads results and arrays back.

A run's folder holds ``manifest.json`` (the settings and, once all is there, the SHA-256 of all else),
``selection.json`` (the pairs), ``shards/00000.parquet`` with ``shards/00000.json`` beside it (its checksum, see
`hf_lrp.corpus.shards`), and ``metrics.json``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from hf_lrp.corpus.manifest import AGAIN, RunError, check_files, read_manifest
from hf_lrp.corpus.shards import Row, Stored, read_results, read_rows
from hf_lrp.data.json_files import read_json
from hf_lrp.results.collection import ContributionsList
from hf_lrp.results.contributions import Contributions


class Run:
    """A finished evaluation, read from its folder: `Run.open(folder)`.

    `run[17]` is the result of sentence 17, counted from 0, as `explain` gave it, with the first of the run's prefix
    types; `run.results("random")[17]` with another.

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

    def results(self, prefix: str) -> StoredResults:
        """The results with one prefix type, read when they are asked for."""
        return StoredResults(self, self._group(prefix), prefix)

    def rows(self, prefix: str) -> Iterator[Row]:
        """Arrays of the results with one prefix type, in their order; one shard at a time is in memory."""
        group, number = self._group(prefix), 0
        for entry in self.manifest["shards"]:
            path = self.folder / "shards" / entry["file"]
            for row in read_rows(path, group):
                _require_place(path, row.sentence, row.prefix, number, prefix)
                number += 1
                yield row

    @overload
    def __getitem__(self, index: int) -> Contributions: ...

    @overload
    def __getitem__(self, index: slice) -> ContributionsList: ...

    def __getitem__(self, index: int | slice) -> Contributions | ContributionsList:
        return self.results(self.prefixes[0])[index]

    def __len__(self) -> int:
        """The number of sentences."""
        return self.number

    def __iter__(self) -> Iterator[Contributions]:
        return iter(self.results(self.prefixes[0]))

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

    def _group(self, prefix: str) -> int:
        """The place of a prefix type among the run's."""
        if prefix not in self.prefixes:
            raise RunError(
                f"{self.folder} was evaluated with prefix types {', '.join(self.prefixes)}, not with {prefix!r}: "
                "choose one of these, or evaluate into another folder."
            )
        return self.prefixes.index(prefix)


class StoredResults(Sequence[Contributions]):
    """The results of a run with one prefix type: a sequence that reads what it is asked for."""

    def __init__(self, run: Run, group: int, prefix: str) -> None:
        self._run, self._group, self.prefix = run, group, prefix

    def __len__(self) -> int:
        return self._run.number

    @overload
    def __getitem__(self, index: int) -> Contributions: ...

    @overload
    def __getitem__(self, index: slice) -> ContributionsList: ...

    def __getitem__(self, index: int | slice) -> Contributions | ContributionsList:
        if isinstance(index, slice):
            chosen = range(len(self))[index]
            found = {stored.sentence: stored.result for stored in self.stored(sorted(chosen))}
            return ContributionsList(found[number] for number in chosen)
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no sentence at index {index}: there are {len(self)}.")
        return next(self.stored([index % len(self)])).result

    def __iter__(self) -> Iterator[Contributions]:
        return (stored.result for stored in self.stored(range(len(self))))

    def stored(self, numbers: Sequence[int]) -> Iterator[Stored]:
        """The results with these numbers, ascending, with their places."""
        first = 0
        for entry in self._run.manifest["shards"]:
            count = entry["rows"] // len(self._run.prefixes)
            inside = [number for number in numbers if first <= number < first + count]
            path = self._run.folder / "shards" / entry["file"]
            found = read_results(path, self._group, [number - first for number in inside]) if inside else ()
            for number, stored in zip(inside, found, strict=True):
                _require_place(path, stored.sentence, stored.result.prefix, number, self.prefix)
                yield stored
            first += count


def _require_place(path: Path, sentence: int, prefix: str, number: int, expected: str) -> None:
    if (prefix, sentence) != (expected, number):
        raise RunError(
            f"{path} has sentence {sentence} with {prefix} prefix where the manifest says sentence {number} with "
            f"{expected} prefix: these files belong to different evaluations. Evaluate into another folder."
        )
