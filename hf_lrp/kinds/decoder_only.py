"""Models that are a decoder only, whose source stands in a prompt: sources, targets and results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm
from transformers import PreTrainedModel, StoppingCriteria

from hf_lrp.inputs.ids import Sources, describe_tokens, plain, read_sentences
from hf_lrp.inputs.options import require_no_forced_tokens
from hf_lrp.inputs.prefixes import Prefix, require_one_sequence
from hf_lrp.inputs.prompts import Prompt, ReadPrompt, read_prompt, tokenize_prompt
from hf_lrp.kinds.kind import Asked, Batch, Parted, numbered
from hf_lrp.methods.method import Groups
from hf_lrp.models.families import Family
from hf_lrp.models.passes import Relevance
from hf_lrp.models.vocabulary import Side, Vocabulary, require_text
from hf_lrp.results.spans import Span

_LENGTHS = ("max_length", "max_new_tokens", "generation_config")


class DecoderOnly:
    """Llama, GPT-2 and their like."""

    def includes(self, family: Family) -> bool:
        """Whether there is no encoder."""
        return family.encoder is None

    def read(self, asked: Asked) -> Prompted:
        """Texts, in their prompts."""
        require_no_forced_tokens(asked.options)
        return read_prompted(asked.source, asked.prompt, asked.vocabulary)

    def corpus_prompt(self, model: PreTrainedModel, tokenizer: Any, prompt: Any) -> Prompt | None:
        """The prompt that all sentences of a corpus are read in."""
        read = read_prompt(prompt, tokenizer)
        for name, part in read.parts.items():
            if not isinstance(part, str):
                raise TypeError(f"The part {name!r} of the prompt must be one text for all sentences of the corpus.")
        return read

    def count_tokens(self, asked: Asked, targets: Sequence[str]) -> Iterator[tuple[int, int]]:
        """More target tokens than there are positions where the prompt has no room."""
        read = self.read(asked)
        for number, (item, target) in enumerate(zip(read.sources.items, targets, strict=True)):
            written, room = len(read.encode(target, number)), asked.vocabulary.limit
            fits = room is None or len(read.prompts[number].ids) + written <= room
            yield len(item), written if fits else cast(int, room) + 1

    def keeps(self, vocabulary: Vocabulary, prompt: Prompt | None, ids: Sequence[int]) -> bool:
        """Whether what was written after the prompt becomes text and the same tokens again; ends aside."""
        return read_prompted("a", prompt, vocabulary).keeps(ids, 0)


class Prompted(NamedTuple):
    """The prompts of all sources. ``is_chat``: a chat template made them, and the answer's end is written too."""

    vocabulary: Vocabulary
    sources: Sources
    prompts: list[ReadPrompt]
    is_chat: bool

    @property
    def longest(self) -> int:
        """The length of the longest prompt."""
        return max(len(prompt.ids) for prompt in self.prompts)

    def follow(self, number: int, prefix: Prefix) -> Prefix:
        """Another sentence's target after the prompt of this source."""
        return self.prefix(number, prefix.ids.tolist())

    def read_targets(self, given: Any) -> tuple[list[Prefix], bool]:
        """Given targets as prefixes, and whether a single one was given; as many as there are sources, or a pool."""
        given = plain(given, "target")
        if isinstance(given, str) or (isinstance(given, list) and isinstance(next(iter(given), None), str)):
            single, texts = isinstance(given, str), [given] if isinstance(given, str) else given
            sentences = [self.encode(text, number) for number, text in enumerate(_require_texts(texts, "target"))]
        else:
            sentences, single = read_sentences(given, self.vocabulary, "target")
            sentences = [self._without_prompt(number, ids) for number, ids in enumerate(sentences)]
        return [self.prefix(number, ids) for number, ids in enumerate(sentences)], single

    def _without_prompt(self, number: int, ids: list[int]) -> list[int]:
        """Target ids in what `generate` returned, which begins with the prompt."""
        prompt = self.prompts[number % len(self.prompts)].ids.tolist()
        return ids[len(prompt) :] if ids[: len(prompt)] == prompt else ids

    def prefix(self, number: int, ids: Sequence[int]) -> Prefix:
        """Target ids after the prompt of a source; those of a pool that is larger than the sources go round."""
        if not len(ids):
            raise ValueError(f"target {number} has no tokens: there is nothing to explain.")
        prompt = self.prompts[number % len(self.prompts)].ids
        room = self.vocabulary.limit
        if room is not None and len(prompt) + len(ids) > room:
            raise ValueError(
                f"The prompt around source {number} has {len(prompt)} tokens and the target {len(ids)}, but the model "
                f"has only {room} positions. Shorten the prompt, or split the sentence."
            )
        checked = self.vocabulary.check([*prompt.tolist(), *ids], "target", number)
        return Prefix(prompt, checked[len(prompt) :])

    def encode(self, text: str, number: int) -> list[int]:
        """The ids of a target after the prompt of a source, with the end of the answer after chat messages."""
        tokenizer: Any = self.vocabulary.tokenizer
        prompt = self.prompts[number % len(self.prompts)].text
        apart = self.is_chat or prompt[-1:].isspace() or text[:1].isspace()
        ids: list[int] = tokenizer(text if apart else " " + text, add_special_tokens=False, verbose=False)["input_ids"]
        ends = [tokenizer.eos_token_id] if self.is_chat and tokenizer.eos_token_id is not None else []
        return ids + ends

    def keeps(self, ids: Sequence[int], number: int) -> bool:
        """Whether the ids that the model wrote become text and the same ids again; ends aside."""
        tokenizer: Any = self.vocabulary.tokenizer
        text = str(tokenizer.decode(list(ids), skip_special_tokens=True)).strip()
        again = self.encode(text, number) if text else []
        return bool(text) and [i for i in again if i not in self._ends] == [i for i in ids if i not in self._ends]

    @property
    def _ends(self) -> set[int | None]:
        return {*self.vocabulary.ends, cast(Any, self.vocabulary.tokenizer).eos_token_id}

    def generate(
        self, model: PreTrainedModel, batch_size: int, options: dict[str, Any], progress: bool
    ) -> list[Prefix]:
        """Prefixes that the model writes after each prompt; after a text prompt, its first line."""
        require_one_sequence(options)
        results: dict[int, Prefix] = {}
        by_length = sorted(range(len(self.prompts)), key=lambda number: -len(self.prompts[number].ids))
        with tqdm(total=len(by_length), desc="Generating", unit="sentence", disable=not progress) as bar:
            for start in range(0, len(by_length), batch_size):
                numbers = by_length[start : start + batch_size]
                for number, ids in zip(numbers, self._generate(model, numbers, options), strict=True):
                    results[number] = self.prefix(number, ids)
                bar.update(len(numbers))
        return [results[number] for number in range(len(results))]

    def _generate(self, model: PreTrainedModel, numbers: Sequence[int], options: dict[str, Any]) -> list[list[int]]:
        """Ids that are written after some of the prompts, which are padded in front to one length."""
        batch = [self.prompts[number].ids for number in numbers]
        pad = model.generation_config.pad_token_id
        pad = min(self.vocabulary.ends, default=0) if pad is None else pad
        ids = pad_sequence(batch, batch_first=True, padding_value=pad, padding_side="left")
        mask = pad_sequence([torch.ones_like(row) for row in batch], batch_first=True, padding_side="left")
        limits = [self._limit(self.prompts[number]) for number in numbers]
        settings: dict[str, Any] = {"pad_token_id": pad}
        limited = any(name in options for name in _LENGTHS) or bool(model.generation_config.max_new_tokens)
        if not limited:
            settings["max_new_tokens"] = max(limits)
        if not self.is_chat:
            settings["stopping_criteria"] = [_EndOfLine(self.vocabulary.tokenizer)]
        inputs = {"input_ids": ids.to(model.device), "attention_mask": mask.to(model.device)}
        with torch.no_grad():
            output = cast(Any, model).generate(**inputs, **(settings | options | {"return_dict_in_generate": True}))
        rows = output.sequences[:, ids.shape[1] :].tolist()
        cut = [row if limited else row[:limit] for row, limit in zip(rows, limits, strict=True)]
        return [self._written(row) for row in cut]

    def forward_batch(self, model: PreTrainedModel, numbers: Sequence[int], prefixes: Sequence[Prefix]) -> Batch:
        """Each prompt with its target behind it; padding stands at the end."""
        rows = [torch.cat([p.prompt, p.ids])[: self.vocabulary.limit] for p in prefixes]
        inputs = {
            "input_ids": pad_sequence(rows, True, self.vocabulary.pad or 0),
            "attention_mask": pad_sequence([torch.ones_like(row) for row in rows], True),
        }
        return Batch(
            inputs,
            lengths=[len(row) for row in rows],
            first=[len(p.prompt) - 1 for p in prefixes],
            attended=[len(row) for row in rows],
            places=[torch.tensor(self.prompts[number].places["source"]) for number in numbers],
        )

    def _limit(self, prompt: ReadPrompt) -> int:
        limit = 3 * len(prompt.places["source"]) + 20
        room = self.vocabulary.limit
        return limit if room is None else max(1, min(limit, room - len(prompt.ids)))

    def _written(self, ids: list[int]) -> list[int]:
        """Up to and including the end, or up to the end of the line; what follows is padding."""
        for number, i in enumerate(ids):
            if i in self.vocabulary.ends:
                return ids[: number + 1]
            if not self.is_chat and "\n" in cast(Any, self.vocabulary.tokenizer).decode([i]):
                return ids[: max(number, 1)]
        return ids

    def group(self, number: int, prefix: Prefix, unit: str) -> Groups:
        """Words of each part of the prompt and of the target, or these parts as they are."""
        prompt = self.prompts[number]
        part_of = {place: name for name, places in prompt.places.items() for place in places}
        parts = [
            *((part_of[place], "prompt") for place in range(len(prompt.ids))),
            *[("", "target")] * len(prefix.ids),
        ]
        words = self.vocabulary.words(prompt.ids, "target"), self.vocabulary.words(prefix.ids, "target")
        members = [0] * len(parts) if unit == "part" else [*words[0], *words[1]]
        return [], numbered(list(zip(parts, members, strict=True))[:-1])

    def part(self, number: int, relevance: Relevance, prefix: Prefix, source_tokens: bool) -> Parted:
        """As if an encoder had read the source, and the decoder started with the rest of the prompt."""
        prompt, raw = self.prompts[number], relevance.decoder
        own = prompt.places["source"]
        rest = [place for place in range(len(prompt.ids)) if place not in set(own)]
        decoder = torch.cat([raw[:, rest], raw[:, len(prompt.ids) :]], 1)
        source = raw[:, own] if source_tokens else raw[:, own].sum(1, True)
        spans = {
            name: Span(self.vocabulary.tokens(prompt.ids[places], "source"), raw[:, places])
            for name, places in prompt.places.items()
            if name != "source"
        }
        parted = replace(relevance, source=source, decoder=decoder)
        return Parted(parted, Prefix(prompt.ids[rest], prefix.ids), spans, prompt.notes)


class _EndOfLine(StoppingCriteria):
    """Stops where a new line was written."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        last = ["\n" in self.tokenizer.decode([i]) for i in input_ids[:, -1].tolist()]
        return torch.tensor(last, device=input_ids.device)


def read_prompted(source: Any, prompt: Any, vocabulary: Vocabulary) -> Prompted:
    """Sources, which must be texts, in their prompts."""
    if vocabulary.tokenizer is None:
        raise ValueError("A model without an encoder reads its source in a prompt, which needs the model's tokenizer.")
    given = plain(source, "source")
    if not isinstance(given, str | list) or not all(isinstance(text, str) for text in given):
        raise TypeError(
            "A model without an encoder takes its sources as texts: they are put into the prompt, and how they are "
            "split depends on what stands around them. Decode ids first."
        )
    single, texts = isinstance(given, str), [given] if isinstance(given, str) else given
    if not texts:
        raise ValueError("source is empty: pass at least one sentence.")
    template = read_prompt(prompt, vocabulary.tokenizer)
    read = [
        tokenize_prompt(template, template.values(text, number, len(texts)), vocabulary.tokenizer)
        for number, text in enumerate(_require_texts(texts, "source"))
    ]
    items = [one.ids[one.places["source"]] for one in read]
    sources = Sources("input_ids", items, single, partial(describe_tokens, vocabulary))
    return Prompted(vocabulary, sources, read, template.is_chat)


def _require_texts(texts: Sequence[Any], side: Side) -> Sequence[str]:
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if wrong is not None:
        raise TypeError(f"{side} mixes kinds: one item is a {type(wrong).__name__}. Pass all text or all ids.")
    require_text(texts, side)
    return texts
