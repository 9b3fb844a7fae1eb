"""Token ids of what users pass in: sources, targets and what to explain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hf_lrp.models.configs import IGNORED_LABEL
from hf_lrp.models.vocabulary import Side, Vocabulary


class Described(NamedTuple):
    """The positions of one source: ``tokens``, ``ids`` [S], and ``words``, the word that each belongs to."""

    tokens: tuple[str, ...]
    ids: Tensor
    words: tuple[int, ...]


class Sources(NamedTuple):
    """Sources, as the encoder reads them: one tensor per sentence, token ids [S] or features [bins, frames]."""

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
            raise ValueError(f"source {number} has no tokens, or padding only: there is nothing to explain.")
        items.append(vocabulary.check(ids, "source", number))
    return Sources("input_ids", items, single, partial(describe_tokens, vocabulary))


def describe_tokens(vocabulary: Vocabulary, ids: Tensor) -> Described:
    """Tokens and words of source ids [S]."""
    return Described(vocabulary.tokens(ids, "source"), ids, vocabulary.words(ids, "source"))


def read_sentences(given: Any, vocabulary: Vocabulary, side: Side) -> tuple[list[list[int]], bool]:
    """Sentences as lists of ids without padding, and whether a single one was given."""
    given = plain(given, side)
    if isinstance(given, str):
        return vocabulary.encode([given], side), True
    if isinstance(given, Mapping):
        sentences, single = _from_encoding(given, vocabulary, side)
    elif isinstance(given, Tensor):
        sentences, single = _from_tensor(given, side)
    elif isinstance(given, list):
        sentences, single = _from_list(given, vocabulary, side)
    else:
        raise TypeError(f"{side} must be text or token ids (or a list of them), got {type(given).__name__}.")
    if side == "source" and isinstance(given, Mapping) and given.get("attention_mask") is not None:
        return sentences, single  # the mask has said what is padding
    rows = given["input_ids"] if isinstance(given, Mapping) else given
    in_front = side == "source" or getattr(rows, "ndim", 1) == 2  # targets alone may start with the padding token
    return [_without_padding(ids, vocabulary, in_front) for ids in sentences], single


def plain(given: Any, name: str) -> Any:
    """Arrays as tensors; columns of tables, generators and whatever else gives items in order as lists."""
    if isinstance(given, (str, Mapping, Tensor)):
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        raise TypeError(f"{name} is {type(given).__name__}, not text: decode it first, for example .decode('utf-8').")
    if isinstance(given, np.ndarray):
        if given.dtype.kind in "iub":
            return torch.from_numpy(np.ascontiguousarray(given.astype(np.int64 if given.dtype.kind != "b" else bool)))
        return torch.from_numpy(given) if given.dtype.kind == "f" else given.tolist()
    if isinstance(given, np.generic):
        return given.item()
    if isinstance(given, AbstractSet):
        raise TypeError(f"{name} is a {type(given).__name__}, which has no order: pass a list.")
    if hasattr(given, "columns"):  # tables give the names of their columns, not what stands in them
        raise TypeError(f"{name} is a {type(given).__name__}: pass one of its columns.")
    return list(given) if isinstance(given, Iterable) else given


def as_ids(given: Tensor, name: str) -> Tensor:
    """A tensor of token ids, checked for all that makes it something else."""
    if given.layout is not torch.strided or given.is_nested:
        raise TypeError(f"{name} is a sparse or nested tensor: pass a dense one, or a list.")
    if given.is_meta:
        raise TypeError(f"{name} is on the meta device, where tensors have no values.")
    if given.numel() and (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool):
        raise TypeError(f"{name} must be integer token ids, got {given.dtype}.{_if_audio(given, name)}")
    return given


def _if_audio(given: Any, name: str) -> str:
    """Hint where an array of floats is given instead of text."""
    is_audio = name.startswith("source") and "float" in str(getattr(given, "dtype", ""))
    return " This model reads text: audio needs a speech model such as Whisper." if is_audio else ""


def _from_list(given: list[Any], vocabulary: Vocabulary, side: Side) -> tuple[list[list[int]], bool]:
    items = [plain(item, f"{side} {number}") for number, item in enumerate(given)]
    if not items:
        raise ValueError(f"{side} is empty: pass at least one sentence.")
    if all(isinstance(item, str) for item in items):
        return vocabulary.encode(items, side), False
    if all(_is_id(item) for item in items):
        return [items], True
    first = items[0]
    kind = str if isinstance(first, str) else (Tensor, list)
    for number, item in enumerate(items):
        if not isinstance(item, kind):
            before = f", item 0 a {type(first).__name__}" if number else ""
            raise TypeError(
                f"{side} mixes kinds: item {number} is a {type(item).__name__}{before}. Pass all text or all ids."
            )
    return [_ids(item, f"{side} {number}") for number, item in enumerate(items)], False


def _is_id(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _ids(given: Tensor | list[Any], name: str) -> list[int]:
    """One sentence's ids; a tensor may be [1, length], as `generate` and tokenizers return one."""
    if isinstance(given, Tensor):
        ids = as_ids(given, name)
        ids = ids[0] if ids.dim() == 2 and len(ids) == 1 else ids
        if ids.dim() == 1:
            return ids.tolist()
        raise TypeError(f"{name} has the shape {list(ids.shape)}; one sentence's ids are [length].")
    items = [plain(item, name) for item in given]
    items = [item.item() if isinstance(item, Tensor) and item.dim() == 0 else item for item in items]
    wrong = next((item for item in items if not _is_id(item)), None)
    if wrong is not None:
        words = " Words in lists are not read: join them into one text." if isinstance(wrong, str) else ""
        raise TypeError(f"{name} must be a list of integer token ids, but holds a {type(wrong).__name__}.{words}")
    return items


# What tokenizers return besides, and no encoder-decoder model reads.
_UNREAD = {"token_type_ids", "special_tokens_mask", "offset_mapping", "length", "num_truncated_tokens"}


def _from_encoding(given: Mapping[str, Any], vocabulary: Vocabulary, side: Side) -> tuple[list[list[int]], bool]:
    given = {name: plain(value, f"{side}[{name!r}]") for name, value in given.items() if value is not None}
    if "input_ids" not in given:
        audio = "input_features" in given and side == "source"
        raise ValueError(
            f"Expected 'input_ids' in the given encoding, found {sorted(given)}."
            + (" This model reads text: audio needs a speech model such as Whisper." if audio else "")
        )
    ignored = sorted(given.keys() - {"input_ids", "attention_mask"} - _UNREAD)
    if ignored:
        raise ValueError(
            f"The {side} brings {', '.join(ignored)}, which explain() does not use: remove it."
            + (" Pass labels as target." if "labels" in ignored else "")
        )
    ids = given["input_ids"]
    if isinstance(ids, Tensor):
        rows, single = _from_tensor(ids, side)
    elif isinstance(ids, list):
        rows, single = _from_list(ids, vocabulary, side)
    else:
        raise TypeError(f"{side}['input_ids'] must be token ids, got {type(ids).__name__}.")
    if "attention_mask" not in given:
        return rows, single
    return _masked(rows, given["attention_mask"], single, side), single


def _from_tensor(given: Tensor, side: Side) -> tuple[list[list[int]], bool]:
    ids = as_ids(given, side)
    if ids.dim() not in (1, 2):
        raise TypeError(f"{side} has the shape {list(ids.shape)}; token ids are [length] or [batch, length].")
    return (ids[None] if ids.dim() == 1 else ids).tolist(), ids.dim() == 1


def _masked(rows: list[list[int]], mask: Any, single: bool, side: Side) -> list[list[int]]:
    """Rows without what the attention mask hides, which may be padding before and after a sentence only."""
    masks = _lists(mask)
    if single and not (isinstance(masks, list) and masks and isinstance(masks[0], list)):
        masks = [masks]
    each = masks if isinstance(masks, list) else []
    if [len(row) if isinstance(row, list) else None for row in each] != [len(row) for row in rows]:
        raise ValueError(f"attention_mask of the {side} must have one entry for each of input_ids, in the same shape.")
    return [_kept(row, keep, f"{side} {number}") for number, (row, keep) in enumerate(zip(rows, masks, strict=True))]


def _lists(given: Any) -> Any:
    if isinstance(given, Tensor):
        return given.tolist()
    return [_lists(plain(item, "attention_mask")) for item in given] if isinstance(given, list) else given


def _kept(ids: list[int], mask: list[Any], name: str) -> list[int]:
    if any(value not in (0, 1) for value in mask):
        raise ValueError(f"attention_mask of {name} must hold 0 and 1 only.")
    if 1 not in mask:
        raise ValueError(f"{name} is padding only: its attention_mask is 0 everywhere.")
    first, stop = mask.index(1), len(mask) - mask[::-1].index(1)
    if 0 in mask[first:stop]:
        raise ValueError(
            f"attention_mask of {name} has a hole at position {mask.index(0, first)}. It may hide padding before and "
            "after a sentence only: leave the token out of input_ids, which moves those after it, or keep it."
        )
    return ids[first:stop]


def _without_padding(ids: list[int], vocabulary: Vocabulary, in_front: bool) -> list[int]:
    """One sentence without padding behind it and perhaps in front of it. An end that also pads stays once."""
    padding = (vocabulary.pad, IGNORED_LABEL)
    content = [n for n, i in enumerate(ids) if i not in padding]
    if not content:
        return []
    first, stop = content[0] if in_front else 0, content[-1] + 1
    ends_with_padding = vocabulary.pad in vocabulary.ends and ids[stop : stop + 1] == [vocabulary.pad]
    return ids[first : stop + ends_with_padding]


PREDICT = (
    "predict must be 'top1', 'target', ids or tokens per step, pairs of them per step, or words such as "
    "{'banque': 'gare'} (for a list of sources a list of such)"
)


def read_predictions(given: Any, steps: Sequence[int], single: bool, vocabulary: Vocabulary) -> list[Tensor]:
    """Ids to explain, per sentence: [T], or [T, 2] for pairs; ``steps``: the number of predictions T per sentence."""
    wanted = [given] if single else plain(given, "predict")
    if not isinstance(wanted, (list, Tensor)):
        raise TypeError(f"{PREDICT}, got {type(given).__name__}.")
    if len(wanted) != len(steps):
        raise ValueError(f"predict has ids for {len(wanted)} sentences, but there are {len(steps)}.")
    return [
        _prediction(ids, count, f"predict for sentence {number}", vocabulary)
        for number, (ids, count) in enumerate(zip(wanted, steps, strict=True))
    ]


def _prediction(given: Any, count: int, name: str, vocabulary: Vocabulary) -> Tensor:
    ids = _nested_ids(given, name, vocabulary)
    try:
        tensor = as_ids(torch.as_tensor(ids), name)
    except (ValueError, OverflowError, RuntimeError):  # rows of different lengths, or numbers of more than 64 bits
        raise ValueError(f"{name} is not a rectangular array of ids: {PREDICT}.") from None
    if tensor.dim() == 0:
        raise TypeError(f"{PREDICT}, got {type(given).__name__}.")
    if tensor.shape not in ((count,), (count, 2)):
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; its {count} steps need [{count}] ids, or [{count}, 2] for "
            "contrastive pairs."
        )
    size = vocabulary.sizes["target"]
    if not ((tensor >= 0) & (tensor < size)).all():
        raise ValueError(f"{name} has ids outside the vocabulary (0 to {size - 1}).")
    if tensor.dim() == 2 and (tensor[:, 0] == tensor[:, 1]).any():
        step = int((tensor[:, 0] == tensor[:, 1]).nonzero()[0]) + 1
        raise ValueError(
            f"{name} has the same token twice at step {step}: the difference of a logit to itself is 0. Give two "
            "different tokens."
        )
    return tensor.long().cpu()


def _nested_ids(given: Any, name: str, vocabulary: Vocabulary) -> Any:
    """Lists of ids, in which texts of tokens are looked up."""
    if isinstance(given, str):
        return vocabulary.find_target(given)
    given = plain(given, name)
    if isinstance(given, Tensor) or _is_id(given):
        return given.tolist() if isinstance(given, Tensor) and given.dim() == 0 else given
    if isinstance(given, list):
        inner = [_nested_ids(item, name, vocabulary) for item in given]
        return [as_ids(item, name).tolist() if isinstance(item, Tensor) else item for item in inner]
    raise TypeError(f"{PREDICT}, got {type(given).__name__}.")
