"""What the decoder is conditioned on: a given target, what the model writes itself, or an unrelated sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm
from transformers import LogitsProcessor, PreTrainedModel

from hf_lrp.inputs.ids import Sources, plain, read_sentences
from hf_lrp.models.configs import START_UNKNOWN, as_list, generation_config_of, position_limit, start_token
from hf_lrp.models.vocabulary import Vocabulary


class Prefix(NamedTuple):
    """``prompt`` [n]: the decoder's start token and the tokens forced after it; ``ids`` [T]: the target tokens."""

    prompt: Tensor
    ids: Tensor

    @property
    def decoder_ids(self) -> Tensor:
        """The decoder's input, [n + T - 1]."""
        return torch.cat([self.prompt, self.ids[:-1]])

    @property
    def steps(self) -> slice:
        """The decoder positions that predict the target tokens, from that of the last forced token on."""
        forced = len(self.prompt) - 1
        return slice(forced, forced + len(self.ids))


class DecoderPrompts:
    """What a decoder is prompted with: its start token, then tokens that are forced, not predicted.

    Forced is ``forced_bos_token_id``, of the options for `generate` or else of the model's configs, or else the
    language and task tokens that the tokenizer puts in front of targets. Token ids may bring their own.
    """

    def __init__(self, model: PreTrainedModel, vocabulary: Vocabulary, options: dict[str, Any]) -> None:
        configs = (options.get("generation_config"), generation_config_of(model), model.config)
        around = vocabulary.around_target
        self.vocabulary = vocabulary
        self.chosen: int | None = options.get("forced_bos_token_id")
        self.start = _first(
            [
                options.get("decoder_start_token_id"),
                getattr(configs[0], "decoder_start_token_id", None),
                start_token(model),
            ]
        )
        # mBART-25 starts with the language token that stands behind its labels
        self.start_of_language = around.after[-1] if around.after else None
        bos = _first([self.chosen, *_values(configs, "forced_bos_token_id")])
        languages = [i for i in around.before if i != self.start and i not in vocabulary.ends]
        self.forced = languages if bos is None else [bos]
        self.written_ends = set(as_list(options.get("eos_token_id", (configs[0] or configs[1]).eos_token_id)))

    def read(self, ids: list[int], number: int) -> Prefix:
        """The prefix of target ids that come with or without start and forced tokens and a language after the end."""
        ids, last = self._part_language_after_end(ids)
        start = self.require_start(last)
        if len(ids) > 1 and ids[0] == start:
            ids = ids[1:]
        own = self._forced_in_front(ids)
        forced = self.forced if self.chosen is not None or not own else own
        return self._prefix([start, *forced], ids[len(own) :], number)

    def read_generated(self, ids: list[int], prompt_length: int, number: int) -> Prefix:
        """The prefix of what `generate` returned, given how many tokens were put in before the first was written."""
        if prompt_length == 1 and ids[1] in {*self.forced, *self.vocabulary.language_tokens}:
            prompt_length = 2  # `forced_bos_token_id` works on what is written first
        prompt, written = ids[:prompt_length], ids[prompt_length:]
        stop = next((n + 1 for n, i in enumerate(written) if i in self.written_ends), len(written))
        return self._prefix(prompt, written[:stop], number)

    def require_start(self, found: int | None = None) -> int:
        """The start token: the config's, one found behind the labels, or the tokenizer's target language."""
        start = _first([self.start, found, self.start_of_language])
        if start is None:
            language = "" if self.vocabulary.knows_language else ", or set tokenizer.tgt_lang to the target's language"
            raise ValueError(f"{START_UNKNOWN}{language}.")
        return start

    def _part_language_after_end(self, ids: list[int]) -> tuple[list[int], int | None]:
        """Labels of mBART-25 have the language token, which the decoder starts with, behind the end."""
        behind = len(ids) > 1 and ids[-2] in self.vocabulary.ends
        if behind and (self.start is None or ids[-1] in {self.start, *self.vocabulary.language_tokens}):
            return ids[:-1], ids[-1]
        return ids, None

    def _forced_in_front(self, ids: list[int]) -> list[int]:
        forced = {*self.forced, *self.vocabulary.language_tokens}
        return list(takewhile(lambda i: i in forced, ids))

    def _prefix(self, prompt: list[int], ids: list[int], number: int) -> Prefix:
        if not ids:
            raise ValueError(f"target {number} has no tokens: there is nothing to explain.")
        decoder_ids = self.vocabulary.check([*prompt, *ids[:-1]], "target", number)
        last = self.vocabulary.check(ids[-1:], "target", number)
        return Prefix(decoder_ids[: len(prompt)], torch.cat([decoder_ids[len(prompt) :], last]))


def _values(configs: Iterable[Any], name: str) -> list[int | None]:
    return [getattr(config, name, None) for config in configs]


def _first(values: Iterable[int | None]) -> int | None:
    return next((value for value in values if value is not None), None)


def read_targets(given: Any, prompts: DecoderPrompts) -> tuple[list[Prefix], bool]:
    """Prefixes from given targets, and whether a single one was given."""
    vocabulary, given = prompts.vocabulary, plain(given, "target")
    is_text = isinstance(given, str) or (isinstance(given, list) and isinstance(next(iter(given), None), str))
    if is_text and vocabulary.lacks_language and not prompts.forced:
        raise ValueError(
            "The tokenizer does not know the target's language, which the decoder is prompted with. Set "
            "tokenizer.tgt_lang, or pass the language's token as forced_bos_token_id=..."
        )
    sentences, single = read_sentences(given, vocabulary, "target")
    return [prompts.read(ids, number) for number, ids in enumerate(sentences)], single


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Random numbers from ``seed`` inside, and the caller's go on afterwards as if nothing had been drawn."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def require_one_sequence(options: dict[str, Any]) -> None:
    """Raise where `generate` is asked for several translations of a source."""
    if options.get("num_return_sequences", 1) != 1:
        raise ValueError("num_return_sequences must be 1: there is one explanation per source.")


def generate_targets(
    model: PreTrainedModel,
    sources: Sources,
    prompts: DecoderPrompts,
    batch_size: int,
    progress: bool,
    options: dict[str, Any],
) -> list[Prefix]:
    """What the model writes for each source, up to and including the end of the sentence."""
    require_one_sequence(options)
    items = sources.items
    results: list[Prefix | None] = [None] * len(items)
    by_length = sorted(range(len(items)), key=lambda i: items[i].shape[-1], reverse=True)
    with tqdm(total=len(items), desc="Generating", unit="sentence", disable=not progress) as bar:
        for start in range(0, len(by_length), batch_size):
            numbers = by_length[start : start + batch_size]
            batch = [items[i] for i in numbers]
            rows, prompt_length = _generate(model, sources.argument, batch, prompts, options)
            for number, ids in zip(numbers, rows, strict=True):
                results[number] = prompts.read_generated(ids, prompt_length, number)
            bar.update(len(numbers))
    return [prefix for prefix in results if prefix is not None]


def _generate(
    model: PreTrainedModel, argument: str, batch: list[Tensor], prompts: DecoderPrompts, options: dict[str, Any]
) -> tuple[list[list[int]], int]:
    """One batch's rows, from the first decoder input on, and how many tokens of them were put in."""
    if argument == "input_ids":
        inputs, settings = _text_inputs(model, batch, prompts, options)
    else:
        inputs, settings = _audio_inputs(model, batch, options)
    watch = _Watch()
    settings |= options | {"logits_processor": [*options.get("logits_processor", ()), watch]}
    with torch.no_grad():
        output = cast(Any, model).generate(
            **{name: tensor.to(model.device) for name, tensor in inputs.items()},
            **(settings | {"return_dict_in_generate": True}),
        )
    return output.sequences.tolist(), watch.prompt_length


class _Watch(LogitsProcessor):
    """Notes how many tokens the decoder is given before it writes: a language or a prompt may follow the start."""

    prompt_length = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.prompt_length = self.prompt_length or input_ids.shape[1]
        return scores


def _text_inputs(
    model: PreTrainedModel, batch: list[Tensor], prompts: DecoderPrompts, options: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Padded ids with their mask, and settings that prompt the decoder as `DecoderPrompts` does."""
    vocabulary = prompts.vocabulary
    ids = pad_sequence(batch, batch_first=True, padding_value=vocabulary.pad or 0)
    mask = pad_sequence([torch.ones_like(row) for row in batch], batch_first=True)
    config = options.get("generation_config") or model.generation_config
    wanted = {"decoder_start_token_id": prompts.require_start(), "forced_bos_token_id": _first(prompts.forced)}
    settings = {name: i for name, i in wanted.items() if i not in (None, getattr(config, name))}
    if not _has_length_limit(model, options):  # transformers' own default would cut at 20 tokens
        limit = 3 * ids.shape[1] + 20
        settings["max_new_tokens"] = limit if vocabulary.limit is None else min(limit, vocabulary.limit - 1)
    return {"input_ids": ids, "attention_mask": mask}, settings


def _audio_inputs(
    model: PreTrainedModel, batch: list[Tensor], options: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Features of one length, and settings that make Whisper return all tokens, also those it opens with."""
    settings: dict[str, Any] = {"force_unique_generate_call": True}
    if not _has_length_limit(model, options):
        settings["max_length"] = position_limit(model)
    features = torch.stack(batch).to(model.dtype)
    mask = features.new_ones(len(features), features.shape[-1], dtype=torch.long)
    return {"input_features": features, "attention_mask": mask}, settings


def _has_length_limit(model: PreTrainedModel, options: dict[str, Any]) -> bool:
    """Whether the user or the checkpoint limits how much is written."""
    config = model.generation_config
    chosen = ("max_length", "max_new_tokens", "generation_config")
    return (
        any(name in options for name in chosen) or bool(config.max_new_tokens) or config.max_length not in (None, 20)
    )


def shuffle_targets(targets: Sequence[Prefix], seed: int) -> list[Prefix]:
    """Each sentence gets another one's target, by one random cycle through all of them, after its own prompt."""
    if len(targets) < 2:
        raise ValueError(
            "A random prefix is another sentence's target, and there is only one sentence. Pass more sentences with "
            "their targets, or unrelated target sentences as pool=[...]."
        )
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(targets), generator=generator).tolist()
    following = {number: order[(place + 1) % len(order)] for place, number in enumerate(order)}
    return [
        Prefix(own.prompt, targets[_first_unequal(targets, number, following)].ids)
        for number, own in enumerate(targets)
    ]


def _first_unequal(targets: Sequence[Prefix], number: int, following: dict[int, int]) -> int:
    """The next sentence along the cycle whose target is not the same."""
    other = following[number]
    while other != number and torch.equal(targets[other].ids, targets[number].ids):
        other = following[other]
    if other == number:
        raise ValueError("All targets are equal, so none is an unrelated prefix. Pass other sentences as pool=[...].")
    return other


def draw_from_pool(pool: Sequence[Prefix], targets: Sequence[Prefix] | None, count: int, seed: int) -> list[Prefix]:
    """For each of ``count`` sentences a target from ``pool``, never its own, after its own prompt if it has one."""
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    for number, place in enumerate(torch.randint(len(pool), (count,), generator=generator).tolist()):
        own = None if targets is None else targets[number]
        candidates = [*pool[place:], *pool[:place]]
        unrelated = next((other for other in candidates if own is None or not torch.equal(other.ids, own.ids)), None)
        if unrelated is None:
            raise ValueError(f"The pool holds nothing but the target of sentence {number}. Add unrelated sentences.")
        drawn.append(unrelated if own is None else Prefix(own.prompt, unrelated.ids))
    return drawn
