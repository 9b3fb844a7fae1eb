"""One writer at a time: a lock beside what is written, which dies with its process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


class Occupied(RuntimeError):
    """Another process is writing; the message says what."""


@contextmanager
def one_writer(lock: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Hold a lock file while something is written, and remove it at the end.

    Raises:
        Occupied: another process holds it.
    """
    held = FileLock(lock, timeout=0)
    try:
        held.acquire()
    except Timeout as error:
        raise Occupied(
            f"Another process is writing {what}: wait until it has ended, or choose another place."
        ) from error
    try:
        yield
    finally:
        Path(lock).unlink(missing_ok=True)  # before the release: whoever opened it meanwhile sees that it is gone
        held.release()
