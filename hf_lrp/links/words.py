"""Weights of heads between the words of sentence pairs: token weights pooled to words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from torch import Tensor

from hf_lrp.links.extraction import word_weights
from hf_lrp.links.heads import Head
from hf_lrp.links.texts import Text, membership, piece_spans, words_of_pieces
from hf_lrp.links.weights import HeadReader, PairsRead
from hf_lrp.models.vocabulary import Side


class WordPair(NamedTuple):
    """A pair of texts with their words, and weights [heads, target words, source words] between these."""

    source: Text
    target: Text
    weights: Tensor


class Words:
    """The words of a pair and which share of each token is theirs: `source` and `target`, [words, tokens]."""

    def __init__(
        self, reader: HeadReader, pairs: PairsRead, number: int, source: Text | str, target: Text | str
    ) -> None:
        ids = pairs.reading.sources.describe(pairs.reading.sources.items[number]).ids, pairs.prefixes[number].ids
        self.source_text, self.source = _members(reader, source, ids[0], "source")
        self.target_text, self.target = _members(reader, target, ids[1], "target")


def _members(reader: HeadReader, text: Text | str, ids: Tensor, side: Side) -> tuple[Text, Tensor]:
    spans = piece_spans(text if isinstance(text, str) else text.text, ids, side, reader.vocabulary)
    text = words_of_pieces(text, spans) if isinstance(text, str) else text
    return text, membership(text, spans)


def read_word_weights(
    reader: HeadReader,
    sources: Sequence[Text | str],
    targets: Sequence[Text | str],
    heads: Sequence[Head],
    done: Callable[[int], object] = lambda count: None,
) -> Iterator[tuple[int, WordPair]]:
    """The number of each pair and its word weights, pairs of like length together. done: is told of each pair."""
    pairs = reader.read(written(sources), written(targets))
    for number, found in reader.weights(pairs, heads):
        words = Words(reader, pairs, number, sources[number], targets[number])
        weights = word_weights(found.weights, words.target, words.source)
        yield number, WordPair(words.source_text, words.target_text, weights)
        done(1)


def written(texts: Sequence[Text | str]) -> list[str]:
    """The texts themselves, as models read them."""
    return [text if isinstance(text, str) else text.text for text in texts]
