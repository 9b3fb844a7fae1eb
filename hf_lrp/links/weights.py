"""Attention weights of some heads, by target token and source token, from batched forward passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_lrp.inputs.options import require_evaluation_mode
from hf_lrp.inputs.prefixes import Prefix
from hf_lrp.kinds.kind import Asked, Batch, Reading
from hf_lrp.kinds.table import kind_of
from hf_lrp.links.heads import Head, require_heads
from hf_lrp.models.attention_weights import (
    BatchTape,
    attention_blocks,
    attention_recorded,
    head_weights,
    record_batch,
)
from hf_lrp.models.copies import Layout, WorkingCopy
from hf_lrp.models.exchange import read_plain_network
from hf_lrp.models.structure import Attention, Network
from hf_lrp.models.vocabulary import Vocabulary

TOKENS = 2048  # of sources or targets in one forward pass, padding included
LOGIT_TOKENS = 512  # where logits are computed as well: large vocabularies outgrow the cache
ALIKE = 0.9  # of the longest pair's length: what others have together with it, since padding costs as much as text
LEAST_TOKENS = 128  # less in one forward pass is no faster


class HeadWeights(NamedTuple):
    """Weights of heads that a forward pass showed of one sentence.

    weights: [heads, T, S]: row t belongs to target token t, whether the head reads or predicts it; columns to source
        tokens, special ones included.
    log_probability: [T] of the target's tokens, where it was asked for.
    """

    weights: Tensor
    log_probability: Tensor | None


class PairsRead(NamedTuple):
    """Sources and targets as the model takes them."""

    reading: Reading
    prefixes: list[Prefix]

    @property
    def sizes(self) -> list[int]:
        """Of each pair, the length of its longer side."""
        return [
            max(len(self.reading.sources.describe(item).tokens), len(prefix.prompt) + len(prefix.ids))
            for item, prefix in zip(self.reading.sources.items, self.prefixes, strict=True)
        ]


class HeadReader:
    """A translation model whose attention to the source is read; half-precision models in a float32 copy.

    The model comes back as it was after every call.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None, prompt: Any = None
    ) -> None:
        """prompt: for a model without an encoder, as for `hf_lrp.explain`."""
        require_evaluation_mode(model)
        self.prompt, self._copy = prompt, WorkingCopy(model)
        self.vocabulary = Vocabulary(model, tokenizer)
        self.kind = kind_of(model)
        self._known: tuple[Layout, Network] | None = None

    @property
    def model(self) -> PreTrainedModel:
        """The user's model."""
        return self._copy.original

    def network(self) -> tuple[PreTrainedModel, Network]:
        """The model as it runs, with the weights of the moment, and its structure."""
        model, _ = self._copy.in_float32(self._copy.merged()[0])
        if self._known is None or not self._known[0].is_of(model):
            self._known = Layout(model), read_plain_network(model)
        return model, self._known[1]

    @property
    def has_encoder(self) -> bool:
        """Whether the source is read by an encoder, and not as part of a prompt."""
        return self.network()[1].encoder is not None

    @property
    def blocks(self) -> tuple[Attention, ...]:
        """The attention to the source in each layer; in a model without an encoder, to all that stands before."""
        return attention_blocks(self.network()[1].decoder, cross=self.has_encoder)

    def read(self, sources: Any, targets: Any) -> PairsRead:
        """Sources and as many targets, texts or ids (what `explain` takes)."""
        asked = Asked(self._copy.original, self.vocabulary, sources, self.prompt, None, {})
        reading = self.kind.read(asked)
        prefixes, _ = reading.read_targets(targets)
        if len(prefixes) != len(reading.sources.items):
            raise ValueError(
                f"{len(reading.sources.items)} sources, but {len(prefixes)} targets: give as many of both."
            )
        return PairsRead(reading, prefixes)

    def weights(
        self, pairs: PairsRead, heads: Sequence[Head], log_probability: bool = False
    ) -> Iterator[tuple[int, HeadWeights]]:
        """The number of each pair and the weights of these heads for it, sentences of like length together.

        With ``log_probability``, forward passes run to the end; else up to the last of the layers.
        """
        model, network = self.network()
        blocks = attention_blocks(network.decoder, cross=network.encoder is not None)
        require_heads(heads, blocks)
        layers = {head.layer: blocks[head.layer] for head in heads}
        for numbers in batches(pairs.sizes, LOGIT_TOKENS if log_probability else TOKENS):
            prefixes = [pairs.prefixes[number] for number in numbers]
            batch = pairs.reading.forward_batch(model, numbers, prefixes)
            inputs = {name: tensor.to(model.device) for name, tensor in batch.inputs.items()}
            with torch.inference_mode(), attention_recorded(model, network, list(layers.values())) as part:
                tape, output = record_batch(model, inputs, part, stop=not log_probability)
                for row, number in enumerate(numbers):
                    weights = _weights(tape, batch, row, len(prefixes[row].ids), heads, layers)
                    logs = (
                        None
                        if output is None
                        else target_log_probability(output.logits[row], batch, row, prefixes[row])
                    )
                    yield number, HeadWeights(weights, logs)


def batches(sizes: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Numbers of pairs of like size, at most as many together as have so many tokens."""
    batch: list[int] = []
    for number in sorted(range(len(sizes)), key=lambda n: -sizes[n]):
        longest = sizes[batch[0]] if batch else 0
        enough = longest * len(batch) >= LEAST_TOKENS and sizes[number] < ALIKE * longest
        if batch and (enough or longest * (len(batch) + 1) > tokens):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _weights(
    tape: BatchTape, batch: Batch, row: int, steps: int, heads: Sequence[Head], layers: dict[int, Attention]
) -> Tensor:
    """[heads, T, S] of one sentence."""
    own, length = tape.sentence(row), batch.lengths[row]
    found = {
        layer: head_weights(block, own, slice(length), slice(batch.attended[row]))[:, :, batch.places[row]]
        for layer, block in layers.items()
    }
    predicts = torch.arange(steps) + batch.first[row]
    at = {"predicts": predicts, "reads": (predicts + 1).clamp(max=length - 1)}
    return torch.stack([found[head.layer][head.head, at[head.step]] for head in heads]).cpu()


def target_log_probability(logits: Tensor, batch: Batch, row: int, prefix: Prefix) -> Tensor:
    """Log-probabilities [T] of a sentence's target tokens, from the logits of its row of a batch."""
    steps = logits[batch.first[row] : batch.first[row] + len(prefix.ids)].float()
    return steps.log_softmax(-1).gather(1, prefix.ids.to(logits.device)[:, None])[:, 0].cpu()
