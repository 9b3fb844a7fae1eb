"""Contrasted words of a result: what was asked, and what of it is explained."""

from __future__ import annotations

from typing import NamedTuple

from hf_lrp.data.visible import visible


class Contrasted(NamedTuple):
    """Why `word` and not `other`?

    note: which pieces of the words are compared and how probable the whole words are; empty where both are one piece.
    """

    word: str
    other: str
    note: str = ""

    @property
    def label(self) -> str:
        """Both words, as tables and pictures show them."""
        return visible(f"{self.word} vs {self.other}")
