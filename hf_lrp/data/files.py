"""Files of sentences, and output files: checked before the work starts, and complete or not there at all."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

STANDARD_STREAM = "-"  # as a file's name: standard input or output


def read_sentences(path: str) -> list[str]:
    """The lines of a file, or of standard input for `-`; raises for empty ones, except at the end."""
    is_stream = path == STANDARD_STREAM
    name = "standard input" if is_stream else path
    try:
        content = (sys.stdin.buffer.read() if is_stream else Path(path).read_bytes()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text (byte {error.start + 1}): convert it first.") from error
    lines = [line.strip() for line in content.rstrip().split("\n")]
    if lines == [""]:
        raise ValueError(f"{name} is empty: there is nothing to explain.")
    if "" in lines:
        raise ValueError(f"{name} has an empty line (line {lines.index('') + 1}): each line must be a sentence.")
    return lines


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file that replaces an old one only once all is written.

    A link stays a link: what it points to is replaced. Devices and pipes are written to directly.
    """
    destination = Path(os.path.realpath(path))
    if destination.exists() and not destination.is_file():
        destination.write_bytes(content)
        return
    if not destination.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {destination.parent}. Create it first.")
    temporary = destination.with_name(f"{_beginning(destination.name)}{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, destination)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path, name: str) -> None:
    """Delete what processes that were killed while they wrote the file of this name have left in its folder."""
    beginning = re.escape(_beginning(name))
    for path in folder.iterdir():
        if re.fullmatch(beginning + "[0-9a-f]{32}", path.name):
            path.unlink(missing_ok=True)


def _beginning(name: str) -> str:
    """Of the names of a file while it is written; names may be as long as the file system allows."""
    return f".{name[:40]}."


def prepare_destination(path: str | os.PathLike[str]) -> None:
    """Create the folder of a file that is to be written, and raise an OSError if the file could not be written."""
    destination = Path(os.path.realpath(path))
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.lstat(destination)  # which refuses names that are too long
        if destination.is_dir():
            raise IsADirectoryError("it is a folder")
        if destination.exists() and not destination.is_file():
            return
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=destination.parent):
            pass
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error
