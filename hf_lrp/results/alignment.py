"""Word alignment: links between source and target words from contributions, files of links, and their error rate."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch

from hf_lrp.data.files import write_atomically
from hf_lrp.data.warning import warn
from hf_lrp.models.words import group_at_spaces, lacks_spaces, looks_special

if TYPE_CHECKING:
    from hf_lrp.results.contributions import Contributions

Links: TypeAlias = AbstractSet[tuple[int, int]]  # pairs of word numbers, source and target, from 0

_LINK = re.compile(r"(\d+)([-?p])(\d+)")


class GoldLinks(NamedTuple):
    """Links per sentence: those that must be found, and those that may be; the sure ones are possible too."""

    sure: list[Links]
    possible: list[Links]


class AlignmentScores(NamedTuple):
    """Alignment error rate, precision and recall over a corpus, each from 0 to 1."""

    error_rate: float
    precision: float
    recall: float


def align_words(contributions: Contributions) -> set[tuple[int, int]]:
    """See `Contributions.alignment`."""
    c = contributions
    warn(
        "Contributions.alignment() links words worse than hf_lrp.align(model, tokenizer, sources, targets) (error "
        "rates of OPUS-MT zh-en: .40 and .12), which reads the attention heads that link words and needs no "
        "contributions: use that."
    )
    _check(c)
    source_words, target_words = (_number_words(c, side) for side in ("source", "target"))
    if all(word is None for word in source_words):
        return set()
    # Some source tokens, such as punctuation, have large shares in every prediction. What tells where a target token
    # comes from is which source token matters more for it than for others.
    shares = c.source.double() / c.source_total.double()[:, None]
    mean = shares.mean(0)
    relative = torch.where(mean > 0, shares / mean, 0.0)
    is_text = torch.tensor([word is not None for word in source_words])
    largest = relative.masked_fill(~is_text, -torch.inf).argmax(1).tolist()
    links = zip((source_words[i] for i in largest), target_words, strict=True)
    return {(source, target) for source, target in links if source is not None and target is not None}


def _number_words(c: Contributions, side: str) -> tuple[int | None, ...]:
    """The word that each token is of: at word level the word itself, else what spaces part; None: no text."""
    tokens: tuple[str, ...] = getattr(c, f"{side}_tokens")
    special = [looks_special(token) for token in tokens]
    if c.level == "word":
        return tuple(None if is_special else n for n, is_special in enumerate(special))
    if lacks_spaces(tokens, special):
        warn(f"the {side} has no spaces between its words, so alignment() takes its pieces for words.")
    return group_at_spaces(tokens, special)


def _check(c: Contributions) -> None:
    if len(c) < len(c.target_tokens):
        raise ValueError(f"These are {len(c)} of {len(c.target_tokens)} steps: call alignment() on the whole result.")
    same_ids = c.predicted_ids.ndim == 1 and torch.equal(c.predicted_ids, c.target_ids)
    if not same_ids or (c.level == "word" and c.predicted_tokens != c.target_tokens):  # words have one id of several
        raise ValueError(
            "These contributions explain other tokens than those of the target, so they do not say what the target's "
            "words were made from. Compute them with explain(..., predict='target')."
        )
    if c.source_tokens == tuple(map(str, c.source_ids.tolist())):
        raise ValueError(
            "These contributions have ids for tokens, so words are not known: give explain() a tokenizer."
        )


def read_links(path: str | os.PathLike[str], first: int = 0) -> GoldLinks:
    """Links of a file in Pharaoh format, one sentence per line: `0-0 1-2` sure, `2?1` or `2p1` possible.

    `first`: the number that the file gives to the first word of a sentence; some files count from 1.
    """
    gold = GoldLinks([], [])
    for number, line in enumerate(Path(path).read_text(encoding="utf-8-sig").splitlines(), 1):
        try:
            sure, possible = parse_links(line, first)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        gold.sure.append(sure)
        gold.possible.append(possible)
    return gold


def parse_links(line: str, first: int = 0) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Sure and possible links of one sentence in Pharaoh format; the sure ones are possible too."""
    sure, possible = set(), set()
    for text in line.split():
        link = _LINK.fullmatch(text)
        if link is None:
            raise ValueError(f"{text!r} is not a link such as 0-1, or 0?1 for a possible one.")
        pair = int(link[1]) - first, int(link[3]) - first
        if min(pair) < 0:
            raise ValueError(f"{text!r}, but words are said to count from {first}.")
        possible.add(pair)
        if link[2] == "-":
            sure.add(pair)
    return sure, possible


def write_links(path: str | os.PathLike[str], alignments: Iterable[Links]) -> None:
    """Write links in Pharaoh format, one sentence per line, words counted from 0."""
    lines = (" ".join(f"{source}-{target}" for source, target in sorted(links)) for links in alignments)
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())


def score_alignments(
    predicted: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None
) -> AlignmentScores:
    """Scores over all links of a corpus, where A is predicted, S sure and P possible (Och and Ney, 2003).

    Error rate 1 - (|A∩S| + |A∩P|) / (|A| + |S|), precision |A∩P| / |A|, recall |A∩S| / |S|. Sure links count as
    possible, whether `possible` has them or not; without it, only sure links are possible. A precision or recall of
    nothing is nan.
    """
    possible = sure if possible is None else possible
    numbers = {"predicted": len(predicted), "sure": len(sure), "possible": len(possible)}
    if len(set(numbers.values())) > 1:
        told = ", ".join(f"{count} {name}" for name, count in numbers.items())
        raise ValueError(f"The numbers of sentences differ ({told}): give the links of the same sentences.")
    found_sure = sum(len(a & s) for a, s in zip(predicted, sure, strict=True))
    found = sum(len(a & (s | p)) for a, s, p in zip(predicted, sure, possible, strict=True))
    a_size, s_size = sum(map(len, predicted)), sum(map(len, sure))
    if a_size + s_size == 0:
        raise ValueError("There are neither predicted nor sure links: there is nothing to score.")
    return AlignmentScores(
        error_rate=1 - (found_sure + found) / (a_size + s_size),
        precision=found / a_size if a_size else float("nan"),
        recall=found_sure / s_size if s_size else float("nan"),
    )


def alignment_error_rate(
    predicted: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None
) -> float:
    """The error rate of `score_alignments`, from 0 (all sure links and no impossible one) to 1."""
    return score_alignments(predicted, sure, possible).error_rate
