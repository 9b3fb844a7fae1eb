"""Word dropout: some tokens of a sentence are replaced while training, repeatably.

Which ones, and by what, is a function of the sentence's seed and the token's position: the rest of the batch, padding,
the order of sentences and the number of processes change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_lrp.models.configs import IGNORED_LABEL, vocabulary_sizes
from hf_lrp.models.vocabulary import Side
from hf_lrp.training.arguments import TranslationTrainingArguments

_INCREMENT, _FACTORS = 0x9E3779B97F4A7C15, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of SplitMix64
_PRECISION = 53  # random bits of a draw


@dataclass(frozen=True)
class WordDropout:
    """Replaces tokens with probability `rate`, each one independently.

    Spared are special tokens, the end of the sentence among them, and the first token that is not special, as the
    code that comes with Voita, Sennrich & Titov (2021) does.

    Attributes:
        rate: from 0 to 1.
        replacement: an id such as that of UNK, or "random": any token of the vocabulary that is not spared.
        vocabulary_size: of the side that it is used on.
        spared: ids of special tokens: neither replaced nor put in.
    """

    rate: float
    replacement: int | Literal["random"]
    vocabulary_size: int
    spared: frozenset[int]

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"The rate of word dropout must be from 0 to 1, not {self.rate}.")
        if isinstance(self.replacement, str):
            if self.replacement != "random":
                raise ValueError(f"The replacement must be an id or 'random', not {self.replacement!r}.")
            if not len(self._ordinary):
                raise ValueError("All tokens of the vocabulary are spared: there is none to put in.")
        elif not 0 <= self.replacement < self.vocabulary_size:
            raise ValueError(f"The replacement {self.replacement} is not in a vocabulary of {self.vocabulary_size}.")

    def __call__(self, ids: Tensor, mask: Tensor, seeds: Tensor) -> Tensor:
        """A copy of `ids` with some tokens replaced.

        Args:
            ids: [batch, length], of the source, or of the decoder's input: never of labels.
            mask: [batch, length], not zero where there is a token, zero where there is padding.
            seeds: [batch], from `sentence_seeds`.
        """
        mask = mask.bool()
        special = torch.isin(ids, torch.tensor(sorted(self.spared), dtype=ids.dtype, device=ids.device))
        ordinary = mask & ~special
        replaceable = ordinary & (ordinary.cumsum(1) > 1)
        positions = mask.cumsum(1)
        drawn = _draw(seeds, 2 * positions) < round(self.rate * 2**_PRECISION)
        return torch.where(replaceable & drawn, self._replacements(ids, seeds, 2 * positions + 1), ids)

    def _replacements(self, ids: Tensor, seeds: Tensor, counters: Tensor) -> Tensor:
        if self.replacement != "random":
            return torch.full_like(ids, self.replacement)
        ordinary = self._ordinary.to(ids.device, ids.dtype)
        return ordinary[_draw(seeds, counters) % len(ordinary)]

    @cached_property
    def _ordinary(self) -> Tensor:
        """The ids that may be put in, ascending."""
        return torch.tensor(sorted(set(range(self.vocabulary_size)) - self.spared))


class PairWordDropout:
    """Word dropout on the sides of a micro-batch that the arguments have a rate for; labels stay."""

    def __init__(
        self,
        args: TranslationTrainingArguments,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None,
    ) -> None:
        self._seed = args.seed
        self._sides: dict[Side, WordDropout] = {}
        sizes = vocabulary_sizes(model)
        rates: dict[Side, float] = {"source": args.source_word_dropout, "target": args.target_word_dropout}
        for side, rate in rates.items():
            if rate:
                if tokenizer is None:
                    raise ValueError("Word dropout spares special tokens: give the tokenizer as processing_class.")
                replacement = _replacement(args.word_dropout_token, tokenizer)
                self._sides[side] = WordDropout(rate, replacement, sizes[side], frozenset(tokenizer.all_special_ids))

    def __call__(self, inputs: Mapping[str, Any], epoch: int) -> dict[str, Any]:
        """Inputs with some of `input_ids` or `decoder_input_ids` replaced, by the numbers in `example`."""
        inputs = dict(inputs)
        for side, drop in self._sides.items():
            if "example" not in inputs:
                raise ValueError(
                    "Word dropout is drawn by the number of each example, which data_collator has left out: let it "
                    "keep the column 'example'."
                )
            seeds = sentence_seeds(inputs["example"], seed=self._seed, epoch=epoch, side=side)
            name = "input_ids" if side == "source" else "decoder_input_ids"
            mask = inputs["attention_mask"] if side == "source" else inputs["labels"].ne(IGNORED_LABEL)
            inputs[name] = drop(inputs[name], mask, seeds)
        return inputs


def _replacement(token: str | None, tokenizer: PreTrainedTokenizerBase) -> int | Literal["random"]:
    if token is None:
        return "random"
    replacement: Any = tokenizer.convert_tokens_to_ids(token)
    if tokenizer.convert_ids_to_tokens(replacement) != token:
        raise ValueError(f"word_dropout_token {token!r} is not in the tokenizer's vocabulary.")
    return replacement


def sentence_seeds(examples: Tensor, *, seed: int, epoch: int, side: Literal["source", "target"]) -> Tensor:
    """A seed for one side of each sentence, [batch], from the numbers of the examples, [batch] int64."""
    state = torch.zeros((), dtype=torch.int64, device=examples.device)
    for value in (seed, epoch, ("source", "target").index(side)):
        state = mixed((state + _signed(_INCREMENT)) ^ _signed(value))
    return mixed((state + _signed(_INCREMENT)) ^ examples)


def _draw(seeds: Tensor, counters: Tensor) -> Tensor:
    """Uniform integers below 2^53, [batch, length], from seeds [batch] and counters [batch, length]."""
    return _shift(mixed(seeds[:, None] + counters * _signed(_INCREMENT)), 64 - _PRECISION)


def mixed(state: Tensor) -> Tensor:
    """The output function of SplitMix64 (Steele, Lea & Flood 2014), in 64-bit integers that wrap around."""
    for distance, factor in zip((30, 27), _FACTORS, strict=True):
        state = (state ^ _shift(state, distance)) * _signed(factor)
    return state ^ _shift(state, 31)


def _shift(state: Tensor, distance: int) -> Tensor:
    """Shift to the right, with zeros coming in whatever the sign."""
    return (state >> distance) & (2 ** (64 - distance) - 1)


def _signed(value: int) -> int:
    """The lowest 64 bits of an integer, as torch's int64 has them."""
    return (value + 2**63) % 2**64 - 2**63
