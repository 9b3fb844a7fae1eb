"""What users pass in, as lists of token ids: sources, targets and what to explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

Side = Literal["source", "target"]
IGNORED_LABEL = -100


class Vocabulary:
    """A model's token ids, and their texts where there is a tokenizer."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> None:
        if tokenizer is not None and not callable(tokenizer):
            raise TypeError(f"tokenizer must be a transformers tokenizer or None, got {type(tokenizer).__name__}.")
        self.tokenizer = tokenizer
        self.pad: int | None = model.config.pad_token_id
        self.start: int | None = getattr(model.config, "decoder_start_token_id", None)
        self.limit: int | None = getattr(model.config, "max_position_embeddings", None)
        self.sizes = {
            "source": len(cast(nn.Embedding, model.get_input_embeddings()).weight),
            "target": len(cast(nn.Linear, model.get_output_embeddings()).weight),
        }
        if self.start is None:
            raise ValueError(
                "model.config.decoder_start_token_id is not set, so the first decoder input is unknown. Set it to the "
                "token the model was trained to start with."
            )

    def encode(self, texts: Sequence[str], side: Side) -> list[list[int]]:
        """Token ids with special tokens, not truncated."""
        if self.tokenizer is None:
            raise ValueError(
                f"The {side} is text, but there is no tokenizer: pass the model's tokenizer, or token ids."
            )
        for number, text in enumerate(texts):
            if not text.strip():
                raise ValueError(f"{side} {number} is empty: there is nothing to explain. Remove it or give it text.")
        keyword = {"source": "text", "target": "text_target"}[side]
        encoded = self.tokenizer(**{keyword: list(texts)}, truncation=False, verbose=False)
        return [list(ids) for ids in encoded["input_ids"]]

    def tokens(self, ids: Tensor, side: Side) -> tuple[str, ...]:
        """The pieces that ids [n] stand for; the ids themselves where there is no tokenizer."""
        if self.tokenizer is None:
            return tuple(str(i) for i in ids.tolist())
        if side == "source" and getattr(self.tokenizer, "separate_vocabs", False):
            pieces = {i: piece for piece, i in self.tokenizer.encoder.items()}
            return tuple(pieces.get(i, str(i)) for i in ids.tolist())
        return tuple(str(piece) for piece in self.tokenizer.convert_ids_to_tokens(ids.tolist()))

    def is_special(self, ids: Tensor) -> list[bool]:
        """Which of ids [n] are special tokens such as the end of the sentence."""
        special = {self.pad, self.start} if self.tokenizer is None else set(self.tokenizer.all_special_ids)
        return [i in special for i in ids.tolist()]

    def check(self, ids: list[int], side: Side, number: int) -> Tensor:
        """One sentence's ids as a tensor [n]; raises if they cannot be put into the model."""
        if not ids:
            raise ValueError(f"{side} {number} has no tokens: there is nothing to explain.")
        size = self.sizes[side]
        wrong = [i for i in ids if not 0 <= i < size]
        if wrong:
            raise ValueError(
                f"{side} {number} has the token id {wrong[0]}, but the model's vocabulary has ids 0 to {size - 1}. "
                "Does the tokenizer belong to this model?"
            )
        if self.limit is not None and len(ids) > self.limit:
            raise ValueError(
                f"{side} {number} has {len(ids)} tokens, but the model has only {self.limit} positions. Split it "
                "into shorter sentences."
            )
        return torch.tensor(ids)


def read_sentences(given: Any, vocabulary: Vocabulary, side: Side) -> tuple[list[Tensor], bool]:
    """Sentences as id tensors [n] without padding, and whether a single one was given."""
    if isinstance(given, str):
        sentences, single = vocabulary.encode([given], side), True
    elif isinstance(given, Mapping):
        sentences, single = _from_encoding(given, vocabulary)
    elif isinstance(given, Tensor):
        sentences, single = _from_tensor(given, vocabulary, None)
    elif isinstance(given, Sequence):
        sentences, single = _from_sequence(given, vocabulary, side)
    else:
        raise TypeError(f"{side} must be text or token ids (or a list of them), got {type(given).__name__}.")
    if side == "target":
        sentences = [_without_start(ids, vocabulary) for ids in sentences]
    return [vocabulary.check(ids, side, number) for number, ids in enumerate(sentences)], single


def _from_sequence(given: Sequence[Any], vocabulary: Vocabulary, side: Side) -> tuple[list[list[int]], bool]:
    if not given:
        raise ValueError(f"{side} is an empty list: pass at least one sentence.")
    if all(isinstance(item, str) for item in given):
        return vocabulary.encode(given, side), False
    if all(isinstance(item, int) and not isinstance(item, bool) for item in given):
        return [list(given)], True
    sentences = []
    for number, item in enumerate(given):
        if isinstance(item, str) or not isinstance(item, (Tensor, Sequence)):
            raise TypeError(f"{side} mixes kinds: item {number} is a {type(item).__name__}. Pass all text or all ids.")
        sentences.append(_ids(item, side, number))
    return sentences, False


def _ids(item: Tensor | Sequence[int], side: Side, number: int) -> list[int]:
    ids = torch.as_tensor(item)
    if ids.dim() != 1 or (ids.numel() and (ids.is_floating_point() or ids.dtype == torch.bool)):
        raise TypeError(f"{side} {number} must be a 1-D tensor or list of integer token ids.")
    return ids.tolist()


def _from_encoding(given: Mapping[str, Any], vocabulary: Vocabulary) -> tuple[list[list[int]], bool]:
    if "input_ids" not in given:
        raise ValueError(f"Expected 'input_ids' in the given encoding, found {sorted(given)}.")
    ids, mask = given["input_ids"], given.get("attention_mask")
    if not isinstance(ids, Tensor) and ids and not isinstance(ids[0], int):  # lists of different lengths
        masks = mask if mask is not None else [[1] * len(row) for row in ids]
        return [[i for i, m in zip(row, keep, strict=True) if m] for row, keep in zip(ids, masks, strict=True)], False
    return _from_tensor(torch.as_tensor(ids), vocabulary, None if mask is None else torch.as_tensor(mask))


def _from_tensor(ids: Tensor, vocabulary: Vocabulary, mask: Tensor | None) -> tuple[list[list[int]], bool]:
    if ids.dim() not in (1, 2) or ids.is_floating_point():
        raise TypeError(f"Token ids must be an integer tensor [length] or [batch, length], got {tuple(ids.shape)}.")
    rows = ids[None] if ids.dim() == 1 else ids
    if mask is not None:
        keep = mask.reshape(rows.shape).bool()
    else:
        keep = _inside_padding(rows, vocabulary.pad) if ids.dim() == 2 else torch.ones_like(rows, dtype=torch.bool)
    return [row[kept].tolist() for row, kept in zip(rows, keep, strict=True)], ids.dim() == 1


def _inside_padding(rows: Tensor, pad: int | None) -> Tensor:
    """True from the first to the last token of each row [batch, length] that is not padding."""
    content = (rows != IGNORED_LABEL) if pad is None else (rows != IGNORED_LABEL) & (rows != pad)
    return content.cumsum(1).bool() & content.flip(1).cumsum(1).flip(1).bool()


def _without_start(ids: list[int], vocabulary: Vocabulary) -> list[int]:
    """Target ids without what is not a target token: a leading start token (as `generate` returns) and padding."""
    while ids and ids[-1] in (vocabulary.pad, IGNORED_LABEL):
        ids = ids[:-1]
    return ids[1:] if ids and ids[0] == vocabulary.start else ids


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
