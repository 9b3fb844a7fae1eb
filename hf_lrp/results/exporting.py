"""Results as the contents of files, alike from commands and from the app."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
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
