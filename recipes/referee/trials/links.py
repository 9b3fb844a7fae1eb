"""Word links read from a method's values, against links that people made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hf_lrp.links.aligner import Aligner
from hf_lrp.links.extraction import DEFAULT, link_strengths, read_links, word_weights
from hf_lrp.links.texts import Text
from hf_lrp.links.weights import HeadReader
from hf_lrp.links.words import Words, written
from hf_lrp.results import alignment
from trials.subjects import Subject

PAIRS = 60  # of a file, from the first on that is not too long
LONGEST = 20  # words on either side
PURPOSE_BUILT = "hf_lrp.align"
STEPS = ("predicts", "reads")  # a target word has the values of the step that predicts it, or of that which reads it

Link = tuple[int, int]


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation, with links that are sure, and links that are possible; the sure among them.

    line: of the file, from 0.
    """

    line: int
    source: Text
    target: Text
    sure: frozenset[Link]
    possible: frozenset[Link]


def read_pairs(path: Path) -> list[Pair]:
    """Lines of source words, target words, and links `i-j` (sure) and `ipj` (possible), parted by tabs."""
    pairs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        source, target, links = line.split("\t")
        found: dict[str, set[Link]] = {"-": set(), "p": set()}
        for link in links.split():
            mark = "p" if "p" in link else "-"
            first, second = link.split(mark)
            found[mark].add((int(first), int(second)))
        if max(len(source.split()), len(target.split())) <= LONGEST:
            sure, possible = frozenset(found["-"]), frozenset(found["-"] | found["p"])
            pairs.append(Pair(number, Text.of_words(source.split()), Text.at_spaces(target), sure, possible))
    return pairs[:PAIRS]


class GoldPairs:
    """A subject's pairs as its model reads them."""

    def __init__(self, subject: Subject) -> None:
        assert subject.gold is not None
        self.pairs = read_pairs(Path(subject.gold))
        self._lines = len(Path(subject.gold).read_text(encoding="utf-8").splitlines())
        self._reader = HeadReader(subject.explainer.model, subject.explainer.tokenizer, subject.prompt)
        self._read = self._reader.read(
            written([pair.source for pair in self.pairs]), written([pair.target for pair in self.pairs])
        )

    def texts(self, number: int) -> tuple[str, list[int]]:
        """The source, and the ids of the target."""
        return self.pairs[number].source.text, self._read.prefixes[number].ids.tolist()

    def count(self, number: int, values: Tensor) -> dict[str, dict[str, list[int]]]:
        """What of the links is right that values [T, S] give, for each of `STEPS`."""
        pair = self.pairs[number]
        words = Words(self._reader, self._read, number, pair.source, pair.target)
        rows = {"predicts": values, "reads": torch.cat([values[1:], values[-1:]])}
        weights = {step: word_weights(rows[step].clamp(min=0), words.target, words.source) for step in STEPS}
        return {step: self._right(number, read_links(link_strengths(weights[step]), DEFAULT)) for step in STEPS}

    def by_aligner(self, path: Path) -> list[dict[str, dict[str, list[int]]]]:
        """The same of links in a file, one line for each of the gold file's, whatever step a method would take."""
        found = alignment.read_links(path).sure
        if len(found) != self._lines:
            raise SystemExit(f"{path} has {len(found)} lines, but the gold file {self._lines}: these are other pairs.")
        return [dict.fromkeys(STEPS, self._right(n, set(found[pair.line]))) for n, pair in enumerate(self.pairs)]

    def _right(self, number: int, found: set[Link]) -> dict[str, list[int]]:
        pair = self.pairs[number]
        return {
            "in_sure": [len(found & pair.sure)],
            "in_possible": [len(found & pair.possible)],
            "links": [len(found)],
            "sure": [len(pair.sure)],
        }

    def purpose_built(self, subject: Subject) -> list[dict[str, dict[str, list[int]]]]:
        """The same of the links that `hf_lrp.align` makes, its heads found on the pairs of the development half."""
        aligner = Aligner(subject.explainer.model, subject.explainer.tokenizer, prompt=subject.prompt)
        sources, targets = ([getattr(pair, side) for pair in self.pairs] for side in ("source", "target"))
        aligner.find_heads(sources[::2], targets[::2])
        aligned = aligner.align(sources, targets)
        return [dict.fromkeys(STEPS, self._right(number, one.links)) for number, one in enumerate(aligned)]
