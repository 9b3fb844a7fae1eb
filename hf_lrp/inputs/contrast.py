"""Contrasts by text: why this word, and not that one?"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from hf_lrp.inputs.prefixes import Prefix

# From a target's text and number to its ids, as the model predicts them.
Encode: TypeAlias = "Callable[[str, int], list[int]]"


class Contrast(NamedTuple):
    """``steps``: indices of the explained steps, from 0, ascending; ``pairs`` [steps, 2]: the ids compared."""

    steps: list[int]
    pairs: Tensor


def is_contrast(predict: Any) -> bool:
    """Whether words are given that are to be contrasted: a mapping, or a list of mappings."""
    if isinstance(predict, Sequence) and not isinstance(predict, str):
        return bool(predict) and all(isinstance(item, Mapping) for item in predict)
    return isinstance(predict, Mapping)


def read_contrasts(
    predict: Any, target: Any, prefixes: Sequence[Prefix], single: bool, tokenizer: Any, encode: Encode
) -> list[Contrast]:
    """For each sentence the steps at which its written words and their alternatives part, and both ids there.

    Args:
        predict: from words of the target to what might stand there instead, or a list of such for several sentences.
        target: what the user gave as target: its texts are used as they are.
        prefixes: the targets as ids.
        single: whether there is one sentence, which is not in a list.
        tokenizer, encode: decode and encode texts.
    """
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
        _read(words, _text(prefix, tokenizer) if texts is None else texts[number], prefix, encode, number)
        for number, (words, prefix) in enumerate(zip(wanted, prefixes, strict=True))
    ]


def _text(prefix: Prefix, tokenizer: Any) -> str:
    return str(tokenizer.decode(prefix.ids.tolist(), skip_special_tokens=True)).strip()


def _read(words: Mapping[str, str], text: str, prefix: Prefix, encode: Encode, number: int) -> Contrast:
    if not words:
        raise ValueError(f"predict for sentence {number} is empty: give a word of the target and another one.")
    found = {}
    for written, other in words.items():
        if not isinstance(written, str) or not isinstance(other, str) or not written.strip() or not other.strip():
            raise ValueError(f"predict must map words to words, got {written!r}: {other!r}.")
        step, pair = _first_difference(text, written, other, prefix, encode, number)
        if step in found:
            raise ValueError(f"Two words of sentence {number} part at the same step: contrast them one by one.")
        found[step] = pair
    steps = sorted(found)
    return Contrast(steps, torch.tensor([found[step] for step in steps]))


def _first_difference(
    text: str, written: str, other: str, prefix: Prefix, encode: Encode, number: int
) -> tuple[int, tuple[int, int]]:
    """The first step at which the target and the target with the other word have different ids, and these."""
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
    return step, (ours[step], theirs[step])
