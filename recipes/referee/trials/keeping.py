"""What trials found so far, sentence by sentence and method by method, in files that interrupted work goes on from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from hf_lrp.corpus.journal import Journal
from hf_lrp.corpus.processes import this_process
from hf_lrp.data.json_files import parse_json


class Findings:
    """One trial's rows, one file per process: the number of a sentence, a method, what was found."""

    def __init__(self, folder: Path, trial: str, settings: dict[str, Any]) -> None:
        """settings: what rows depend on; other rows are refused."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._trial = folder, trial
        self._state = this_process()
        self._journal = Journal(folder / f"{trial}.{self._state.process_index}.jsonl", settings)
        self._settings = settings

    def missing(self, sentences: Iterable[int], methods: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        """This process's sentences for which methods are missing, with these methods, under a progress bar."""
        known = {(row["sentence"], row["method"]) for row in self.rows()}
        todo = [(number, [name for name in methods if (number, name) not in known]) for number in sentences]
        todo = [(number, names) for number, names in todo if names]
        with self._state.split_between_processes(todo) as own:
            label = f"{self._folder.name}: {self._trial}"
            yield from tqdm(own, desc=label, unit="sentence", disable=not self._state.is_main_process)

    def add(self, sentence: int, method: str, found: Any) -> None:
        """Keep one row."""
        self._journal.append({"sentence": sentence, "method": method, "found": found})

    def rows(self) -> Iterator[dict[str, Any]]:
        """All rows of all processes, those of before too."""
        for path in sorted(self._folder.glob(f"{self._trial}.*.jsonl")):
            lines = path.read_bytes()
            head, *rest = lines[: lines.rfind(b"\n") + 1].splitlines() or [b"{}"]
            if parse_json(head) not in ({}, self._settings):
                raise SystemExit(f"{path} was made with other settings: remove it to start again.")
            yield from (parse_json(line) for line in rest)

    def complete(self, sentences: Iterable[int], methods: Sequence[str]) -> dict[str, list[Any]]:
        """By method, what was found for the sentences before the first that lacks one; without methods not asked."""
        found = {(row["sentence"], row["method"]): row["found"] for row in self.rows()}
        numbers = list(sentences)
        asked = [name for name in methods if any((number, name) in found for number in numbers)]
        kept = list(takewhile(lambda number: all((number, name) in found for name in asked), numbers))
        return {name: [found[number, name] for number in kept] for name in asked}
