"""Questions of visitors, and how much of it is allowed."""

from __future__ import annotations

from dataclasses import dataclass, fields

from hf_lrp.results.prefix_types import PREFIXES


@dataclass(frozen=True)
class Limits:
    """Limits of what one visitor may use.

    Attributes:
        tokens: of the source, of the target and of what the model writes; of a prompt, four times as many.
        characters: of each text field, counted before anything is tokenized.
        memory: what each question may use on top of the models, as `explain` takes it.
        models: how many models are kept in memory.
        waiting: how many questions may wait; two are answered at a time, a short one and a long one.
    """

    tokens: int = 128
    characters: int = 5000
    memory: str = "2GB"
    models: int = 2
    waiting: int = 16

    @property
    def prompt_tokens(self) -> int:
        """How many tokens a prompt may have: instructions and examples are longer than what they are about."""
        return 4 * self.tokens


@dataclass(frozen=True)
class Question:
    """Question, as the fields of the app hold it: texts, which may be empty.

    Attributes:
        source: the sentence to translate.
        target: the prefix, for `prefix="reference"`.
        prefix: what the model is conditioned on: `"model"`, its own translation; `"reference"`, the target;
            `"random"`, an unrelated sentence.
        unrelated: sentences for `"random"`, one per line.
        word, other: why `word` of the translation and not `other`; both or neither.
        prompt: for a model without an encoder, a text with `{source}`.
        source_language, target_language: of a multilingual model, as its tokenizer names them.
    """

    source: str
    target: str = ""
    prefix: str = "model"
    unrelated: str = ""
    word: str = ""
    other: str = ""
    prompt: str = ""
    source_language: str = ""
    target_language: str = ""

    @property
    def pool(self) -> list[str]:
        """The unrelated sentences."""
        return [line.strip() for line in self.unrelated.splitlines() if line.strip()]

    @property
    def contrast(self) -> dict[str, str] | None:
        """The two words as `explain` takes them; None where none is given."""
        return {self.word.strip(): self.other.strip()} if self.word.strip() else None


def check(question: Question, limits: Limits) -> None:
    """Raise a ValueError for what cannot be answered, before a model is loaded."""
    for field in fields(question):
        text = getattr(question, field.name)
        if not isinstance(text, str):
            raise ValueError(f"{field.name.replace('_', ' ')} must be a text.")
        if len(text) > limits.characters:
            name = field.name.replace("_", " ")
            raise ValueError(f"The {name} has {len(text)} characters; this app takes up to {limits.characters}.")
        if any(
            "\ud800" <= character <= "\udfff" for character in text
        ):  # halves of characters, which cannot be written
            raise ValueError(
                f"The {field.name.replace('_', ' ')} has characters that are not valid text. Type it anew."
            )
    if not question.source.strip():
        raise ValueError("There is no source: write a sentence to translate.")
    if question.prefix not in PREFIXES:
        raise ValueError(f"The prefix must be one of {', '.join(PREFIXES)}.")
    if question.prefix == "reference" and not question.target.strip():
        raise ValueError("There is no target: write one, or let the model translate.")
    if question.prefix == "random" and not question.pool:
        raise ValueError("There is no unrelated sentence: write one in the target's language, or several in lines.")
    if bool(question.word.strip()) != bool(question.other.strip()):
        raise ValueError("A contrast needs two words: one of the translation, and one that might stand there instead.")


def check_length(count: int, limit: int, what: str) -> None:
    """Raise a ValueError for more tokens than are allowed."""
    if count > limit:
        raise ValueError(f"The {what} has {count} tokens; this app takes up to {limit}. Shorten it.")
