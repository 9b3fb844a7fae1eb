"""JSON files: read without surprises, and written readable."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from hf_lrp.data.files import write_atomically

_LARGEST = 2**63 - 1  # what arrays hold


def read_json(path: str | os.PathLike[str]) -> Any:
    """The content of a file, as `parse_json` reads it."""
    return parse_json(Path(path).read_bytes())


def parse_json(content: str | bytes) -> Any:
    """Content of a JSON text.

    Raises:
        ValueError: it is no JSON, is nested too deeply, or has a number that no float or array holds.
    """
    try:
        return json.loads(content, parse_int=_integer, parse_float=_number, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write readable JSON, whole or not at all; the same content gives the same bytes."""
    write_atomically(path, json_bytes(content))


def json_bytes(content: Any) -> bytes:
    """Readable JSON in UTF-8; raises a ValueError for nan, which JSON does not have."""
    return (json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False) + "\n").encode()


def _integer(text: str) -> int:
    if len(text) > 20 or abs(int(text)) > _LARGEST:
        raise ValueError(f"the number {text[:20]} is too large")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is not JSON")
