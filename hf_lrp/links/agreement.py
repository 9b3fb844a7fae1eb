"""Finding the heads that link words: without gold links, by agreement; or by gold links of some pairs.

Without gold links, heads whose best choices by row and by column agree most often make a first set of links; then each
head is rated by how well its links alone agree with these. With gold links, by how well they agree with those; and how
strong a link is, is learned from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from hf_lrp.links.extraction import DEFAULT, Extraction, link_strengths, linked, mutual_best
from hf_lrp.links.heads import Head, LinkHeads, all_heads, saved_heads
from hf_lrp.links.learned import learn
from hf_lrp.links.texts import Text
from hf_lrp.links.weights import HeadReader
from hf_lrp.links.words import read_word_weights
from hf_lrp.results.alignment import Links

SENTENCES = 200  # to find heads on
# How links may be read from probabilities, where gold links choose it.
CHOICES = tuple(
    Extraction(mutual, other, ratio)
    for mutual, other, ratio in product((0.05, 0.1, 0.2, 0.3, 0.4), (0.3, 0.4, 0.5, 0.6), (0.0, 0.3, 0.5, 0.7, 0.9))
    if mutual <= other
)


@dataclass(frozen=True)
class Search:
    """How heads are found. The defaults were chosen on halves of three sets (docs/alignment.md).

    Attributes:
        first: heads by agreement that make the first links.
        heads: that are taken.
        rounds: of rating heads by the links of the best so far; 0: the first heads are taken, each counting the same.
        power: of the rating, by which a head's weights count.
    """

    first: int = 4
    heads: int = 12
    rounds: int = 2
    power: float = 4.0


SEARCH = Search()
# Without an encoder: heads with the same keys look alike, are many, and would outvote the ones that link best.
DECODER_SEARCH = Search(first=2, heads=8, rounds=1)


class GoldPair(NamedTuple):
    """A pair with its gold links; sure links are possible too."""

    source: Text | str
    target: Text | str
    sure: Links
    possible: Links


def find_heads(reader: HeadReader, sources: Sequence[Text | str], targets: Sequence[Text | str]) -> LinkHeads:
    """Heads and steps found by agreement on these pairs, the best first; never one head at both steps."""
    candidates = all_heads(reader.blocks)
    pairs = [pair.weights for _, pair in read_word_weights(reader, sources, targets, candidates)]
    return heads_by_agreement(pairs, candidates, SEARCH if reader.has_encoder else DECODER_SEARCH)


def heads_by_agreement(pairs: Sequence[Tensor], candidates: Sequence[Head], search: Search = SEARCH) -> LinkHeads:
    """The best of the candidates, by weights [candidates, target words, source words] of each pair."""
    agreement = torch.stack([mutual_best(weights) for weights in pairs]).mean(0)
    first = tuple(candidates[place] for place in _best_heads(agreement, candidates, search.first))
    heads = LinkHeads(first, "agreement", len(pairs))
    for _ in range(search.rounds):
        places = [candidates.index(head) for head in heads.heads]
        links = [linked(link_strengths(heads.combine(weights[places])), DEFAULT) for weights in pairs]
        ratings = _rate(pairs, links, links)
        heads = _choose(ratings, candidates, search, "agreement", len(pairs))
    return heads


def heads_by_gold(reader: HeadReader, gold: Sequence[GoldPair]) -> LinkHeads:
    """Heads and steps chosen by gold links, the best first, and how links are read; never one head at both steps."""
    if not gold:
        raise ValueError("gold is empty: give pairs with their links, or None to find heads without.")
    candidates = all_heads(reader.blocks)
    sources, targets = [pair.source for pair in gold], [pair.target for pair in gold]
    found = list(read_word_weights(reader, sources, targets, candidates))
    pairs, known = [pair.weights for _, pair in found], [gold[number] for number, _ in found]
    return choose_by_gold(pairs, candidates, [pair.sure for pair in known], [pair.possible for pair in known])


def choose_by_gold(
    pairs: Sequence[Tensor], candidates: Sequence[Head], sure: Sequence[Links], possible: Sequence[Links]
) -> LinkHeads:
    """The best of the candidates by gold links, by weights [candidates, target words, source words] of each pair."""
    certain = [_mask(links, weights) for links, weights in zip(sure, pairs, strict=True)]
    allowed = [s | _mask(links, w) for s, links, w in zip(certain, possible, pairs, strict=True)]
    heads = _choose(_rate(pairs, certain, allowed), candidates, SEARCH, "gold", len(pairs))
    places = [candidates.index(head) for head in heads.heads]
    chosen = [weights[places] for weights in pairs]
    heads = replace(heads, learned=learn(chosen, [heads.combine(weights) for weights in chosen], certain, allowed))
    strengths = [heads.strengths(weights) for weights in chosen]

    def error_rate(how: Extraction) -> float:
        return _error_rates([linked(each, how)[None] for each in strengths], certain, allowed).item()

    return replace(heads, how=min(CHOICES, key=error_rate))


def link_heads(reader: HeadReader, sources: Sequence[Text | str], targets: Sequence[Text | str]) -> LinkHeads:
    """The heads that the model's generation config names, or else those found on the first of these pairs."""
    saved = saved_heads(reader.model)
    return find_heads(reader, sources[:SENTENCES], targets[:SENTENCES]) if saved is None else saved


def _mask(links: Links, weights: Tensor) -> Tensor:
    """Links as [target words, source words]."""
    mask = torch.zeros(weights.shape[-2:], dtype=torch.bool)
    for source, target in links:
        if not (0 <= source < mask.shape[1] and 0 <= target < mask.shape[0]):
            raise ValueError(
                f"Gold links have {source}-{target} where there are {mask.shape[1]} source words and {mask.shape[0]} "
                "target words, counted from 0."
            )
        mask[target, source] = True
    return mask


def _rate(pairs: Sequence[Tensor], sure: Sequence[Tensor], possible: Sequence[Tensor]) -> Tensor:
    """1 − error rate of each head's own links: [heads]."""
    return 1 - _error_rates([linked(link_strengths(weights), DEFAULT) for weights in pairs], sure, possible)


def _error_rates(found: Sequence[Tensor], sure: Sequence[Tensor], possible: Sequence[Tensor]) -> Tensor:
    """Error rates over a corpus, [n], of links [n, target words, source words] in each pair; as `score_alignments`."""
    rows = list(zip(found, sure, possible, strict=True))
    hits = torch.stack([(a & s).sum((1, 2)) + (a & p).sum((1, 2)) for a, s, p in rows]).sum(0)
    links = torch.stack([a.sum((1, 2)) + s.sum() for a, s, _ in rows]).sum(0)
    return 1 - hits / links.clamp(min=1)


def _best_heads(ratings: Tensor, candidates: Sequence[Head], count: int) -> list[int]:
    """Places of the candidates with the highest ratings, each head at one step only."""
    chosen: dict[tuple[int, int], int] = {}
    for place in ratings.argsort(descending=True, stable=True).tolist():
        chosen.setdefault(candidates[place][:2], place)
    return list(chosen.values())[:count]


def _choose(ratings: Tensor, candidates: Sequence[Head], search: Search, found: str, pairs: int) -> LinkHeads:
    best = _best_heads(ratings, candidates, search.heads)
    if ratings[best[0]] <= 0:
        raise ValueError(_no_links(pairs))
    kept = [place for place in best if ratings[place] > 0]
    weights = (ratings[kept] / ratings[best[0]]) ** search.power
    return LinkHeads(tuple(candidates[place] for place in kept), found, pairs, tuple(weights.tolist()))


def _no_links(pairs: int) -> str:
    return (
        f"None of the model's heads links any word on the {pairs} pairs given: are these translations of each other, "
        "in the languages of the model?"
    )
