"""The protocol of a kind of model: how it reads sources and targets, writes, and what its input consists of."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from torch import Tensor
from transformers import PreTrainedModel

from hf_lrp.inputs.ids import Sources
from hf_lrp.inputs.prefixes import Prefix
from hf_lrp.inputs.prompts import Prompt
from hf_lrp.methods.method import Groups
from hf_lrp.models.families import Family
from hf_lrp.models.passes import Relevance
from hf_lrp.models.vocabulary import Vocabulary
from hf_lrp.results.spans import Span


@dataclass(frozen=True)
class Asked:
    """Arguments of a call besides targets.

    processor: what turns samples into features, of speech models; options: those for `generate`.
    """

    model: PreTrainedModel
    vocabulary: Vocabulary
    source: Any
    prompt: Any
    processor: Any
    options: dict[str, Any]


class Parted(NamedTuple):
    """Raw shares as those of a source, a start and a prefix, and of what else there is by name."""

    relevance: Relevance
    prefix: Prefix
    spans: Mapping[str, Span] = {}
    notes: tuple[str, ...] = ()


class Batch(NamedTuple):
    """Several sentences with their targets as input of one forward pass, and where the parts of each stand.

    inputs: of the model, padded; lengths: of each decoder input, which ends with the last target token if there is
    room; first: the decoder position that predicts the first target token; attended: how many positions the attention
    to the source sees; places: those of the source's tokens among them, [S] each.
    """

    inputs: dict[str, Tensor]
    lengths: list[int]
    first: list[int]
    attended: list[int]
    places: list[Tensor]


class Reading(Protocol):
    """The sources of one call, as a kind of model reads them. ``number`` counts sources from 0."""

    @property
    def sources(self) -> Sources:
        """The sources themselves."""

    @property
    def longest(self) -> int:
        """The length of the longest input that translations are written from."""

    def read_targets(self, given: Any) -> tuple[list[Prefix], bool]:
        """Given targets, or a pool of unrelated ones, as prefixes, and whether a single one was given."""

    def encode(self, target: str, number: int) -> list[int]:
        """The ids of a target's text that are predicted."""

    def follow(self, number: int, prefix: Prefix) -> Prefix:
        """Another sentence's target after this source."""

    def generate(
        self, model: PreTrainedModel, batch_size: int, options: dict[str, Any], progress: bool
    ) -> list[Prefix]:
        """Translations: what the model writes for each source, up to and including the end."""

    def forward_batch(self, model: PreTrainedModel, numbers: Sequence[int], prefixes: Sequence[Prefix]) -> Batch:
        """Some of the sources, each with its target, for one forward pass."""

    def group(self, number: int, prefix: Prefix, unit: str) -> Groups:
        """Which positions belong together: those of a ``"word"``, or of a ``"part"`` of what the model reads."""

    def part(self, number: int, relevance: Relevance, prefix: Prefix, source_tokens: bool) -> Parted:
        """A method's values, by what the tokens are."""


def numbered(keys: Iterable[Hashable]) -> list[int]:
    """For each key its number, in the order in which they come first."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


class Kind(Protocol):
    """A kind of model."""

    def includes(self, family: Family) -> bool:
        """Whether models of a family are of this kind."""

    def read(self, asked: Asked) -> Reading:
        """Read the sources of a call; raises for what this kind cannot take."""

    # ---- corpora of texts

    def corpus_prompt(self, model: PreTrainedModel, tokenizer: Any, prompt: Any) -> Prompt | None:
        """The prompt of all sentences of a corpus, if this kind needs one; raises if it reads no text."""

    def count_tokens(self, asked: Asked, targets: Sequence[str]) -> Iterator[tuple[int, int]]:
        """The numbers of source and target tokens of pairs of texts, as results show them."""

    def keeps(self, vocabulary: Vocabulary, prompt: Prompt | None, ids: Sequence[int]) -> bool:
        """Whether what the model wrote becomes text and the same tokens again."""
