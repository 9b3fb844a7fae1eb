"""A model's token ids, and their texts where there is a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_lrp.models.configs import as_list, end_tokens, generation_config_of, position_limit, vocabulary_sizes
from hf_lrp.models.words import group_words

Side = Literal["source", "target"]


class AroundTarget(NamedTuple):
    """Language and task tokens that a tokenizer puts before and after a target."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class Vocabulary:
    """A model's token ids, and their texts where there is a tokenizer."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> None:
        if tokenizer is not None and not hasattr(tokenizer, "convert_ids_to_tokens"):
            raise TypeError(
                f"tokenizer must be a transformers tokenizer, a processor with one, or None, got "
                f"{type(tokenizer).__name__}. What is to be explained comes after it, or as source=..."
            )
        if tokenizer is not None and knows_no_text(tokenizer):
            raise ValueError(
                f"The tokenizer knows no text: all its {len(tokenizer)} tokens are special. transformers makes up "
                "such a tokenizer where a checkpoint has no tokenizer files: load it from where they are."
            )
        self.tokenizer = tokenizer
        self.pad: int | None = model.config.pad_token_id
        self.ends = set(end_tokens(model))
        self.limit = position_limit(model)
        self.sizes = vocabulary_sizes(model)
        self._generation_language_tokens = _language_tokens_of(generation_config_of(model))

    def encode(self, texts: Sequence[str], side: Side) -> list[list[int]]:
        """Token ids with special tokens, not truncated; targets without language and task tokens."""
        if self.tokenizer is None:
            raise ValueError(
                f"The {side} is text, but there is no tokenizer: pass the model's tokenizer, or token ids."
            )
        require_text(texts, side)
        if side == "source":
            encoded = self.tokenizer(list(texts), truncation=False, padding=False, verbose=False)
            return [list(ids) for ids in encoded["input_ids"]]
        return [self._without_language_tokens(ids) for ids in self._encode_targets(list(texts))]

    def _encode_targets(self, texts: list[str], **options: Any) -> list[list[int]]:
        tokenizer: Any = self.tokenizer
        if _is_fsmt(tokenizer):
            return [_encode_target_of_fsmt(tokenizer, text, **options) for text in texts]
        with _some_target_language(tokenizer):
            encoded = tokenizer(text_target=texts, truncation=False, padding=False, verbose=False, **options)
        return [list(ids) for ids in encoded["input_ids"]]

    def _without_language_tokens(self, ids: list[int]) -> list[int]:
        """Target ids as the tokenizer gives them, without language tokens in front of the text and behind its end."""
        around = self._around_target
        first = next((n for n, i in enumerate(ids) if i not in self.language_tokens and i not in self.ends), len(ids))
        front = [i for i in ids[:first] if i not in around.before]
        stop = (
            len(ids) - len(around.after)
            if around.after and tuple(ids[-len(around.after) :]) == around.after
            else len(ids)
        )
        return front + ids[first:stop]

    @cached_property
    def _around_target(self) -> AroundTarget:
        """Codes that the tokenizer puts around a target, be its language known or not."""
        if self.tokenizer is None:
            return AroundTarget()
        whole, plain = (self._encode_targets(["a"], add_special_tokens=added)[0] for added in (True, False))
        places = [n for n in range(len(whole)) if plain and whole[n : n + len(plain)] == plain]
        if not places:
            return AroundTarget()
        named = _named_ids(self.tokenizer)
        before, after = whole[: places[0]], whole[places[0] + len(plain) :]
        return AroundTarget(tuple(i for i in before if i not in named), tuple(i for i in after if i not in named))

    @property
    def knows_language(self) -> bool:
        """False where the tokenizer has target languages and none is set."""
        return getattr(self.tokenizer, "tgt_lang", "") is not None

    @property
    def lacks_language(self) -> bool:
        """Whether the decoder is prompted with a language that the tokenizer does not know."""
        return not self.knows_language and bool(self._around_target.before)

    @property
    def around_target(self) -> AroundTarget:
        """Codes that the tokenizer puts around a target, as far as it knows the target's language."""
        return self._around_target if self.knows_language else AroundTarget()

    @cached_property
    def language_tokens(self) -> set[int]:
        """Ids of language and task tokens: tokens that no text has, and that are given rather than predicted."""
        if not any(self._around_target):
            return self._generation_language_tokens
        return self._generation_language_tokens | (self._special - _named_ids(self.tokenizer))

    @cached_property
    def _special(self) -> set[int]:
        tokenizer = self.tokenizer
        if tokenizer is None:
            return {i for i in (self.pad, *self.ends) if i is not None} | self._generation_language_tokens
        marked = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        # M2M100 does not count its language tokens among its special tokens
        languages = getattr(tokenizer, "lang_code_to_id", {}).values()
        return {*tokenizer.all_special_ids, *marked, *languages}

    def tokens(self, ids: Tensor, side: Side) -> tuple[str, ...]:
        """The pieces that ids [n] stand for; an id itself where no tokenizer knows it."""
        tokenizer: Any = self.tokenizer
        if tokenizer is None:
            return tuple(str(i) for i in ids.tolist())
        separate = getattr(tokenizer, "separate_vocabs", _is_fsmt(tokenizer))  # Marian may have two vocabularies too
        if side == "source" and separate:
            known = {i: piece for piece, i in tokenizer.encoder.items()}
            pieces = [known.get(i) for i in ids.tolist()]
        else:
            pieces = tokenizer.convert_ids_to_tokens(ids.tolist())
        return tuple(str(i) if piece is None else str(piece) for i, piece in zip(ids.tolist(), pieces, strict=True))

    def words(self, ids: Tensor, side: Side) -> tuple[int, ...]:
        """The number of the word that each of ids [n] belongs to."""
        return group_words(self.tokens(ids, side), self.is_special(ids))

    @property
    def unknown(self) -> tuple[int, int]:
        """Ids that stand for no known text, of sources and targets: the unknown token, or else padding or the end."""
        own = getattr(self.tokenizer, "unk_token_id", None)
        found = next((i for i in (own, self.pad, *sorted(self.ends)) if i is not None), 0)
        return min(found, self.sizes["source"] - 1), min(found, self.sizes["target"] - 1)

    def id_of(self, token: str) -> int | None:
        """The id of a special token; None where the tokenizer has none such, or there is no tokenizer."""
        return None if self.tokenizer is None else self.tokenizer.get_added_vocab().get(token)

    def find_target(self, text: str) -> int:
        """The id of a target token, given as its piece (`▁cat`) or as a word that is one piece (`cat`)."""
        if self.tokenizer is None:
            raise ValueError(f"{text!r} is the text of a token, but there is no tokenizer: pass it, or token ids.")
        if text in self._target_ids:
            return self._target_ids[text]
        ids = self._encode_targets([text], add_special_tokens=False)[0]
        if len(ids) == 1 and ids[0] != self.tokenizer.unk_token_id:
            return ids[0]
        pieces = ", ".join(map(repr, self.tokens(torch.tensor(ids, dtype=torch.long), "target")))
        raise ValueError(f"{text!r} is not one token of the tokenizer (it becomes {pieces}): give one piece of it.")

    @cached_property
    def _target_ids(self) -> dict[str, int]:
        ids = torch.arange(self.sizes["target"])
        return {piece: i for i, piece in enumerate(self.tokens(ids, "target")) if piece != str(i)}

    def is_special(self, ids: Tensor) -> list[bool]:
        """Which of ids [n] are no text: the end of the sentence, language tokens, times of a transcript."""
        added = () if self.tokenizer is None else self.tokenizer.added_tokens_decoder
        return [i in self._special or i in added for i in ids.tolist()]

    def check(self, ids: list[int], side: Side, number: int) -> Tensor:
        """One sentence's ids as a tensor [n]; raises if they cannot be put into the model."""
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


def require_text(texts: Sequence[str], side: Side) -> None:
    """Raise for texts that are empty or hold halves of characters."""
    for number, text in enumerate(texts):
        if not text.strip():
            raise ValueError(f"{side} {number} is empty: there is nothing to explain. Remove it or give it text.")
        half = next((n for n, char in enumerate(text) if "\ud800" <= char <= "\udfff"), None)
        if half is not None:
            raise ValueError(
                f"{side} {number} has half a character at position {half} (a lone surrogate), which is not text: "
                "read it again as UTF-8."
            )


def knows_no_text(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a tokenizer has nothing but special tokens, as one that was made up without any files."""
    special = set(tokenizer.all_special_tokens)
    return len(tokenizer) <= 2 * len(special) + 8 and special.issuperset(tokenizer.get_vocab())


def _language_tokens_of(generation: Any) -> set[int]:
    """Language and task tokens that the generation configs of Whisper and SeamlessM4T list."""
    names = ("lang_to_id", "task_to_id", "text_decoder_lang_to_code_id")
    tokens = {i for name in names for i in (getattr(generation, name, None) or {}).values()}
    return tokens | set(as_list(getattr(generation, "no_timestamps_token_id", None)))


def _named_ids(tokenizer: Any) -> set[int]:
    """Special tokens with a role of their own: the ends of sentences, padding, and so on."""
    return set(tokenizer.convert_tokens_to_ids([str(token) for token in tokenizer.special_tokens_map.values()]))


def _is_fsmt(tokenizer: Any) -> bool:
    return hasattr(tokenizer, "tgt_vocab_size")


def _encode_target_of_fsmt(tokenizer: Any, text: str, add_special_tokens: bool = True) -> list[int]:
    """FSMT's tokenizer itself looks targets up in the source vocabulary."""
    of_target = {piece: i for i, piece in tokenizer.decoder.items()}
    pieces = [*tokenizer.tokenize(text), *([tokenizer.sep_token] if add_special_tokens else [])]
    return [of_target.get(piece, of_target[tokenizer.unk_token]) for piece in pieces]


@contextmanager
def _some_target_language(tokenizer: Any) -> Iterator[None]:
    """A tokenizer that needs a target language and has none takes the source language meanwhile."""
    if getattr(tokenizer, "tgt_lang", "") is not None:
        yield
        return
    try:
        tokenizer.tgt_lang = getattr(tokenizer, "src_lang", None)
        yield
    finally:
        tokenizer.tgt_lang = None
