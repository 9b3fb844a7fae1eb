"""Names of models for readers: a Hub id as it is, of a folder only what tells it from others."""

from __future__ import annotations

import re

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_NUMBERED = re.compile(r"(checkpoint|step)[-_]?\d+")


def short_name(model: str) -> str:
    """The name of a model without the path to it.

    `owner/name` stays, since ids on the Hub look like that; of other paths the last part is left, of a training run's
    `checkpoint-STEP` the last two.
    """
    parts = [part for part in re.split(r"[/\\]", model) if part not in ("", ".", "..", "~")]
    is_path = model.startswith(("/", ".", "~")) or "\\" in model
    if not parts or (_HUB_ID.fullmatch(model) and not is_path):
        return model
    kept = 2 if _NUMBERED.fullmatch(parts[-1]) else 1
    return "/".join(parts[-kept:])
