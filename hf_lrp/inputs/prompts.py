"""Prompts of models that are a decoder only: templates, chat messages, and which token belongs to which part.

A prompt is rendered with its parts' places known, so that tokens are given to parts by offsets, never by searching
for text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jinja2 import TemplateError
from torch import Tensor
from transformers import PreTrainedTokenizerBase

# What a model is asked where the user gives no prompt. Better: say the languages, and show examples.
CHAT_PROMPT: tuple[dict[str, str], ...] = ({"role": "user", "content": "Translate this sentence: {source}"},)
TEXT_PROMPT = "Sentence: {source}\nTranslation:"

FIRST, TEMPLATE = "first token", "template"
_RESERVED = ("target", FIRST, TEMPLATE)
_FIELD = re.compile(r"\{([^{}]*)\}")
_MARK = 0xE000  # private use characters stand for the parts while a chat template is rendered


@dataclass(frozen=True)
class Prompt:
    """A template with ``{source}`` and other named parts, and what these hold.

    Args:
        template: a text, or chat messages, dictionaries with ``role`` and ``content``, for the tokenizer's chat
            template. ``{{`` and ``}}`` stand for braces.
        parts: what the other names in the template stand for: a text, or a list with one for each source.
    """

    template: str | Sequence[Mapping[str, str]]
    parts: Mapping[str, str | Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_texts(self.template, self.parts)
        names = self.names
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"The prompt has {{{name}}} more than once: each part needs a name of its own.")
            if not name.strip() or name in _RESERVED:
                raise ValueError(f"A part of the prompt cannot be called {name!r}: choose another name.")
        if "source" in self.parts:
            raise ValueError("A part of the prompt cannot be called 'source': that is what explain() is given.")
        if "source" not in names:
            raise ValueError("The prompt has no {source}: write {source} where the source sentence goes.")
        missing = [name for name in names if name != "source" and name not in self.parts]
        if missing:
            raise ValueError(
                f"The prompt has {{{missing[0]}}}, but nothing to put there: pass Prompt(template, "
                f"{{{missing[0]!r}: ...}}). ({{{{ and }}}} stand for braces.)"
            )
        unused = [name for name in self.parts if name not in names]
        if unused:
            raise ValueError(f"The prompt's template has no {{{unused[0]}}} for the part of that name.")

    @property
    def is_chat(self) -> bool:
        """Whether the template is chat messages."""
        return not isinstance(self.template, str)

    @property
    def names(self) -> list[str]:
        """The parts' names, in order."""
        contents = [m["content"] for m in self.template] if not isinstance(self.template, str) else [self.template]
        return [name for text in contents for _, name in _pieces(text) if name is not None]

    @property
    def settings(self) -> dict[str, Any]:
        """Template and parts for files, as JSON has them."""
        template = self.template if isinstance(self.template, str) else [dict(m) for m in self.template]
        return {"template": template, "parts": dict(self.parts)}

    def values(self, source: str, number: int, count: int) -> dict[str, str]:
        """Values of each name, for one of ``count`` sources."""
        values = {"source": source}
        for name, part in self.parts.items():
            if not isinstance(part, str) and len(part) != count:
                raise ValueError(f"The part {name!r} of the prompt has {len(part)} texts for {count} sources.")
            values[name] = part if isinstance(part, str) else part[number]
        return values


class ReadPrompt(NamedTuple):
    """One source's prompt: ``ids`` [P], and for each part the places of its tokens; ``notes`` for the reader."""

    ids: Tensor
    places: dict[str, list[int]]
    notes: tuple[str, ...]
    text: str


def read_prompt(given: Any, tokenizer: PreTrainedTokenizerBase) -> Prompt:
    """The prompt that a user passes: a template, chat messages, a Prompt, or None."""
    if given is None:
        prompt = Prompt(CHAT_PROMPT if tokenizer.chat_template else TEXT_PROMPT)
    elif isinstance(given, Prompt):
        prompt = given
    elif isinstance(given, str):
        prompt = Prompt(given)
    elif isinstance(given, Sequence):
        prompt = Prompt(list(given))
    else:
        raise TypeError(f"prompt must be a text, chat messages or a Prompt, got {given!r:.80}.")
    if prompt.is_chat and not tokenizer.chat_template:
        raise ValueError("The prompt is chat messages, but the tokenizer has no chat template: pass a text.")
    return prompt


def tokenize_prompt(prompt: Prompt, values: Mapping[str, str], tokenizer: Any) -> ReadPrompt:
    """Render a prompt and give each token to the part that holds most of it."""
    text, ranges = _render_chat(prompt, values, tokenizer) if prompt.is_chat else _render_text(prompt, values)
    if not tokenizer.is_fast:
        raise ValueError(
            f"{type(tokenizer).__name__} does not tell where its tokens are in a text: load the fast tokenizer "
            "(AutoTokenizer.from_pretrained(..., use_fast=True))."
        )
    encoded = tokenizer(text, add_special_tokens=not prompt.is_chat, return_offsets_mapping=True, verbose=False)
    ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
    while len(ids) > 1 and ids[-1] in tokenizer.all_special_ids and offsets[-1][0] == offsets[-1][1]:
        ids, offsets = ids[:-1], offsets[:-1]  # some tokenizers end every text, and this one is to go on
    places: dict[str, list[int]] = {}
    straddling = []
    for place, (start, stop) in enumerate(offsets):
        shared = {name: min(stop, b) - max(start, a) for name, (a, b) in ranges.items()}
        shared = {name: size for name, size in shared.items() if size > 0}
        outside = (stop - start) - sum(shared.values())
        if outside > 0:
            shared[TEMPLATE] = outside
        owner = max(shared, key=lambda name: shared[name]) if shared else TEMPLATE
        if len(shared) > 1 and text[start:stop].strip() == text[start:stop]:
            straddling.append((place, owner))
        places.setdefault(FIRST if place == 0 and owner != "source" else owner, []).append(place)
    if "source" not in places:
        raise ValueError(f"The source {values['source']!r:.60} has no tokens of its own in the prompt.")
    notes = tuple(
        f"the token {tokenizer.convert_ids_to_tokens(ids[place])!r} straddles a border in the prompt and counts as "
        f"{owner}"
        for place, owner in straddling
    )
    order = [FIRST, *(name for name in prompt.names if name in places), TEMPLATE]
    ordered = {name: places[name] for name in order if name in places}
    return ReadPrompt(torch.tensor(ids), ordered, notes, text)


def _require_texts(template: Any, parts: Any) -> None:
    """Raise a TypeError for a template or parts that are something else."""
    messages = isinstance(template, Sequence) and all(
        isinstance(m, Mapping) and isinstance(m.get("content"), str) for m in template
    )
    if not isinstance(template, str) and not (template and messages):
        raise TypeError(
            "A prompt's template must be a text, or chat messages, each a dictionary with role and content, the "
            f"content a text; got {template!r:.80}."
        )
    for name, part in parts.items() if isinstance(parts, Mapping) else ():
        if not isinstance(part, str) and not (isinstance(part, Sequence) and all(isinstance(p, str) for p in part)):
            raise TypeError(f"The part {name!r} of the prompt must be a text or a list of texts, got {part!r:.60}.")
    if not isinstance(parts, Mapping):
        raise TypeError(f"The parts of a prompt are a mapping from names to texts, got {parts!r:.60}.")


def _pieces(template: str) -> list[tuple[str, str | None]]:
    """Texts of a template, each with the name that follows it; braces that are doubled are text."""
    pieces: list[tuple[str, str | None]] = []
    literal, place = "", 0
    while place < len(template):
        if template[place : place + 2] in ("{{", "}}"):
            literal, place = literal + template[place], place + 2
        elif found := _FIELD.match(template, place):
            pieces.append((literal, found[1]))
            literal, place = "", found.end()
        else:
            literal, place = literal + template[place], place + 1
    return [*pieces, (literal, None)]


def _render_text(prompt: Prompt, values: Mapping[str, str]) -> tuple[str, dict[str, tuple[int, int]]]:
    assert isinstance(prompt.template, str)
    text, ranges = "", {}
    for literal, name in _pieces(prompt.template):
        text += literal
        if name is not None:
            ranges[name] = (len(text), len(text) + len(values[name]))
            text += values[name]
    return text, ranges


def _render_chat(prompt: Prompt, values: Mapping[str, str], tokenizer: Any) -> tuple[str, dict[str, tuple[int, int]]]:
    """The chat template is rendered with marks in place of the parts, which are then put in."""
    marks = {name: chr(_MARK + n) for n, name in enumerate(prompt.names)}

    def render(parts: Mapping[str, str]) -> str:
        messages = [
            {**m, "content": "".join(t + ("" if n is None else parts[n]) for t, n in _pieces(m["content"]))}
            for m in prompt.template
            if isinstance(m, Mapping)
        ]
        try:
            rendered: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise ValueError(
                f"The tokenizer's chat template does not take these messages ({error}): give other roles, or the "
                "prompt as a text."
            ) from error
        return rendered

    marked = render(marks)
    text, ranges = "", {}
    by_mark = {mark: name for name, mark in marks.items()}
    for char in marked:
        if char in by_mark:
            name = by_mark[char]
            ranges[name] = (len(text), len(text) + len(values[name]))
            text += values[name]
        else:
            text += char
    lost = [name for name in prompt.names if marked.count(marks[name]) != 1]
    if lost:
        raise ValueError(f"The tokenizer's chat template drops or repeats {{{lost[0]}}}: give the prompt as a text.")
    if render(values) != text:
        raise ValueError(
            "The tokenizer's chat template changes what stands in the prompt (spaces at its ends, perhaps): strip the "
            "source and the other parts, or give the prompt as a text."
        )
    return text, ranges
