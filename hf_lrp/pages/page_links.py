"""Word links as the page draws them: between the parts of running text that a result has."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Protocol

FOUND = 0.5  # of a text's characters, at least, in the result's: unknown tokens and changed forms aside


class LinkedText(Protocol):
    """A text and the places of its words: a `hf_lrp.Text`."""

    @property
    def text(self) -> str: ...

    @property
    def spans(self) -> tuple[tuple[int, int], ...]: ...


class WordLinks(Protocol):
    """Linked words of a source and a target: what `hf_lrp.align` gives."""

    @property
    def source(self) -> LinkedText: ...

    @property
    def target(self) -> LinkedText: ...

    @property
    def strengths(self) -> Mapping[tuple[int, int], float]: ...


def part_links(links: WordLinks, source: Sequence[Sequence[Any]], target: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Links between parts of running text, ``[source, target, strength]``: parts of linked words, found by characters.

    Args:
        source, target: parts, ``[text, space before, special]``.
    """
    sides = _words_of_parts(links.source, source, "source"), _words_of_parts(links.target, target, "target")
    found: dict[tuple[int, int], float] = {}
    for (word, other), strength in links.strengths.items():
        for i in (i for i, words in enumerate(sides[0]) if word in words):
            for j in (j for j, words in enumerate(sides[1]) if other in words):
                found[i, j] = max(found.get((i, j), 0.0), strength)
    return [[i, j, round(float(strength), 3)] for (i, j), strength in sorted(found.items())]


def _words_of_parts(text: LinkedText, parts: Sequence[Sequence[Any]], side: str) -> list[set[int]]:
    """The words of the text that each part has characters of."""
    written = _characters(text.text)
    read = [(i, char) for i, (part, _, special) in enumerate(parts) if not special for _, char in _characters(part)]
    matcher = SequenceMatcher(None, [char for _, char in read], [char for _, char in written], autojunk=False)
    pairs = [
        (read[block.a + n][0], written[block.b + n][0])
        for block in matcher.get_matching_blocks()
        for n in range(block.size)
    ]
    if len(pairs) < FOUND * max(len(written), len(read)):
        raise ValueError(
            f"The links are of the {side} {text.text!r:.80}, but the result's {side} is another: align the texts "
            "that were explained."
        )
    word_at = {place: word for word, span in enumerate(text.spans) for place in range(*span)}
    words: list[set[int]] = [set() for _ in parts]
    for part, place in pairs:
        if place in word_at:
            words[part].add(word_at[place])
    return words


def _characters(text: str) -> list[tuple[int, str]]:
    """Characters with their places, without spaces and what tokenizers change: case, accents, compatibility forms."""
    return [
        (place, part)
        for place, char in enumerate(text)
        for part in unicodedata.normalize("NFKD", char).casefold()
        if not part.isspace() and not unicodedata.combining(part)
    ]
