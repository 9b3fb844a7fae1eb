"""Rows that are kept as they come, so that interrupted work goes on where it stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hf_lrp.data.json_files import parse_json


class Journal:
    """A file of JSON lines: what the rows were made with, then the rows. A line cut short at the end is dropped.

    Attributes:
        rows: what was appended so far, by this process and by those before it.
    """

    def __init__(self, path: str | os.PathLike[str], settings: dict[str, Any]) -> None:
        """Open a file that is there, or start one.

        Raises:
            ValueError: the file's rows were made with other settings, or it is no journal.
        """
        self.path = Path(path)
        self.rows: list[dict[str, Any]] = []
        content = self.path.read_bytes() if self.path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if not whole:
            self._open(0)
            self._write(settings)
            return
        try:
            found, *self.rows = [parse_json(line) for line in whole.splitlines()]
            if not all(isinstance(row, dict) for row in (found, *self.rows)):
                raise ValueError("a line is not an object")
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}): remove it to start again.") from error
        changed = [name for name in settings.keys() | found.keys() if settings.get(name) != found.get(name)]
        if changed:
            raise ValueError(
                f"{path} holds unfinished work with other settings ({', '.join(sorted(changed))}): remove it to start "
                "again, or go on with the settings it was made with."
            )
        self._open(len(whole))

    def _open(self, size: int) -> None:
        """Go on after so many bytes; what follows them is dropped."""
        self._file = self.path.open("ab")
        self._file.truncate(size)

    def append(self, row: dict[str, Any]) -> None:
        """Keep one more row."""
        self._write(row)
        self.rows.append(row)

    def remove(self) -> None:
        """Delete the file: its rows have found their place elsewhere."""
        self._file.close()
        self.path.unlink()

    def _write(self, row: dict[str, Any]) -> None:
        self._file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        self._file.flush()
