"""Sources, targets and results of models that are a decoder only, whose source stands in a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedModel, StoppingCriteria

from hf_lrp.data.vocabulary import Vocabulary
from hf_lrp.explaining.inputs import Sources, describe_tokens, read_sentences
from hf_lrp.explaining.prefixes import Prefix
from hf_lrp.explaining.prompts import ReadPrompt, read_prompt, tokenize_prompt
from hf_lrp.relevance.propagation import Relevance
from hf_lrp.result.contributions import Contributions
from hf_lrp.result.spans import Span

_LENGTHS = ("max_length", "max_new_tokens", "generation_config")


class Prompted(NamedTuple):
    """The prompts of all sources. ``is_chat``: a chat template made them, and the answer's end is written too."""

    vocabulary: Vocabulary
    prompts: list[ReadPrompt]
    is_chat: bool

    def read_targets(self, given: Any) -> tuple[list[Prefix], bool]:
        """Given targets as prefixes, and whether a single one was given; as many as there are sources, or a pool."""
        is_text = isinstance(given, str) or (isinstance(given, Sequence) and isinstance(next(iter(given), None), str))
        if is_text:
            single, texts = isinstance(given, str), [given] if isinstance(given, str) else list(given)
            sentences = [self._encode(text, number) for number, text in enumerate(texts)]
        else:
            sentences, single = read_sentences(given, self.vocabulary, "target")
        return [self.prefix(number % len(self.prompts), ids) for number, ids in enumerate(sentences)], single

    def prefix(self, number: int, ids: Sequence[int]) -> Prefix:
        """Target ids after the prompt of a source."""
        if not len(ids):
            raise ValueError(f"target {number} has no tokens: there is nothing to explain.")
        prompt = self.prompts[number].ids
        checked = self.vocabulary.check([*prompt.tolist(), *ids], "target", number)
        return Prefix(prompt, checked[len(prompt) :])

    def _encode(self, text: str, number: int) -> list[int]:
        if not text.strip():
            raise ValueError(f"target {number} is empty: there is nothing to explain. Remove it or give it text.")
        tokenizer: Any = self.vocabulary.tokenizer
        prompt = self.prompts[number % len(self.prompts)].text
        apart = self.is_chat or prompt[-1:].isspace() or text[:1].isspace()
        ids: list[int] = tokenizer(text if apart else " " + text, add_special_tokens=False, verbose=False)["input_ids"]
        ends = [tokenizer.eos_token_id] if self.is_chat and tokenizer.eos_token_id is not None else []
        return ids + ends

    def generate(self, model: PreTrainedModel, options: dict[str, Any], progress: bool) -> list[Prefix]:
        """What the model writes after each prompt; after a text prompt, its first line."""
        tokenizer: Any = self.vocabulary.tokenizer
        settings: dict[str, Any] = {"return_dict_in_generate": True}
        if not self.is_chat:
            settings["stopping_criteria"] = [_EndOfLine(tokenizer)]
        if model.generation_config.pad_token_id is None and self.vocabulary.ends:
            settings["pad_token_id"] = min(self.vocabulary.ends)
        results = []
        for number, prompt in enumerate(tqdm(self.prompts, desc="Generating", unit="sentence", disable=not progress)):
            limit = {} if any(name in options for name in _LENGTHS) else {"max_new_tokens": self._limit(prompt)}
            ids = prompt.ids[None].to(model.device)
            with torch.no_grad():
                output = cast(Any, model).generate(
                    input_ids=ids, attention_mask=torch.ones_like(ids), **(settings | limit | options)
                )
            results.append(self.prefix(number, self._written(output.sequences[0, len(prompt.ids) :].tolist())))
        return results

    def _limit(self, prompt: ReadPrompt) -> int:
        limit = 3 * len(prompt.places["source"]) + 20
        room = self.vocabulary.limit
        return limit if room is None else max(1, min(limit, room - len(prompt.ids)))

    def _written(self, ids: list[int]) -> list[int]:
        """Up to and including the end, or up to the end of the line."""
        for number, i in enumerate(ids):
            if i in self.vocabulary.ends:
                return ids[: number + 1]
            if not self.is_chat and number and "\n" in cast(Any, self.vocabulary.tokenizer).decode([i]):
                return ids[:number]
        return ids

    def cut(self, number: int, relevance: Relevance, prefix: Prefix, source_tokens: bool) -> tuple[Relevance, Prefix]:
        """As if an encoder had read the source, and the decoder started with the rest of the prompt."""
        prompt = self.prompts[number]
        own = prompt.places["source"]
        rest = [place for place in range(len(prompt.ids)) if place not in set(own)]
        decoder = torch.cat([relevance.decoder[:, rest], relevance.decoder[:, len(prompt.ids) :]], 1)
        source = relevance.decoder[:, own]
        parted = replace(relevance, source=source if source_tokens else source.sum(1, True), decoder=decoder)
        return parted, Prefix(prompt.ids[rest], prefix.ids)

    def with_spans(self, number: int, raw: Tensor, result: Contributions) -> Contributions:
        """The result with the shares of all parts of the prompt; raw: [steps, all tokens]."""
        prompt = self.prompts[number]
        spans = {
            name: Span(self.vocabulary.tokens(prompt.ids[places], "source"), raw[:, places])
            for name, places in prompt.places.items()
            if name != "source"
        }
        return replace(result, spans=spans, notes=(*result.notes, *prompt.notes))


class _EndOfLine(StoppingCriteria):
    """Stops where a new line was written."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        last = ["\n" in self.tokenizer.decode([i]) for i in input_ids[:, -1].tolist()]
        return torch.tensor(last, device=input_ids.device)


def read_prompted(source: Any, prompt: Any, vocabulary: Vocabulary) -> tuple[Sources, Prompted]:
    """Sources, which must be texts, in their prompts."""
    if vocabulary.tokenizer is None:
        raise ValueError("A model without an encoder reads its source in a prompt, which needs the model's tokenizer.")
    single = isinstance(source, str)
    texts = [source] if isinstance(source, str) else list(source)
    if not texts or not all(isinstance(text, str) for text in texts):
        raise TypeError("A model without an encoder takes its sources as texts, which are put into the prompt.")
    template = read_prompt(prompt, vocabulary.tokenizer)
    read = []
    for number, text in enumerate(texts):
        if not text.strip():
            raise ValueError(f"source {number} is empty: there is nothing to explain. Remove it or give it text.")
        read.append(tokenize_prompt(template, template.values(text, number, len(texts)), vocabulary.tokenizer))
    items = [one.ids[one.places["source"]] for one in read]
    sources = Sources("input_ids", items, single, partial(describe_tokens, vocabulary))
    return sources, Prompted(vocabulary, read, template.is_chat)
