"""The user's verb for word links: `align`, and an `Aligner` that is made once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_lrp.data.warning import warn
from hf_lrp.links.agreement import SENTENCES, GoldPair, find_heads, heads_by_gold
from hf_lrp.links.alignment import Alignment
from hf_lrp.links.extraction import read_links
from hf_lrp.links.heads import Head, LinkHeads, saved_heads
from hf_lrp.links.texts import Text, read_texts
from hf_lrp.links.weights import HeadReader
from hf_lrp.links.words import WordPair, read_word_weights
from hf_lrp.models.loading import load
from hf_lrp.results.alignment import parse_links

FEW = 20  # pairs: heads found on fewer are doubtful
CHUNK = 1024  # pairs that are sorted by length together

Gold = Iterable[tuple[Any, Any, Any]]


def align(
    model: PreTrainedModel | str | os.PathLike[str],
    tokenizer: PreTrainedTokenizerBase | None,
    sources: Sequence[Any],
    targets: Sequence[Any],
    *,
    heads: LinkHeads | Sequence[Any] | None = None,
    gold: Gold | None = None,
    reverse: tuple[Any, Any] | None = None,
    prompt: Any = None,
    progress: bool = False,
) -> list[Alignment]:
    """Links between the words of sources and translations, from the attention heads that make them.

    Takes a forward pass per pair, in batches. The model is not changed.

    Args:
        model, tokenizer: a translation model from the sources' language to the targets', as for `hf_lrp.explain`.
        sources, targets: as many of both. Each is a text, whose words are what spaces part; a list of words; or a
            `hf_lrp.Text` with the places of its words. Where a text such as Chinese has no spaces, its words are the
            tokenizer's pieces.
        heads: which heads are read, as an earlier result has them, or triples of layer, head (from 0) and step,
            "reads" or "predicts". None: those of the model's generation config (``alignment_heads``); where it
            names none, heads are found on the first 200 pairs.
        gold: pairs with known links, which choose heads and teach how links are read: triples of source, target and
            links, ``"0-0 1-2 2p1"`` or a set of pairs.
        reverse: a model of the other direction and its tokenizer: links are those of both together.
        prompt: for a model without an encoder, what the source stands in, as for `hf_lrp.explain`.
        progress: show a progress bar.
    """
    aligner = Aligner(model, tokenizer, heads=heads, reverse=reverse, prompt=prompt)
    if gold is not None:
        aligner.choose_heads(gold)
    return aligner.align(sources, targets, progress=progress)


class Aligner:
    """A translation model, and the heads of it that link words: found once, used for many texts.

    Args:
        model, tokenizer, heads, reverse, prompt: as for `align`.
    """

    def __init__(
        self,
        model: PreTrainedModel | str | os.PathLike[str],
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        heads: LinkHeads | Sequence[Any] | None = None,
        reverse: tuple[Any, Any] | None = None,
        prompt: Any = None,
    ) -> None:
        if isinstance(model, (str, os.PathLike)):
            model, own = load(model)
            tokenizer = own if tokenizer is None else tokenizer
        if tokenizer is None:
            raise ValueError("Words are linked in texts, which need the model's tokenizer: pass it.")
        self.reader = HeadReader(model, tokenizer, prompt)
        self._heads = _read_heads(heads)
        self.reverse = None if reverse is None else Aligner(*reverse)

    @property
    def heads(self) -> LinkHeads | None:
        """The heads that are read: given, found, or named by the generation config; None: none are known yet."""
        return self._heads if self._heads is not None else saved_heads(self.reader.model)

    @property
    def knows_heads(self) -> bool:
        """Whether no heads have to be found, not even those of the other direction's model."""
        return self.heads is not None and (self.reverse is None or self.reverse.heads is not None)

    @property
    def all_heads(self) -> list[LinkHeads]:
        """The heads of the model, and of the other direction's model if there is one; they can be set."""
        found = [self.heads, *([] if self.reverse is None else [self.reverse.heads])]
        return [heads for heads in found if heads is not None]

    @all_heads.setter
    def all_heads(self, heads: Sequence[LinkHeads]) -> None:
        self._heads = heads[0]
        if self.reverse is not None:
            self.reverse._heads = heads[1]

    def choose_heads(self, gold: Gold) -> LinkHeads:
        """Choose heads by pairs with known links, and how they are read; those of the other direction's model, too."""
        pairs = _read_gold(gold)
        self._heads = heads_by_gold(self.reader, pairs)
        if self.reverse is not None:
            turned = [GoldPair(p.target, p.source, _turned(p.sure), _turned(p.possible)) for p in pairs]
            self.reverse._heads = heads_by_gold(self.reverse.reader, turned)
        return self._heads

    def find_heads(self, sources: Sequence[Any], targets: Sequence[Any]) -> LinkHeads:
        """Find heads on pairs without links, up to 200; those of the other direction's model, too."""
        read = self.texts(sources[:SENTENCES], targets[:SENTENCES])
        if len(read[0]) < FEW:
            warn(
                f"heads that link words were found on {len(read[0])} pairs, which are few: find them on 100 or more "
                "with Aligner.find_heads(), and keep them with LinkHeads.save(model)."
            )
        self._heads = find_heads(self.reader, read[0], read[1])
        if self.reverse is not None:
            self.reverse._heads = find_heads(self.reverse.reader, read[1], read[0])
        return self._heads

    def align(self, sources: Sequence[Any], targets: Sequence[Any], progress: bool = False) -> list[Alignment]:
        """Links between the words of sources and translations, as `hf_lrp.align` gives them."""
        texts = self.texts(sources, targets)
        if texts[0] and not self.knows_heads:
            self.find_heads(*texts)
        total = len(texts[0]) * (1 if self.reverse is None else 2)
        with tqdm(total=total, desc="Linking", unit="pair", disable=not progress) as bar:
            chunks = range(0, len(texts[0]), CHUNK)
            return [
                each
                for at in chunks
                for each in self._align(texts[0][at : at + CHUNK], texts[1][at : at + CHUNK], bar)
            ]

    @staticmethod
    def texts(sources: Sequence[Any], targets: Sequence[Any]) -> tuple[list[Text | str], list[Text | str]]:
        """Pairs as they are read: texts with their words."""
        texts = read_texts(sources, "source"), read_texts(targets, "target")
        if len(texts[0]) != len(texts[1]):
            raise ValueError(f"{len(texts[0])} sources, but {len(texts[1])} targets: give as many of both.")
        return texts

    def _align(self, sources: list[Text | str], targets: list[Text | str], bar: Any) -> list[Alignment]:
        pairs = self._weigh(sources, targets, bar)
        back: list[WordPair] | None = None
        if self.reverse is not None:
            words = [p.target for p in pairs], [p.source for p in pairs]
            back = self.reverse._weigh(*words, bar)
        heads, results = self.heads, []
        assert heads is not None
        for number, pair in enumerate(pairs):
            strengths = pair.weights
            if back is not None:
                strengths = (strengths + back[number].weights.T) / 2
            links = {(s, t): strengths[t, s].item() for s, t in sorted(read_links(strengths, heads.how))}
            results.append(Alignment(pair.source, pair.target, links, heads))
        return results

    def _weigh(self, sources: Sequence[Text | str], targets: Sequence[Text | str], bar: Any) -> list[WordPair]:
        """Each pair with the strengths of its links, [target words, source words]."""
        heads = self.heads
        assert heads is not None
        found = dict(read_word_weights(self.reader, sources, targets, heads.heads, bar.update))
        pairs = [found[number] for number in range(len(sources))]
        return [pair._replace(weights=heads.strengths(pair.weights)) for pair in pairs]


def _read_heads(given: LinkHeads | Sequence[Any] | None) -> LinkHeads | None:
    if given is None or isinstance(given, LinkHeads):
        return given
    try:
        return LinkHeads(tuple(Head(int(layer), int(head), *step) for layer, head, *step in given))
    except TypeError as error:
        raise TypeError(f"heads must be LinkHeads or triples such as (2, 5, 'reads'), got {given!r:.80}.") from error


def _read_gold(gold: Gold) -> list[GoldPair]:
    pairs = []
    for number, row in enumerate(gold):
        try:
            source, target, links = row
        except (TypeError, ValueError):
            raise TypeError(f"gold must be triples of source, target and links, but item {number} is none.") from None
        texts = read_texts([source], "source"), read_texts([target], "target")
        sure, possible = parse_links(links) if isinstance(links, str) else (set(links), set(links))
        pairs.append(GoldPair(texts[0][0], texts[1][0], sure, possible))
    return pairs


def _turned(links: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    return {(target, source) for source, target in links}
