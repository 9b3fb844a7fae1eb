"""What users pass in, as token ids: sources, targets and what to explain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_lrp.result.words import group_words

Side = Literal["source", "target"]
IGNORED_LABEL = -100


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


class TargetForm(NamedTuple):
    """Language and task codes that a tokenizer puts before and after a target."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


def generation_config_of(model: PreTrainedModel) -> GenerationConfig:
    """A model's generation config; what its config says, for models that cannot generate."""
    config = getattr(model, "generation_config", None)
    return GenerationConfig.from_model_config(model.config) if config is None else config


class Vocabulary:
    """A model's token ids, and their texts where there is a tokenizer."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> None:
        if tokenizer is not None and not hasattr(tokenizer, "convert_ids_to_tokens"):
            raise TypeError(
                f"tokenizer must be a transformers tokenizer, a processor with one, or None, got "
                f"{type(tokenizer).__name__}."
            )
        config, generation = model.config, generation_config_of(model)
        self.tokenizer = tokenizer
        self.pad: int | None = config.pad_token_id
        self.ends = as_set(generation.eos_token_id) or as_set(config.eos_token_id)
        # T5 has neither: it knows only distances between positions
        self.limit: int | None = getattr(
            config, "max_target_positions", getattr(config, "max_position_embeddings", None)
        )
        self.sizes = {
            "source": len(cast(nn.Embedding, model.get_input_embeddings()).weight),
            "target": len(cast(nn.Linear, model.get_output_embeddings()).weight),
        }
        self._generation_codes = _generation_codes(generation)

    def encode(self, texts: Sequence[str], side: Side) -> list[list[int]]:
        """Token ids with special tokens, not truncated; targets without language and task codes."""
        if self.tokenizer is None:
            raise ValueError(
                f"The {side} is text, but there is no tokenizer: pass the model's tokenizer, or token ids."
            )
        for number, text in enumerate(texts):
            if not text.strip():
                raise ValueError(f"{side} {number} is empty: there is nothing to explain. Remove it or give it text.")
        if side == "source":
            encoded = self.tokenizer(list(texts), truncation=False, padding=False, verbose=False)
            return [list(ids) for ids in encoded["input_ids"]]
        return [self._without_codes(ids) for ids in self._encode_targets(list(texts))]

    def _encode_targets(self, texts: list[str], **options: Any) -> list[list[int]]:
        tokenizer: Any = self.tokenizer
        if _is_fsmt(tokenizer):
            return [_encode_target_of_fsmt(tokenizer, text, **options) for text in texts]
        with _some_target_language(tokenizer):
            encoded = tokenizer(text_target=texts, truncation=False, padding=False, verbose=False, **options)
        return [list(ids) for ids in encoded["input_ids"]]

    def _without_codes(self, ids: list[int]) -> list[int]:
        """Target ids as the tokenizer gives them, without codes in front of the text and behind its end."""
        form = self._form
        first = next((n for n, i in enumerate(ids) if i not in self.codes and i not in self.ends), len(ids))
        front = [i for i in ids[:first] if i not in form.before]
        stop = len(ids) - len(form.after) if form.after and tuple(ids[-len(form.after) :]) == form.after else len(ids)
        return front + ids[first:stop]

    @cached_property
    def _form(self) -> TargetForm:
        """Codes that the tokenizer puts around a target, be its language known or not."""
        if self.tokenizer is None:
            return TargetForm()
        whole, plain = (self._encode_targets(["a"], add_special_tokens=added)[0] for added in (True, False))
        places = [n for n in range(len(whole)) if plain and whole[n : n + len(plain)] == plain]
        if not places:
            return TargetForm()
        named = _named_ids(self.tokenizer)
        before, after = whole[: places[0]], whole[places[0] + len(plain) :]
        return TargetForm(tuple(i for i in before if i not in named), tuple(i for i in after if i not in named))

    @property
    def knows_language(self) -> bool:
        """False where the tokenizer has target languages and none is set."""
        return getattr(self.tokenizer, "tgt_lang", "") is not None

    @property
    def lacks_language(self) -> bool:
        """Whether the decoder is told a language first that the tokenizer does not know."""
        return not self.knows_language and bool(self._form.before)

    @property
    def form(self) -> TargetForm:
        """Codes that the tokenizer puts around a target, as far as it knows the target's language."""
        return self._form if self.knows_language else TargetForm()

    @cached_property
    def codes(self) -> set[int]:
        """Ids of language and task codes: tokens that no text has, and that are given rather than predicted."""
        if not any(self._form):
            return self._generation_codes
        return self._generation_codes | (self._special - _named_ids(self.tokenizer))

    @cached_property
    def _special(self) -> set[int]:
        tokenizer = self.tokenizer
        if tokenizer is None:
            return {i for i in (self.pad, *self.ends) if i is not None} | self._generation_codes
        marked = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        # M2M100 does not count its language codes among its special tokens
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

    def is_special(self, ids: Tensor) -> list[bool]:
        """Which of ids [n] are no text: the end of the sentence, language codes, times of a transcript."""
        added = () if self.tokenizer is None else self.tokenizer.added_tokens_decoder
        return [i in self._special or i in added for i in ids.tolist()]

    def describe(self, ids: Tensor) -> Described:
        """Tokens and words of source ids [S]."""
        tokens = self.tokens(ids, "source")
        return Described(tokens, ids, group_words(tokens, self.is_special(ids)))

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


def as_set(ids: int | Sequence[int] | None) -> set[int]:
    """Token ids of a config, which may be one, several or none."""
    if ids is None:
        return set()
    return {ids} if isinstance(ids, int) else set(ids)


def _generation_codes(generation: Any) -> set[int]:
    """Language and task codes that the generation configs of Whisper and SeamlessM4T list."""
    names = ("lang_to_id", "task_to_id", "text_decoder_lang_to_code_id")
    codes = {i for name in names for i in (getattr(generation, name, None) or {}).values()}
    return codes | as_set(getattr(generation, "no_timestamps_token_id", None))


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


def read_sources(given: Any, vocabulary: Vocabulary) -> Sources:
    """Source sentences as token ids [S] without padding."""
    sentences, single = read_sentences(given, vocabulary, "source")
    items = []
    for number, ids in enumerate(sentences):
        if not ids:
            raise ValueError(f"source {number} has no tokens: there is nothing to explain.")
        items.append(vocabulary.check(ids, "source", number))
    return Sources("input_ids", items, single, vocabulary.describe)


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
