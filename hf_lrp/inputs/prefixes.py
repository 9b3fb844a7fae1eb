"""Prefixes, which condition a decoder: a given target, what the model writes itself, or an unrelated sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_lrp.inputs.ids import plain, read_sentences
from hf_lrp.models.configs import START_UNKNOWN, as_list, generation_config_of, start_token
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
    """Prompt of a decoder: its start token, then tokens that are forced, not predicted.

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
        # what Whisper is told that was said before stands between this token and the start
        self.text_before = _first([*_values(configs, "prev_sot_token_id"), vocabulary.id_of("<|startofprev|>")])
        self.written_ends = set(as_list(options.get("eos_token_id", (configs[0] or configs[1]).eos_token_id)))

    def read(self, ids: list[int], number: int) -> Prefix:
        """The prefix of target ids that come with or without start and forced tokens and a language after the end."""
        ids, last = self._part_language_after_end(ids)
        start = self.require_start(last)
        given, ids = self._part_at_start(ids, start)
        own = self._forced_in_front(ids)
        forced = self.forced if self.chosen is not None or not own else own
        return self._prefix([*given, start, *forced], ids[len(own) :], number)

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

    def _part_at_start(self, ids: list[int], start: int) -> tuple[list[int], list[int]]:
        """Ids before and after the start token: none before it, but for Whisper's text of before."""
        if len(ids) > 1 and ids[0] == start:
            return [], ids[1:]
        if ids[:1] == [self.text_before] and start in ids:
            return ids[: ids.index(start)], ids[ids.index(start) + 1 :]
        return [], ids

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
