"""How far a translation covers its source, and how far the source supports it: by token, by word and by sentence.

All of it comes from batched forward passes. Of a source token, its coverage is the largest weight that the link
heads together give it at any step; of a target token, its support is its log-probability. `docs/score.md` says what
they find.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hf_lrp.links.erasure import erasure, log_probabilities
from hf_lrp.links.heads import Head
from hf_lrp.links.weights import HeadReader, PairsRead
from hf_lrp.models.words import detect_marking, group_words, join_words, looks_special

OTHERS = 4  # sources that a translation is compared with, for ratios


@dataclass(frozen=True)
class Measures:
    """Measures of the words of both sides.

    Attributes:
        erasure: source words by how much the translation's log-probability falls where they are hidden, which takes a
            pass for each token; else by the largest weight that the link heads together give them at any step.
        ratio: target words by their log-probability over its mean with four other sources, which takes four passes
            more; else by their log-probability.
    """

    erasure: bool = False
    ratio: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """Names of the measures of source and of target words."""
        return "erasure" if self.erasure else "coverage", "ratio" if self.ratio else "log-probability"


class TokenSupport(NamedTuple):
    """Of one pair: the coverage of each source token, [S], and the log-probability of each target token, [T]."""

    coverage: Tensor
    log_probability: Tensor


def token_coverage(weights: Tensor) -> Tensor:
    """The largest weight of each source token over the steps, all heads together: [S] of [heads, T, S]."""
    return weights.float().mean(0).amax(0)


def token_support(reader: HeadReader, pairs: PairsRead, heads: Sequence[Head]) -> Iterator[tuple[int, TokenSupport]]:
    """The number of each pair and what one forward pass shows of its tokens; pairs of like length together."""
    for number, found in reader.weights(pairs, heads, log_probability=True):
        assert found.log_probability is not None
        yield number, TokenSupport(token_coverage(found.weights), found.log_probability)


def ratios(reader: HeadReader, pairs: PairsRead, others: Sequence[PairsRead]) -> list[Tensor]:
    """By pair and target token: log-probability over its mean with other sources, [T].

    Args:
        others: the same targets with other sources.
    """
    alone = range(len(pairs.prefixes))
    own = dict(log_probabilities(reader, pairs, [(number, None) for number in alone]))
    elsewhere = [dict(log_probabilities(reader, each, [(number, None) for number in alone])) for each in others]
    return [own[n] - torch.stack([found[n] for found in elsewhere]).mean(0) for n in alone]


# ---- words


@dataclass(frozen=True)
class Words:
    """The words of one side of a pair, special tokens aside, each with its measure.

    Attributes:
        texts: the words.
        tokens: the numbers of each word's tokens.
        values: the measure of each word.
    """

    texts: tuple[str, ...]
    tokens: tuple[tuple[int, ...], ...]
    values: tuple[float, ...]


def group_values(tokens: Sequence[str], special: Sequence[bool], values: Tensor) -> Words:
    """Words with the means of their tokens' values."""
    numbers = group_words(tokens, special)
    texts = join_words(tuple(tokens), numbers, detect_marking(tokens))
    by_token = values.double().numpy()
    members = [tuple(i for i, of in enumerate(numbers) if of == word) for word in range(len(texts))]
    kept = [
        (text, own)
        for text, own in zip(texts, members, strict=True)
        if not looks_special(text) and not all(special[i] for i in own)
    ]
    return Words(
        tuple(text for text, _ in kept),
        tuple(own for _, own in kept),
        tuple(float(by_token[list(own)].mean()) for _, own in kept),
    )


@dataclass(frozen=True)
class Support:
    """How a translation and its source go together.

    Attributes:
        coverage: the mean over the source's tokens of their coverage.
        log_probability: the mean over the translation's tokens, the end of the sentence included.
        source, target: words with their measures.
    """

    coverage: float
    log_probability: float
    source: Words
    target: Words


def measure_pairs(
    reader: HeadReader,
    pairs: PairsRead,
    heads: Sequence[Head],
    measures: Measures,
    others: Sequence[PairsRead] = (),
) -> list[Support]:
    """Support of the words of each pair.

    Args:
        others: for ratios, the same targets with other sources.
    """
    found = dict(token_support(reader, pairs, heads))
    each = [found[number] for number in range(len(pairs.prefixes))]
    left_out = erasure(reader, pairs) if measures.erasure else [one.coverage for one in each]
    supported = ratios(reader, pairs, others) if measures.ratio else [one.log_probability for one in each]
    return [
        _support(reader, pairs, number, one, left_out[number], supported[number]) for number, one in enumerate(each)
    ]


def _support(
    reader: HeadReader, pairs: PairsRead, number: int, found: TokenSupport, left_out: Tensor, supported: Tensor
) -> Support:
    described, target = pairs.reading.sources.describe(pairs.reading.sources.items[number]), pairs.prefixes[number].ids
    special = reader.vocabulary.is_special(described.ids)
    text = found.coverage[[not no_text for no_text in special]]
    return Support(
        coverage=float((text if len(text) else found.coverage).double().mean()),
        log_probability=float(found.log_probability.double().mean()),
        source=group_values(described.tokens, special, left_out),
        target=group_values(
            reader.vocabulary.tokens(target, "target"), reader.vocabulary.is_special(target), supported
        ),
    )


def read_others(
    reader: HeadReader, everything: Sequence[str], sources: Sequence[str], targets: Sequence[Any]
) -> list[PairsRead]:
    """The same targets with other sources, up to four, taken from all sources at even distances."""
    different = list(dict.fromkeys(everything))
    count = min(OTHERS, len(different) - 1)
    if count < 1:
        raise ValueError("A ratio compares with other sources, and there is one source only: leave the ratio out.")
    place = {source: number for number, source in enumerate(different)}
    steps = [(n + 1) * len(different) // (count + 1) for n in range(count)]
    return [
        reader.read([different[(place[source] + step) % len(different)] for source in sources], list(targets))
        for step in steps
    ]
