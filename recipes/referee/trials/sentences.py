"""Sources and translations as a model reads them, so that what it reads can be changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from hf_lrp.kinds.kind import Asked
from hf_lrp.kinds.table import kind_of
from hf_lrp.models.families import family_of
from hf_lrp.models.vocabulary import Vocabulary
from trials.subjects import Subject

GREEDY = {"num_beams": 1, "do_sample": False}
TOGETHER = 8  # sentences that are translated at a time


@dataclass(frozen=True)
class Sentence:
    """One source with a target.

    Attributes:
        encoder: the encoder's ids; empty for a model that is a decoder only.
        decoder: the decoder's ids up to the last that predicts, prompt and start included.
        given: how many of these come before the target's first.
        target: the target's ids.
        columns: where each source token of a result stands: in ``encoder``, or else in ``decoder``.
        removable: the source tokens of a result that are no special tokens.
        other_source, other_target: for each token, one of another sentence, to put in its place.
        unknown: the target's token that stands for no known text.
    """

    encoder: tuple[int, ...]
    decoder: tuple[int, ...]
    given: int
    target: tuple[int, ...]
    columns: tuple[int, ...]
    removable: tuple[int, ...]
    other_source: tuple[int, ...] = ()
    other_target: tuple[int, ...] = ()
    unknown: int = 0

    @property
    def source(self) -> tuple[int, ...]:
        """Ids of the source tokens of a result."""
        holder = self.encoder or self.decoder
        return tuple(holder[column] for column in self.columns)


def translate(subject: Subject, texts: Sequence[str]) -> list[list[int]]:
    """What the model writes itself, greedily, as ids with the end."""
    with torch.no_grad():
        written = _read(subject, texts).generate(subject.explainer.model, TOGETHER, dict(GREEDY), True)
    return [prefix.ids.tolist() for prefix in written]


def as_texts(subject: Subject, targets: Sequence[Sequence[int]]) -> list[str]:
    """Targets as readers see them."""
    tokenizer: Any = subject.explainer.tokenizer
    return [str(tokenizer.decode(list(ids), skip_special_tokens=True)).strip() for ids in targets]


def read_sentences(subject: Subject, texts: Sequence[str], targets: Sequence[Sequence[int]]) -> list[Sentence]:
    """Sources and targets, with tokens of other sentences drawn for them."""
    reading = _read(subject, texts)
    prefixes, _ = reading.read_targets([list(ids) for ids in targets])
    tokenizer: Any = subject.explainer.tokenizer
    special = set(tokenizer.all_special_ids)
    _, unknown = Vocabulary(subject.explainer.model, subject.explainer.tokenizer).unknown
    encodes = family_of(subject.explainer.model).encoder is not None
    sentences = []
    for number, (item, prefix) in enumerate(zip(reading.sources.items, prefixes, strict=True)):
        ids = tuple(item.tolist())
        columns = range(len(ids)) if encodes else reading.prompts[number].places["source"]
        removable = tuple(column for column, i in enumerate(ids) if i not in special)
        decoder, target = tuple(prefix.decoder_ids.tolist()), tuple(prefix.ids.tolist())
        own = (ids if encodes else (), decoder, len(prefix.prompt), target, tuple(columns), removable)
        sentences.append(Sentence(*own))
    return [
        replace(sentence, unknown=unknown, **_others(number, sentences, special))
        for number, sentence in enumerate(sentences)
    ]


def _read(subject: Subject, texts: Sequence[str]) -> Any:
    model, tokenizer = subject.explainer.model, subject.explainer.tokenizer
    asked = Asked(model, Vocabulary(model, tokenizer), list(texts), subject.prompt, None, {})
    return kind_of(model).read(asked)


def _others(number: int, sentences: Sequence[Sentence], special: set[int]) -> dict[str, tuple[int, ...]]:
    """Tokens for those of one sentence, drawn from all other sentences."""
    own, rng = sentences[number], np.random.default_rng(number)
    rest = [sentence for place, sentence in enumerate(sentences) if place != number]
    sources = np.array([sentence.source[column] for sentence in rest for column in sentence.removable])
    targets = np.array([i for sentence in rest for i in sentence.target if i not in special])
    return {
        "other_source": tuple(_another(rng, sources, i) for i in own.source),
        "other_target": tuple(_another(rng, targets, i) for i in own.target),
    }


def _another(rng: np.random.Generator, pool: np.ndarray, own: int) -> int:
    """A token that is drawn as often as it occurs, and is not this one."""
    return int(rng.choice(pool[pool != own]))
