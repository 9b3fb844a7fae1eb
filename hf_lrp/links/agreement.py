"""Finding link heads without any gold link: those whose best choices by row and by column agree most often."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hf_lrp.links.extraction import link_strengths, mutual_best, word_weights
from hf_lrp.links.heads import Head, LinkHeads, all_heads, saved_heads
from hf_lrp.links.texts import Text, membership, piece_spans, words_of_pieces
from hf_lrp.links.weights import HeadReader, PairsRead
from hf_lrp.models.vocabulary import Side

HEADS = 6  # how many are taken
SENTENCES = 100  # to find them on


class Words:
    """The words of a pair and which share of each token is theirs: `source` and `target`, [words, tokens]."""

    def __init__(
        self, reader: HeadReader, pairs: PairsRead, number: int, source: Text | str, target: Text | str
    ) -> None:
        ids = pairs.reading.sources.items[number], pairs.prefixes[number].ids
        self.source_text, self.source = _members(reader, source, pairs.reading.sources.describe(ids[0]).ids, "source")
        self.target_text, self.target = _members(reader, target, ids[1], "target")


def _members(reader: HeadReader, text: Text | str, ids: Tensor, side: Side) -> tuple[Text, Tensor]:
    written = text if isinstance(text, str) else text.text
    spans = piece_spans(written, ids, side, reader.vocabulary)
    text = words_of_pieces(text, spans) if isinstance(text, str) else text
    return text, membership(text, spans)


def written(texts: Sequence[Text | str]) -> list[str]:
    """The texts themselves, as models read them."""
    return [text if isinstance(text, str) else text.text for text in texts]


def find_heads(
    reader: HeadReader, sources: Sequence[Text | str], targets: Sequence[Text | str], count: int = HEADS
) -> LinkHeads:
    """The heads and steps whose best choices agree most often on these pairs; never one head at both steps."""
    candidates = all_heads(reader.blocks)
    pairs = reader.read(written(sources), written(targets))
    total = torch.zeros(len(candidates))
    for number, found in reader.weights(pairs, candidates):
        words = Words(reader, pairs, number, sources[number], targets[number])
        each = [link_strengths(word_weights(w[None], words.target, words.source), 0.0) for w in found.weights]
        total += mutual_best(torch.stack(each))
    chosen: list[Head] = []
    for place in total.argsort(descending=True).tolist():
        head = candidates[place]
        if len(chosen) < count and not any(head[:2] == other[:2] for other in chosen):
            chosen.append(head)
    return LinkHeads(tuple(chosen), "agreement", len(sources))


def link_heads(reader: HeadReader, sources: Sequence[Text | str], targets: Sequence[Text | str]) -> LinkHeads:
    """The heads that the model's generation config names, or else those found on the first of these pairs."""
    saved = saved_heads(reader.model)
    return find_heads(reader, sources[:SENTENCES], targets[:SENTENCES]) if saved is None else saved
