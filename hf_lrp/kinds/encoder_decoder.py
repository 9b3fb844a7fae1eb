"""Models with an encoder that reads text, and a decoder that is prompted with a start token and forced tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm
from transformers import LogitsProcessor, PreTrainedModel

from hf_lrp.inputs.ids import Sources, read_sources
from hf_lrp.inputs.options import require_no_prompt
from hf_lrp.inputs.prefixes import DecoderPrompts, Prefix, read_targets, require_one_sequence
from hf_lrp.inputs.prompts import Prompt
from hf_lrp.kinds.kind import Asked, Batch, Parted, numbered
from hf_lrp.methods.method import Groups
from hf_lrp.models.families import Family
from hf_lrp.models.passes import Relevance
from hf_lrp.models.vocabulary import Vocabulary


class EncoderDecoder:
    """Marian, T5, NLLB and their like."""

    def includes(self, family: Family) -> bool:
        """Whether there is an encoder that reads token ids."""
        return family.encoder is not None and family.source == "input_ids"

    def read(self, asked: Asked) -> Encoded:
        """Texts or token ids."""
        require_no_prompt(asked.model, asked.prompt)
        prompts = DecoderPrompts(asked.model, asked.vocabulary, asked.options)
        return Encoded(read_sources(asked.source, asked.vocabulary), prompts)

    def corpus_prompt(self, model: PreTrainedModel, tokenizer: Any, prompt: Any) -> Prompt | None:
        """None: the encoder reads the source as it is."""
        require_no_prompt(model, prompt)
        return None

    def count_tokens(self, asked: Asked, targets: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Without start and forced tokens, which every target has."""
        encode, prompts = asked.vocabulary.encode, DecoderPrompts(asked.model, asked.vocabulary, asked.options)
        example = encode(["a"], "target")[0]
        given = len(example) - len(prompts.read(example, 0).ids)
        for source, target in zip(encode(asked.source, "source"), encode(targets, "target"), strict=True):
            yield len(source), max(len(target) - given, 0)

    def keeps(self, vocabulary: Vocabulary, prompt: Prompt | None, ids: Sequence[int]) -> bool:
        """Whether decoding and encoding give the same tokens."""
        tokenizer: Any = vocabulary.tokenizer
        text = str(tokenizer.decode(list(ids), skip_special_tokens=True)).strip()
        return bool(text) and vocabulary.encode([text], "target")[0] == list(ids)


@dataclass(frozen=True)
class Encoded:
    """Sources for an encoder, and what the decoder is prompted with."""

    sources: Sources
    prompts: DecoderPrompts

    @property
    def longest(self) -> int:
        """The length of the longest source, in tokens or frames."""
        return max(item.shape[-1] for item in self.sources.items)

    def read_targets(self, given: Any) -> tuple[list[Prefix], bool]:
        """Targets as prefixes, and whether a single one was given."""
        return read_targets(given, self.prompts)

    def encode(self, target: str, number: int) -> list[int]:
        """The ids of a target's text that are predicted."""
        ids: list[int] = self.prompts.read(self.prompts.vocabulary.encode([target], "target")[0], number).ids.tolist()
        return ids

    def follow(self, number: int, prefix: Prefix) -> Prefix:
        """The target as it is: nothing of a source stands in front of it."""
        return prefix

    def group(self, number: int, prefix: Prefix, unit: str) -> Groups:
        """Start and forced tokens are one group; source and prefix are words, or a part each."""
        words = self.sources.describe(self.sources.items[number]).words
        written = self.prompts.vocabulary.words(prefix.ids, "target")[:-1]
        if unit == "part":
            words, written = (0,) * len(words), (0,) * len(written)
        return numbered(words), numbered(["start"] * len(prefix.prompt) + list(written))

    def part(self, number: int, relevance: Relevance, prefix: Prefix, source_tokens: bool) -> Parted:
        """The relevance as it is: the encoder's input is the source."""
        return Parted(relevance, prefix)

    def forward_batch(self, model: PreTrainedModel, numbers: Sequence[int], prefixes: Sequence[Prefix]) -> Batch:
        """The decoder's inputs go up to the last target token, which links are read from where there is room."""
        sources = [self.sources.items[number] for number in numbers]
        inputs, _ = self.batch(model, sources, {})
        rows = [torch.cat([p.prompt, p.ids])[: self.prompts.vocabulary.limit] for p in prefixes]
        inputs["decoder_input_ids"] = pad_sequence(rows, True, self.prompts.vocabulary.pad or 0)
        sizes = [len(self.sources.describe(source).tokens) for source in sources]
        return Batch(
            inputs,
            lengths=[len(row) for row in rows],
            first=[len(p.prompt) - 1 for p in prefixes],
            attended=sizes,
            places=[torch.arange(size) for size in sizes],
        )

    def generate(
        self, model: PreTrainedModel, batch_size: int, options: dict[str, Any], progress: bool
    ) -> list[Prefix]:
        """Translations: what the model writes for each source, up to and including the end of the sentence."""
        require_one_sequence(options)
        items = self.sources.items
        results: list[Prefix | None] = [None] * len(items)
        by_length = sorted(range(len(items)), key=lambda i: items[i].shape[-1], reverse=True)
        with tqdm(total=len(items), desc="Generating", unit="sentence", disable=not progress) as bar:
            for start in range(0, len(by_length), batch_size):
                numbers = by_length[start : start + batch_size]
                rows, prompt_length = self._generate(model, [items[i] for i in numbers], options)
                for number, ids in zip(numbers, rows, strict=True):
                    results[number] = self.prompts.read_generated(ids, prompt_length, number)
                bar.update(len(numbers))
        return [prefix for prefix in results if prefix is not None]

    def _generate(
        self, model: PreTrainedModel, batch: list[Tensor], options: dict[str, Any]
    ) -> tuple[list[list[int]], int]:
        """One batch's rows, from the first decoder input on, and how many tokens of them were put in."""
        inputs, settings = self.batch(model, batch, options)
        watch = _Watch()
        settings |= options | {"logits_processor": [*options.get("logits_processor", ()), watch]}
        with torch.no_grad():
            output = cast(Any, model).generate(
                **{name: tensor.to(model.device) for name, tensor in inputs.items()},
                **(settings | {"return_dict_in_generate": True}),
            )
        return output.sequences.tolist(), watch.prompt_length

    def batch(
        self, model: PreTrainedModel, batch: list[Tensor], options: dict[str, Any]
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Padded ids with their mask, and settings that prompt the decoder as `DecoderPrompts` does."""
        prompts, vocabulary = self.prompts, self.prompts.vocabulary
        ids = pad_sequence(batch, batch_first=True, padding_value=vocabulary.pad or 0)
        mask = pad_sequence([torch.ones_like(row) for row in batch], batch_first=True)
        config = options.get("generation_config") or model.generation_config
        forced = prompts.forced[0] if prompts.forced else None
        wanted = {"decoder_start_token_id": prompts.require_start(), "forced_bos_token_id": forced}
        settings = {name: i for name, i in wanted.items() if i not in (None, getattr(config, name))}
        if not has_length_limit(model, options):  # transformers' own default would cut at 20 tokens
            limit = 3 * ids.shape[1] + 20
            settings["max_new_tokens"] = limit if vocabulary.limit is None else min(limit, vocabulary.limit - 1)
        return {"input_ids": ids, "attention_mask": mask}, settings


class _Watch(LogitsProcessor):
    """Notes how many tokens the decoder is given before it writes: a language or a prompt may follow the start."""

    prompt_length = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.prompt_length = self.prompt_length or input_ids.shape[1]
        return scores


def has_length_limit(model: PreTrainedModel, options: dict[str, Any]) -> bool:
    """Whether the user or the checkpoint limits how much is written."""
    config = model.generation_config
    chosen = ("max_length", "max_new_tokens", "generation_config")
    return (
        any(name in options for name in chosen) or bool(config.max_new_tokens) or config.max_length not in (None, 20)
    )
