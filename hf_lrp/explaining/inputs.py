"""What users pass in, as token ids: sources, targets and what to explain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hf_lrp.data.configs import IGNORED_LABEL
from hf_lrp.data.vocabulary import Side, Vocabulary
from hf_lrp.result.words import group_words


class Described(NamedTuple):
    """The positions of one source: ``tokens``, ``ids`` [S], and ``words``, the word that each belongs to."""

    tokens: tuple[str, ...]
    ids: Tensor
    words: tuple[int, ...]


class Sources(NamedTuple):
    """What the encoder reads: one tensor per sentence, token ids [S] or features [bins, frames]."""

    argument: str  # of the model's forward: input_ids or input_features
    items: list[Tensor]
    single: bool
    describe: Callable[[Tensor], Described]


def read_sources(given: Any, vocabulary: Vocabulary) -> Sources:
    """Source sentences as token ids [S] without padding."""
    sentences, single = read_sentences(given, vocabulary, "source")
    items = []
    for number, ids in enumerate(sentences):
        if not ids:
            raise ValueError(f"source {number} has no tokens: there is nothing to explain.")
        items.append(vocabulary.check(ids, "source", number))
    return Sources("input_ids", items, single, partial(describe_tokens, vocabulary))


def describe_tokens(vocabulary: Vocabulary, ids: Tensor) -> Described:
    """Tokens and words of source ids [S]."""
    tokens = vocabulary.tokens(ids, "source")
    return Described(tokens, ids, group_words(tokens, vocabulary.is_special(ids)))


def read_sentences(given: Any, vocabulary: Vocabulary, side: Side) -> tuple[list[list[int]], bool]:
    """Sentences as lists of ids without padding, and whether a single one was given."""
    if isinstance(given, str):
        return vocabulary.encode([given], side), True
    if isinstance(given, Mapping):
        sentences, single = _from_encoding(given, vocabulary, side)
    elif isinstance(given, Tensor):
        sentences, single = _from_tensor(given, vocabulary, None, side)
    elif isinstance(given, Sequence):
        sentences, single = _from_sequence(given, vocabulary, side)
    else:
        name = type(given).__name__
        raise TypeError(f"{side} must be text or token ids (or a list of them), got {name}.{_if_audio(given, side)}")
    if side == "target":
        sentences = [_without_padding(ids, vocabulary) for ids in sentences]
    return sentences, single


def _if_audio(given: Any, side: Side) -> str:
    """What to say where an array of floats is given instead of text."""
    if side == "target" or "float" not in str(getattr(given, "dtype", "")):
        return ""
    return " This model reads text: audio needs a speech model such as Whisper."


def _from_sequence(given: Sequence[Any], vocabulary: Vocabulary, side: Side) -> tuple[list[list[int]], bool]:
    if not given:
        raise ValueError(f"{side} is an empty list: pass at least one sentence.")
    if all(isinstance(item, str) for item in given):
        return vocabulary.encode(given, side), False
    if all(isinstance(item, int) and not isinstance(item, bool) for item in given):
        return [list(given)], True
    sentences = []
    for number, item in enumerate(given):
        if "float" in str(getattr(item, "dtype", "")):
            raise TypeError(f"{side} {number} holds floats, not integer token ids.{_if_audio(item, side)}")
        if isinstance(item, str) or not isinstance(item, (Tensor, Sequence)):
            raise TypeError(f"{side} mixes kinds: item {number} is a {type(item).__name__}. Pass all text or all ids.")
        sentences.append(_ids(item, side, number))
    return sentences, False


def _ids(item: Tensor | Sequence[int], side: Side, number: int) -> list[int]:
    ids = torch.as_tensor(item)
    if ids.dim() != 1 or (ids.numel() and (ids.is_floating_point() or ids.dtype == torch.bool)):
        raise TypeError(f"{side} {number} must be a 1-D tensor or list of integer token ids.")
    return ids.tolist()


def _from_encoding(given: Mapping[str, Any], vocabulary: Vocabulary, side: Side) -> tuple[list[list[int]], bool]:
    if "input_ids" not in given:
        audio = "input_features" in given and side == "source"
        raise ValueError(
            f"Expected 'input_ids' in the given encoding, found {sorted(given)}."
            + (" This model reads text: audio needs a speech model such as Whisper." if audio else "")
        )
    ids, mask = given["input_ids"], given.get("attention_mask")
    if not isinstance(ids, Tensor) and ids and not isinstance(ids[0], int):  # lists of different lengths
        masks = mask if mask is not None else [[1] * len(row) for row in ids]
        return [[i for i, m in zip(row, keep, strict=True) if m] for row, keep in zip(ids, masks, strict=True)], False
    return _from_tensor(torch.as_tensor(ids), vocabulary, None if mask is None else torch.as_tensor(mask), side)


def _from_tensor(ids: Tensor, vocabulary: Vocabulary, mask: Tensor | None, side: Side) -> tuple[list[list[int]], bool]:
    if ids.dim() not in (1, 2) or ids.is_floating_point():
        raise TypeError(
            f"Token ids must be an integer tensor [length] or [batch, length], got {tuple(ids.shape)} of {ids.dtype}."
            + _if_audio(ids, side)
        )
    rows = ids[None] if ids.dim() == 1 else ids
    if mask is not None:
        sentences = [row[kept].tolist() for row, kept in zip(rows, mask.reshape(rows.shape).bool(), strict=True)]
    elif ids.dim() == 1:
        return [ids.tolist()], True
    else:
        sentences = [_without_padding(row, vocabulary, in_front=True) for row in rows.tolist()]
    return sentences, ids.dim() == 1


def _without_padding(ids: list[int], vocabulary: Vocabulary, in_front: bool = False) -> list[int]:
    """One row without padding behind it, and in front of it in a padded batch. An end that also pads stays once."""
    padding = (vocabulary.pad, IGNORED_LABEL)
    content = [n for n, i in enumerate(ids) if i not in padding]
    if not content:
        return []
    first, stop = content[0] if in_front else 0, content[-1] + 1
    ends_with_padding = vocabulary.pad in vocabulary.ends and ids[stop : stop + 1] == [vocabulary.pad]
    return ids[first : stop + ends_with_padding]


def read_predictions(given: Any, steps: Sequence[int], single: bool, size: int) -> list[Tensor]:
    """Ids to explain, per sentence: [T], or [T, 2] for pairs; ``steps``: the number of predictions T per sentence."""
    wanted = [given] if single else given
    if not isinstance(wanted, (Sequence, Tensor)):
        raise ValueError(f"predict must be 'top1', 'target', ids per step, or pairs of ids per step; got {given!r}.")
    if len(wanted) != len(steps):
        raise ValueError(f"predict has ids for {len(wanted)} sentences, but there are {len(steps)}.")
    result = []
    for number, (ids, count) in enumerate(zip(wanted, steps, strict=True)):
        tensor = torch.as_tensor(ids)
        if tensor.shape not in ((count,), (count, 2)) or tensor.is_floating_point():
            raise ValueError(
                f"predict for sentence {number} has shape {tuple(tensor.shape)}; its {count} steps need "
                f"[{count}] ids, or [{count}, 2] for contrastive pairs."
            )
        if not ((tensor >= 0) & (tensor < size)).all():
            raise ValueError(f"predict for sentence {number} has ids outside the vocabulary (0 to {size - 1}).")
        result.append(tensor)
    return result
