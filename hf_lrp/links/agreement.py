"""Finding the heads that link words: without gold links, by agreement; or by gold links of some pairs.

Without gold links, heads whose best choices by row and by column agree most often make a first set of links; then each
head is rated by how well its links alone agree with these. With gold links, by how well they agree with those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from hf_lrp.links.extraction import DEFAULT, Extraction, link_strengths, mutual_best, read_links
from hf_lrp.links.heads import Head, LinkHeads, all_heads, saved_heads
from hf_lrp.links.texts import Text
from hf_lrp.links.weights import HeadReader
from hf_lrp.links.words import WordPair, Words, read_word_weights
from hf_lrp.results.alignment import Links, score_alignments

__all__ = ["GoldPair", "Words", "find_heads", "heads_by_gold", "link_heads"]

FIRST = 4  # heads by agreement that make the first links
HEADS = 12  # that are taken
ROUNDS = 2  # of rating heads by the links of the best so far
POWER = 4  # of the rating, by which a head's weights count
SENTENCES = 200  # to find heads on
# How links may be read where gold links choose it.
CHOICES = tuple(
    Extraction(mutual, other, ratio)
    for mutual, other, ratio in product(
        (0.1, 0.15, 0.2, 0.25, 0.3, 0.35), (0.25, 0.3, 0.35, 0.4), (0.6, 0.7, 0.8, 0.9)
    )
    if mutual <= other
)


class GoldPair(NamedTuple):
    """A pair with its gold links; sure links are possible too."""

    source: Text | str
    target: Text | str
    sure: Links
    possible: Links


def find_heads(
    reader: HeadReader, sources: Sequence[Text | str], targets: Sequence[Text | str], count: int = HEADS
) -> LinkHeads:
    """Heads and steps found by agreement on these pairs, the best first; never one head at both steps."""
    candidates = all_heads(reader.blocks)
    pairs = [pair for _, pair in read_word_weights(reader, sources, targets, candidates)]
    agreement = torch.stack([mutual_best(pair.weights) for pair in pairs]).mean(0)
    heads = LinkHeads(tuple(candidates[place] for place in best_heads(agreement, candidates, FIRST)))
    for _ in range(ROUNDS):
        places = [candidates.index(head) for head in heads.heads]
        consensus = [_links(heads.combine(pair.weights[places]), DEFAULT) for pair in pairs]
        if not any(consensus):
            raise ValueError(_no_links(len(pairs)))
        heads = _choose(_rate(pairs, consensus, consensus), candidates, count, "agreement", len(pairs))
    return heads


def heads_by_gold(reader: HeadReader, gold: Sequence[GoldPair], count: int = HEADS) -> LinkHeads:
    """Heads and steps chosen by gold links, the best first; never one head at both steps."""
    if not gold:
        raise ValueError("gold is empty: give pairs with their links, or None to find heads without.")
    candidates = all_heads(reader.blocks)
    sources, targets = [pair.source for pair in gold], [pair.target for pair in gold]
    found = list(read_word_weights(reader, sources, targets, candidates))
    sure, possible = ([getattr(gold[number], name) for number, _ in found] for name in ("sure", "possible"))
    pairs = [pair for _, pair in found]
    heads = _choose(_rate(pairs, sure, possible), candidates, count, "gold", len(gold))
    places = [candidates.index(head) for head in heads.heads]
    together = [heads.combine(pair.weights[places]) for pair in pairs]

    def error_rate(how: Extraction) -> float:
        return score_alignments([_links(weights, how) for weights in together], sure, possible).error_rate

    return replace(heads, how=min(CHOICES, key=error_rate))


def link_heads(reader: HeadReader, sources: Sequence[Text | str], targets: Sequence[Text | str]) -> LinkHeads:
    """The heads that the model's generation config names, or else those found on the first of these pairs."""
    saved = saved_heads(reader.model)
    return find_heads(reader, sources[:SENTENCES], targets[:SENTENCES]) if saved is None else saved


def _links(weights: Tensor, how: Extraction) -> set[tuple[int, int]]:
    """Links by weights [target words, source words] alone."""
    return read_links(link_strengths(weights), how)


def _rate(pairs: Sequence[WordPair], sure: Sequence[Links], possible: Sequence[Links]) -> Tensor:
    """1 − error rate of each head's own links: [heads]."""
    heads = range(len(pairs[0].weights))
    each = [[read_links(strengths, DEFAULT) for strengths in link_strengths(pair.weights)] for pair in pairs]
    rates = [score_alignments([links[head] for links in each], sure, possible).error_rate for head in heads]
    return 1 - torch.tensor(rates)


def best_heads(ratings: Tensor, candidates: Sequence[Head], count: int) -> list[int]:
    """Places of the candidates with the highest ratings, each head at one step only."""
    chosen: dict[tuple[int, int], int] = {}
    for place in ratings.argsort(descending=True, stable=True).tolist():
        chosen.setdefault(candidates[place][:2], place)
    return list(chosen.values())[:count]


def _choose(ratings: Tensor, candidates: Sequence[Head], count: int, found: str, pairs: int) -> LinkHeads:
    best = best_heads(ratings, candidates, count)
    if ratings[best[0]] <= 0:
        raise ValueError(_no_links(pairs))
    kept = [place for place in best if ratings[place] > 0]
    weights = (ratings[kept] / ratings[best[0]]) ** POWER
    return LinkHeads(tuple(candidates[place] for place in kept), found, pairs, tuple(weights.tolist()))


def _no_links(pairs: int) -> str:
    return (
        f"None of the model's heads links any word on the {pairs} pairs given: are these translations of each other, "
        "in the languages of the model?"
    )
