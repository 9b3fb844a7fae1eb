"""Texts whose words are linked: where words stand in a text, and which of the text's pieces are theirs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from hf_lrp.models.vocabulary import Side, Vocabulary
from hf_lrp.models.words import detect_marking, is_unspaced, without_marking

_SPACES = re.compile(r"\S+")


@dataclass(frozen=True)
class Text:
    """A text and its words, as places of characters ``(start, stop)``, in order.

    Words need not fill the text: what stands between them is linked to nothing.
    """

    text: str
    spans: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", tuple((int(start), int(stop)) for start, stop in self.spans))
        for start, stop in self.spans:
            if not 0 <= start < stop <= len(self.text):
                raise ValueError(f"The word {(start, stop)} is not part of a text of {len(self.text)} characters.")
        if any(a[1] > b[0] for a, b in pairwise(self.spans)):
            raise ValueError("The words of a text must be given in order and may not overlap.")

    @property
    def words(self) -> tuple[str, ...]:
        """The words themselves."""
        return tuple(self.text[start:stop] for start, stop in self.spans)

    @classmethod
    def at_spaces(cls, text: str) -> Text:
        """Words are what spaces part, as in files of links."""
        return cls(text, tuple(match.span() for match in _SPACES.finditer(text)))

    @classmethod
    def of_words(cls, words: Sequence[str]) -> Text:
        """Words with a space between them, in every script: models link words better that no piece reaches across."""
        text, spans = "", []
        for word in words:
            if not word.strip():
                raise ValueError(f"One of the words {list(words)!r:.80} is empty.")
            text += " " if text else ""
            spans.append((len(text), len(text) + len(word)))
            text += word
        return cls(text, tuple(spans))


def read_texts(given: Any, side: Side) -> list[Text | str]:
    """Texts with their words; a text whose words only the tokenizer tells apart stays a text.

    Each is a text, a list of words, or a `Text`.
    """
    if isinstance(given, str | Text):
        raise TypeError(f"{side}s must be a list of texts or of lists of words, got one {type(given).__name__}.")
    return [_read_text(item, f"{side} {number}") for number, item in enumerate(given)]


def _read_text(item: Any, name: str) -> Text | str:
    if isinstance(item, Text):
        text = item
    elif isinstance(item, str):
        text = Text.at_spaces(item)
        if _lacks_spaces(text):
            return item
    elif isinstance(item, Sequence) and all(isinstance(word, str) for word in item):
        text = Text.of_words(item)
    else:
        raise TypeError(f"{name} must be a text, a list of words or a Text, got {item!r:.80}.")
    if not text.spans:
        raise ValueError(f"{name} has no words: there is nothing to link. Leave the pair out.")
    return text


def _lacks_spaces(text: Text) -> bool:
    """Whether a text of a script such as Chinese has no spaces: more than four characters are hardly a word."""
    counts = [count for word in text.words if (count := sum(map(is_unspaced, word)))]
    return sum(counts) > 4 * len(counts) or (len(text.words) == 1 and sum(counts) > 1)


def words_of_pieces(text: str, spans: Sequence[tuple[int, int] | None]) -> Text:
    """A text whose words are its pieces, for scripts that are written without spaces."""
    found: list[tuple[int, int]] = []
    for span in spans:
        if span is None:
            continue
        start, stop = max(span[0], found[-1][1] if found else 0), span[1]
        while start < stop and text[start].isspace():
            start += 1
        while start < stop and text[stop - 1].isspace():
            stop -= 1
        if start < stop:
            found.append((start, stop))
    return Text(text, tuple(found))


# ---- pieces


def piece_spans(text: str, ids: Tensor, side: Side, vocabulary: Vocabulary) -> list[tuple[int, int] | None]:
    """The characters of a text that each of its token ids [n] stands for; None for what is no text.

    Pieces are looked up in the text, whatever the tokenizer: compatibility forms, case and accents aside. What is not
    found, such as an unknown token, stands for the characters between its neighbours.
    """
    unknown = getattr(vocabulary.tokenizer, "unk_token_id", None)
    special = vocabulary.is_special(ids)
    is_text = [not s or i == unknown for i, s in zip(ids.tolist(), special, strict=True)]
    tokens = vocabulary.tokens(ids, side)
    marking = detect_marking([token for token, s in zip(tokens, special, strict=True) if not s])
    pieces = [
        "" if not own or i == unknown else without_marking(token, marking)
        for token, i, own in zip(tokens, ids.tolist(), is_text, strict=True)
    ]
    written, places = _folded(text)
    read = [(number, char) for number, piece in enumerate(pieces) for char in _folded(piece)[0]]
    if [char for _, char in read] == written:
        pairs = [(number, places[n]) for n, (number, _) in enumerate(read)]
    else:
        matcher = SequenceMatcher(None, [char for _, char in read], written, autojunk=False)
        pairs = [
            (read[block.a + n][0], places[block.b + n])
            for block in matcher.get_matching_blocks()
            for n in range(block.size)
        ]
    spans: list[tuple[int, int] | None] = [None] * len(pieces)
    for number, place in pairs:
        span = spans[number]
        spans[number] = (place, place + 1) if span is None else (min(span[0], place), max(span[1], place + 1))
    return _fill_gaps(spans, is_text, text)


def _folded(text: str) -> tuple[list[str], list[int]]:
    """Characters that tokenizers keep, without what they may change, and where each stands in the text."""
    chars, places = [], []
    for place, char in enumerate(text):
        for part in unicodedata.normalize("NFKD", char).casefold():
            if not part.isspace() and not unicodedata.combining(part) and part != "▁":
                chars.append(part)
                places.append(place)
    return chars, places


def _fill_gaps(spans: list[tuple[int, int] | None], is_text: list[bool], text: str) -> list[tuple[int, int] | None]:
    """Pieces that were not found share the characters between those that were."""
    filled = list(spans)
    for number, span in enumerate(spans):
        if span is not None or not is_text[number]:
            continue
        start = max((s[1] for s in spans[:number] if s is not None), default=0)
        stop = min((s[0] for s in spans[number + 1 :] if s is not None), default=len(text))
        inner = [n for n in range(start, stop) if not text[n].isspace()]
        if inner:
            filled[number] = (inner[0], inner[-1] + 1)
    return filled


def membership(text: Text, spans: Sequence[tuple[int, int] | None]) -> Tensor:
    """[words, n]: which share of each piece's characters, spaces aside, stands in each word."""
    shares = torch.zeros(len(text.spans), len(spans))
    word_at = {place: word for word, span in enumerate(text.spans) for place in range(*span)}
    for number, span in enumerate(spans):
        places = [place for place in range(*span) if not text.text[place].isspace()] if span is not None else []
        for place in places:
            if place in word_at:
                shares[word_at[place], number] += 1 / len(places)
    return shares
