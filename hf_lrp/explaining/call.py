"""One call: its sources as they are read, the model and limits it has, and what is explained of each source."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_lrp.inputs.contrast import Parting, is_contrast, read_contrasts
from hf_lrp.inputs.doubts import doubts_about_text, warn_of
from hf_lrp.inputs.ids import read_predictions
from hf_lrp.inputs.memory import generation_batch_size
from hf_lrp.inputs.options import require_generate
from hf_lrp.inputs.prefixes import Prefix, draw_from_pool, seeded, shuffle_targets
from hf_lrp.kinds.kind import Reading
from hf_lrp.methods.method import Method
from hf_lrp.models.configs import generation_config_of
from hf_lrp.models.passes import DecoderInput
from hf_lrp.models.structure import Network
from hf_lrp.models.vocabulary import Vocabulary
from hf_lrp.relevance.trace import Inside

Choice = Callable[[Tensor], Tensor]  # from logits [T, V] to the ids that are explained


class Settings(NamedTuple):
    """Settings: what is explained of each prediction, and how."""

    predict: Any
    start_token: str
    method: Method
    source_tokens: bool = True
    inside: Inside = False


class Case(NamedTuple):
    """A case of one source: the prefix, the choice of ids, and the steps by index; None: all of them.

    partings: by step the two words that are compared, where words are.
    """

    prefix: Prefix
    choose: Choice
    steps: Sequence[int] | None = None
    partings: Sequence[Parting] = ()

    @property
    def passes(self) -> int:
        """How many decoder inputs there are."""
        return 1 if self.steps is None else len(self.steps)

    def decoder_inputs(self, device: torch.device) -> list[DecoderInput]:
        """One for all steps, or one for each of the chosen steps."""
        ids, all_steps = self.prefix.decoder_ids.to(device), self.prefix.steps
        if self.steps is None:
            return [DecoderInput(ids, self.choose, all_steps)]
        rows = [(row, all_steps.start + step) for row, step in enumerate(self.steps)]
        return [DecoderInput(ids, functools.partial(_row, self.choose, row), slice(i, i + 1)) for row, i in rows]


@dataclass(frozen=True)
class Call:
    """A call of `explain` as it was read: the model, its tokens, the sources, and options for `generate`.

    network, max_memory: known once the model is as it is explained.
    """

    model: PreTrainedModel
    vocabulary: Vocabulary
    reading: Reading
    notes: tuple[str, ...]
    options: dict[str, Any]
    network: Network | None = None
    max_memory: int = 0

    def read_targets(self, target: Any) -> list[Prefix]:
        """One target for each source."""
        targets, one = self.reading.read_targets(target)
        sources = self.reading.sources
        row = len(targets) == 1 and getattr(target, "ndim", None) == 2  # [1, T], as `generate` returns one translation
        if len(targets) != len(sources.items) or one != (sources.single and not row):
            raise ValueError(
                f"{_number(len(sources.items), 'source', sources.single)} but {_number(len(targets), 'target', one)}: "
                "pass one target for each source, a list for a list."
            )
        warn_of(doubt for prefix in targets for doubt in doubts_about_text(self.vocabulary, prefix.ids, "target"))
        return targets

    def generate(self, batch_size: int | None, progress: bool, seed: int) -> list[Prefix]:
        """The model's translation of each source."""
        require_generate(self.model)
        beams = self.options.get("num_beams") or generation_config_of(self.model).num_beams or 1
        size = batch_size or generation_batch_size(self.model, self.reading.longest, beams, self.max_memory)
        with seeded(seed, self.model.device):
            return self.reading.generate(self.model, size, self.options, progress)

    def given_prefixes(self, prefix: str, targets: list[Prefix] | None, pool: Any, seed: int) -> list[Prefix]:
        """Reference or random prefixes."""
        if prefix == "reference":
            if targets is None:
                raise ValueError("prefix='reference' needs a target. Pass target=..., or use prefix='model'.")
            return targets
        if pool is not None:
            count = len(self.reading.sources.items)
            drawn = draw_from_pool(self.reading.read_targets(pool)[0], targets, count, seed)
            return [self.reading.follow(number, each) for number, each in enumerate(drawn)]
        if targets is None:
            raise ValueError("prefix='random' needs targets to shuffle, or unrelated target sentences as pool=[...].")
        return shuffle_targets(targets, seed)

    def read_predict(self, predict: Any, prefixes: Sequence[Prefix], texts: Any) -> list[Case]:
        """Cases: what is explained after each prefix; texts: of the targets, for contrasts by words."""
        single = self.reading.sources.single
        if is_contrast(predict):
            contrasts = read_contrasts(predict, texts, prefixes, single, self.vocabulary, self.reading.encode)
            return [_contrast(prefix, partings) for prefix, partings in zip(prefixes, contrasts, strict=True)]
        if isinstance(predict, str) and predict == "top1":
            return [Case(prefix, _top1) for prefix in prefixes]
        if isinstance(predict, str) and predict == "target":
            ids = [prefix.ids for prefix in prefixes]
        else:
            ids = read_predictions(predict, [len(prefix.ids) for prefix in prefixes], single, self.vocabulary)
        return [Case(prefix, functools.partial(_given, chosen)) for prefix, chosen in zip(prefixes, ids, strict=True)]


def _contrast(prefix: Prefix, partings: Sequence[Parting]) -> Case:
    pairs = torch.tensor([parting.pair for parting in partings])
    return Case(prefix, functools.partial(_given, pairs), [parting.step for parting in partings], partings)


def _number(count: int, side: str, single: bool) -> str:
    return f"a single {side}" if single else f"a list of {count} {side}{'s' if count != 1 else ''}"


def _top1(logits: Tensor) -> Tensor:
    return logits.argmax(-1)


def _given(ids: Tensor, logits: Tensor) -> Tensor:
    return ids.to(logits.device)


def _row(choose: Choice, row: int, logits: Tensor) -> Tensor:
    return choose(logits)[row : row + 1]
