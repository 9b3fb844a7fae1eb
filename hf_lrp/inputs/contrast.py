"""Contrasts by text: why this word, and not that one?"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from hf_lrp.inputs.prefixes import Prefix
from hf_lrp.models.vocabulary import Vocabulary
from hf_lrp.models.words import group_words, plain_tokens

# From a target's text and number to its ids, as the model predicts them.
Encode: TypeAlias = "Callable[[str, int], list[int]]"


class Parting(NamedTuple):
    """Where a word of a target and the other word part.

    ``words``: both, as they were given; ``step``: from 0; ``ids``: the target, and the target with the other word, up
    to the end of the word; they differ from the step on. ``note``: which pieces are compared, and which are not;
    empty where each word is one piece.
    """

    words: tuple[str, str]
    step: int
    ids: tuple[Tensor, Tensor]
    note: str

    @property
    def pair(self) -> list[int]:
        """The two ids at the step: what is compared. A word that the other one goes on from has ended there."""
        return [int(ids[self.step]) for ids in self.ids]


def is_contrast(predict: Any) -> bool:
    """Whether words are given that are to be contrasted: a mapping, or a list of mappings."""
    if isinstance(predict, Sequence) and not isinstance(predict, str):
        return bool(predict) and all(isinstance(item, Mapping) for item in predict)
    return isinstance(predict, Mapping)


def read_contrasts(
    predict: Any, target: Any, prefixes: Sequence[Prefix], single: bool, vocabulary: Vocabulary, encode: Encode
) -> list[list[Parting]]:
    """For each sentence where its written words and their alternatives part, in order.

    Args:
        predict: from words of the target to what might stand there instead, or a list of such for several sentences.
        target: what the user gave as target: its texts are used as they are.
        prefixes: the targets as ids.
        single: whether there is one sentence, which is not in a list.
        vocabulary, encode: the tokens, and how texts become ids.
    """
    tokenizer = vocabulary.tokenizer
    wanted = [predict] if isinstance(predict, Mapping) else list(predict)
    if len(wanted) != len(prefixes) or isinstance(predict, Mapping) != single:
        given = "one mapping" if isinstance(predict, Mapping) else f"a list of {len(wanted)} mappings"
        needed = "one mapping" if single else f"a list of {len(prefixes)} mappings"
        raise ValueError(
            f"predict is {given}, but {needed} such as {{'banque': 'gare'}} is needed, as for the source."
        )
    if tokenizer is None:
        raise ValueError("predict contrasts words, but there is no tokenizer: pass one, or pairs of ids per step.")
    known = [target] if isinstance(target, str) else target
    texts = known if isinstance(known, Sequence) and all(isinstance(text, str) for text in known) else None
    return [
        _read(words, _text(prefix, tokenizer) if texts is None else texts[number], prefix, vocabulary, encode, number)
        for number, (words, prefix) in enumerate(zip(wanted, prefixes, strict=True))
    ]


def _text(prefix: Prefix, tokenizer: Any) -> str:
    return str(tokenizer.decode(prefix.ids.tolist(), skip_special_tokens=True)).strip()


def _read(
    words: Mapping[str, str], text: str, prefix: Prefix, vocabulary: Vocabulary, encode: Encode, number: int
) -> list[Parting]:
    if not words:
        raise ValueError(f"predict for sentence {number} is empty: give a word of the target and another one.")
    found: dict[int, Parting] = {}
    for written, other in words.items():
        if not isinstance(written, str) or not isinstance(other, str) or not written.strip() or not other.strip():
            raise ValueError(f"predict must map words to words, got {written!r}: {other!r}.")
        step, ours, theirs = _first_difference(text, written, other, prefix, encode, number)
        if step in found:
            raise ValueError(f"Two words of sentence {number} part at the same step: contrast them one by one.")
        found[step] = _part((written.strip(), other.strip()), step, (ours, theirs), vocabulary)
    return [found[step] for step in sorted(found)]


def _part(words: tuple[str, str], step: int, given: tuple[list[int], list[int]], vocabulary: Vocabulary) -> Parting:
    ends = [max(len(ids) - _common_end(*given, step), step + 1) for ids in given]
    ours, theirs = (torch.tensor(ids[:end]) for ids, end in zip(given, ends, strict=True))
    tokens = [vocabulary.tokens(ids, "target") for ids in (ours, theirs)]
    groups = [group_words(t, vocabulary.is_special(ids)) for t, ids in zip(tokens, (ours, theirs), strict=True)]
    texts = [plain_tokens(each) for each in tokens]
    shared = max(("".join(t[g.index(g[step]) : step]) for t, g in zip(texts, groups, strict=True)), key=len)
    later = ["".join(text[step + 1 :]) for text in texts]
    if not shared and not any(later):
        return Parting(words, step, (ours, theirs), "")
    both, compared = f"“{words[0]}” and “{words[1]}”", f"“{texts[0][step]}” against “{texts[1][step]}”"
    if shared:
        said = f"{both} share “{shared}”, and the pieces after it decide: this explains {compared}"
    else:
        said = f"{both} share no first piece, so their first pieces decide: this explains {compared}"
    named = [f"“{text}” of “{word}”" for text, word in zip(later, words, strict=True) if text]
    note = f"{said}; what comes later, {' and '.join(named)}, is not compared" if named else said
    return Parting(words, step, (ours, theirs), note)


def _common_end(ours: list[int], theirs: list[int], step: int) -> int:
    """How many of the last tokens, of those from the step on, are the same in both texts."""
    most = min(len(ours), len(theirs)) - step
    return next((i for i in range(most) if ours[-1 - i] != theirs[-1 - i]), most)


def _first_difference(
    text: str, written: str, other: str, prefix: Prefix, encode: Encode, number: int
) -> tuple[int, list[int], list[int]]:
    """The first step at which the target and the target with the other word have different ids, and all of these."""
    places = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(written)}(?!\w)", text)]
    places = places or [match.span() for match in re.finditer(re.escape(written), text)]  # no spaces between words
    if len(places) != 1:
        times = (
            "not in it"
            if not places
            else f"in it {len(places)} times: give more of the words around it, on both sides"
        )
        raise ValueError(f"{written!r} cannot be contrasted in target {number}, {text!r}: it is {times}.")
    start, stop = places[0]
    ours, theirs = (encode(each, number) for each in (text, text[:start] + other + text[stop:]))
    step = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    if step is None:
        raise ValueError(f"The tokenizer gives the same tokens for {written!r} and {other!r} in target {number}.")
    if ours[: step + 1] != prefix.ids.tolist()[: step + 1]:
        raise ValueError(
            f"The tokenizer does not split target {number} as the model wrote it, so the step of {written!r} is not "
            f"known. Pass the text as the target: target={text!r}."
        )
    return step, ours, theirs
