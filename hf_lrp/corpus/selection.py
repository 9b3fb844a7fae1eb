"""The evaluation set: pairs of a corpus with given numbers of tokens, as in the paper, or of mixed lengths."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from hf_lrp.corpus.manifest import RunError
from hf_lrp.data.json_files import read_json
from hf_lrp.data.warning import warn

Lengths: TypeAlias = "Literal['auto'] | tuple[int, int] | None"
# From source and target texts to the numbers of their tokens.
CountTokens: TypeAlias = "Callable[[Sequence[str], Sequence[str]], Iterable[tuple[int, int]]]"

_BATCH = 1000
_SIDES = ("source", "target")
_FEWEST = 100  # pairs of the same lengths
_LONGEST = 2**16 - 1  # what an array of two-byte numbers holds


@dataclass(frozen=True)
class Request:
    """Which pairs are asked for.

    Attributes:
        lengths: (S, T): pairs with S source and T target tokens; ``"auto"``: the most frequent of such pairs of
            numbers; None: mixed lengths.
        number: how many at most; they are drawn with ``seed``.
        longest: pairs with a side of more tokens are left out.
    """

    lengths: Lengths
    number: int
    seed: int
    longest: int | None

    def __post_init__(self) -> None:
        if self.number < 1:
            raise ValueError(f"number must be at least 1, got {self.number}.")
        if self.lengths in ("auto", None):
            return
        if isinstance(self.lengths, str) or len(self.lengths) != 2 or min(self.lengths) < 1:
            raise ValueError(
                f"lengths must be 'auto', None for mixed ones, or the numbers of source and target tokens such as "
                f"(20, 23), got {self.lengths!r}."
            )


class Pair(NamedTuple):
    """A pair of texts with its number in the corpus and its numbers of tokens."""

    number: int
    source: str
    target: str
    source_length: int
    target_length: int


@dataclass(frozen=True)
class Selection:
    """An evaluation set.

    Numbers of tokens count what `explain` shows: every source token including the end of the sentence and language
    tokens (``len(source_tokens)``), every target token including the end of the sentence, but not the start token and
    tokens that are forced (``len(target_tokens)``).

    Attributes:
        lengths: (S, T) if all pairs have these; None for mixed ones.
        request: what was asked for.
        corpus: the number of all pairs, and a SHA-256 of their texts.
        pairs: in the order of the corpus; mixed ones from short to long, so that neighbours cost the same.
    """

    lengths: tuple[int, int] | None
    request: Request
    corpus: dict[str, Any]
    pairs: tuple[Pair, ...]

    def encode(self) -> bytes:
        """JSON with a line per pair."""
        head = {
            "lengths": self.lengths,
            "request": asdict(self.request),
            "corpus": self.corpus,
            "fields": Pair._fields,
        }
        lines = ",\n".join(json.dumps(pair, ensure_ascii=False) for pair in self.pairs)
        return (json.dumps(head, ensure_ascii=False)[:-1] + f', "pairs": [\n{lines}\n]}}\n').encode()

    @classmethod
    def load(cls, path: Path) -> Selection:
        """Read a file with what `encode` gave."""
        content = read_json(path)
        request = content["request"] | {"lengths": _tuple(content["request"]["lengths"])}
        pairs = tuple(Pair(*pair) for pair in content["pairs"])
        return cls(_tuple(content["lengths"]), Request(**request), content["corpus"], pairs)


def _tuple(lengths: Any) -> Any:
    return tuple(lengths) if isinstance(lengths, list) else lengths


def select_pairs(pairs: Any, count_tokens: CountTokens, request: Request) -> Selection:
    """Choose pairs of a corpus; pairs with an empty side are never chosen.

    The corpus is read once, a stream twice; four bytes per pair are kept meanwhile.

    Args:
        pairs: a dataset with text columns ``source`` and ``target``, such as `load_pairs` gives, or a sequence of
            (source, target) texts.
    """
    corpus, counts = _measure(pairs, count_tokens)
    fits = (counts > 0).all(1) & (counts <= (request.longest or _LONGEST)).all(1)
    lengths = request.lengths
    if lengths == "auto":
        lengths = _frequent_lengths(counts[fits], request) if fits.any() else None
    if lengths is not None:
        fits &= (counts == lengths).all(1)
    places = np.flatnonzero(fits)
    if not len(places):
        raise _nothing_fits(corpus, counts, request)
    if len(places) > request.number:
        draw = np.random.default_rng(request.seed)
        places = np.sort(draw.choice(places, request.number, replace=False))
    elif len(places) < request.number:
        what = "that fit" if lengths is None else f"with {lengths[0]} source and {lengths[1]} target tokens"
        warn(
            f"the corpus has {len(places):,} pairs {what}, fewer than the {request.number:,} asked for; all are taken."
        )
    chosen = _take(pairs, places, counts)
    if lengths is None:
        chosen.sort(key=lambda pair: (pair.target_length, pair.source_length))  # keeps the order of equal ones
    return Selection(lengths, request, corpus, tuple(chosen))


def _frequent_lengths(counts: np.ndarray, request: Request) -> tuple[int, int] | None:
    """The most frequent lengths, or None, which is mixed ones, where only few pairs have them; warns of that."""
    (lengths, times), *_ = _most_frequent(counts, 1)
    if times >= min(_FEWEST, request.number, len(counts)):
        return lengths
    warn(
        f"only {times:,} of {len(counts):,} pairs have the most frequent lengths, {lengths[0]} source and "
        f"{lengths[1]} target tokens, so mixed lengths are taken, with relative positions. Ask for these lengths to "
        "have them all the same."
    )
    return None


def describe_corpus(pairs: Any) -> dict[str, Any]:
    """The number of pairs and a SHA-256 of their texts."""
    digest = hashlib.sha256()
    number = 0
    for sources, targets, _ in _batches(pairs):
        _add_to(digest, sources, targets)
        number += len(sources)
    return {"pairs": number, "sha256": digest.hexdigest()}


def _measure(pairs: Any, count_tokens: CountTokens) -> tuple[dict[str, Any], np.ndarray]:
    """Description of `describe_corpus`, and numbers of tokens [pairs, 2], 0 where a side is empty."""
    digest = hashlib.sha256()
    counts = array("H")
    for sources, targets, _ in _batches(pairs):
        _add_to(digest, sources, targets)
        full = [row for row, texts in enumerate(zip(sources, targets, strict=True)) if all(map(str.strip, texts))]
        measured = np.zeros((len(sources), 2), np.uint16)
        if full:
            found = count_tokens([sources[row] for row in full], [targets[row] for row in full])
            measured[full] = np.minimum(list(found), _LONGEST)
        counts.frombytes(measured.tobytes())
    if not len(counts):
        raise RunError("The corpus is empty: give data with at least one pair of sentences.")
    corpus = {"pairs": len(counts) // 2, "sha256": digest.hexdigest()}
    return corpus, np.frombuffer(counts, np.uint16).reshape(-1, 2)


def _add_to(digest: Any, sources: Sequence[str], targets: Sequence[str]) -> None:
    digest.update("".join(f"{s}\0{t}\0" for s, t in zip(sources, targets, strict=True)).encode())


def _most_frequent(counts: np.ndarray, number: int) -> list[tuple[tuple[int, int], int]]:
    """Pairs of lengths with how many pairs have them, the most frequent first, among equals the longer first."""
    found: Counter[int] = Counter()
    for start in range(0, len(counts), 2**20):
        part = counts[start : start + 2**20].astype(np.int64)
        both, times = np.unique(part[:, 0] * 2**16 + part[:, 1], return_counts=True)
        found.update(dict(zip(both.tolist(), times.tolist(), strict=True)))
    ordered = sorted(found.items(), key=lambda item: (-item[1], -item[0]))
    return [(divmod(both, 2**16), times) for both, times in ordered[:number]]


def _nothing_fits(corpus: dict[str, Any], counts: np.ndarray, request: Request) -> RunError:
    full = counts[(counts > 0).all(1)]
    if not len(full):
        return RunError(f"All {corpus['pairs']:,} pairs of the corpus have an empty side: give other data.")
    frequent = ", ".join(f"{s},{t} ({times:,})" for (s, t), times in _most_frequent(full, 5))
    asked = (
        [] if isinstance(request.lengths, str | None) else ["{} source and {} target tokens".format(*request.lengths)]
    )
    asked += [] if request.longest is None else [f"at most {request.longest} tokens on each side"]
    return RunError(
        f"None of the {corpus['pairs']:,} pairs has {' and '.join(asked)}, the end of the sentence included. The most "
        f"frequent lengths (source,target) are: {frequent}. Ask for one of these, 'auto' or mixed lengths."
    )


# ---- reading


def _batches(pairs: Any) -> Iterator[tuple[list[str], list[str], Sequence[int | None]]]:
    """Sources, targets, an empty text where there is none, and their numbers where the data has them."""
    if hasattr(pairs, "column_names"):
        _require_columns(pairs)
        for batch in pairs.iter(batch_size=_BATCH):
            sources, targets = ([text or "" for text in batch[side]] for side in _SIDES)
            yield sources, targets, batch.get("example", [None] * len(sources))
        return
    rows = enumerate(pairs)
    while batch := list(islice(rows, _BATCH)):
        for number, pair in batch:
            if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
                raise RunError(f"Pair {number} is {pair!r:.80}, not a source and a target text.")
        yield [pair[0] for _, pair in batch], [pair[1] for _, pair in batch], [None] * len(batch)


def _require_columns(pairs: Any) -> None:
    columns = pairs.column_names or list(next(iter(pairs), _SIDES))
    missing = [side for side in _SIDES if side not in columns]
    if missing:
        raise RunError(
            f"The data has no column {' and no '.join(map(repr, missing))}, only {', '.join(map(repr, columns))}: "
            "read it with load_pairs, which is told the columns' names, or rename them."
        )


def _take(pairs: Any, places: np.ndarray, counts: np.ndarray) -> list[Pair]:
    """The pairs at these places, which are in order."""
    if hasattr(pairs, "select") and hasattr(pairs, "__len__"):  # a table, of which only these rows are read
        rows: Iterable = zip(places.tolist(), _rows(pairs.select(places)), strict=True)
    else:
        wanted = set(places.tolist())
        rows = ((place, row) for place, row in enumerate(_rows(pairs)) if place in wanted)
    return [
        Pair(place if number is None else int(number), source, target, *counts[place].tolist())
        for place, (source, target, number) in rows
    ]


def _rows(pairs: Any) -> Iterator[tuple[str, str, int | None]]:
    for batch in _batches(pairs):
        yield from zip(*batch, strict=True)
