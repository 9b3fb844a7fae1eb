"""Errors in the words of users."""

from __future__ import annotations

from hf_lrp.data.visible import visible


def in_one_line(message: object) -> str:
    """A message without line breaks, its characters that act spelled out."""
    return visible(" ".join(str(message).split()))


def ran_out_of_memory(error: Exception) -> bool:
    """Whether Python or torch had no memory left."""
    text = str(error)
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text
