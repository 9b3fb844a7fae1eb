"""Results as the contents of files, alike from commands and from the app."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_lrp.results.contributions import Contributions


def picture_of(drawable: Any) -> bytes:
    """The picture of what has a `plot` method, as PNG."""
    buffer = io.BytesIO()
    drawable.plot().savefig(buffer, format="png", dpi=200)
    return buffer.getvalue()


def numbers_of(results: Sequence[Contributions]) -> bytes:
    """All numbers as JSON in a line: an object for one result, a list of such for several."""
    dicts = [contributions.to_dict() for contributions in results]
    return (json.dumps(dicts if len(dicts) > 1 else dicts[0], ensure_ascii=False, allow_nan=False) + "\n").encode()


def plain_values(c: Contributions) -> dict[str, Any]:
    """Fields and derived quantities of a result as plain lists, numbers and strings; None for nan."""
    derived = ("probability", "source_total", "target_total", "source_entropy", "target_entropy")
    names = [*(field.name for field in fields(c)), *derived]
    spans = {name: {"tokens": list(s.tokens), "shares": _plain(s.shares)} for name, s in c.spans.items()}
    inside = c.inside and {name: _plain(tensor) for name, tensor in c.inside.tensors.items()}
    own = {"method": c.method.to_plain(), "spans": spans, "inside": inside}
    return {name: _plain(getattr(c, name)) for name in names if name not in own} | own


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # a tensor: commands import this file, and torch takes them long
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
