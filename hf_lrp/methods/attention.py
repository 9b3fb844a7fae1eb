"""Attention weights, averaged over layers and heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_lrp.methods.method import Question, memory_beyond_pass
from hf_lrp.models.attention_weights import attention_blocks
from hf_lrp.models.exchange import recorded
from hf_lrp.models.passes import Pass, Relevance, forward_passes
from hf_lrp.models.structure import Attention as Block

Heads = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Attention:
    """Weights of the position that predicts, as means over layers and heads.

    In a model with an encoder, the source has those of cross-attention and the prefix those of the decoder's
    self-attention. Each of both sums to 1, so that their proportion means nothing.

    Args:
        heads: those of the attention to the source (without an encoder: of all attention): ``"all"``; pairs of a layer
            and a head, counted from 0; or ``"links"``, those that make word links, which the model's generation
            config names (``alignment_heads``, weighted by ``alignment_weights``), refused where they are at the step
            that reads the token (``alignment_steps``). The prefix's weights are always means over all heads.
    """

    heads: Literal["all", "links"] | Heads = "all"
    sums_to_one: ClassVar[bool] = True
    conserves: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.heads, str):
            if self.heads not in ("all", "links"):
                raise ValueError(f"heads must be 'all', 'links' or pairs of a layer and a head, got {self.heads!r}.")
            return
        object.__setattr__(self, "heads", _pairs(self.heads))

    def explain(self, question: Question) -> list[Relevance]:
        """Weights at the steps' positions."""
        network = question.network
        own = attention_blocks(network.decoder, cross=False)
        cross = attention_blocks(network.decoder, cross=True)
        looking = cross if network.encoder is not None else own
        heads = _chosen(self.heads, question.model, [block.q.heads for block in looking])
        widest = max(block.q.heads for block in (*own, *cross))
        longest = max(len(each.ids) for each in question.given)
        item = question.model.dtype.itemsize
        memory_beyond_pass(question, 6 * item * widest * longest * max(longest, question.positions))
        everywhere: list[dict[int, float] | None] = [None] * len(own)
        results = []
        with recorded(question.model, network=network):
            for found in forward_passes(question.model, network, question.source, question.given):
                if network.encoder is None:
                    decoder = _mean_weights(own, found, heads)
                    source = decoder.new_zeros(len(decoder), 0)
                else:
                    source = _mean_weights(cross, found, heads)
                    decoder = _mean_weights(own, found, everywhere)
                results.append(found.chosen.relevance(source, decoder))
        return results


def _mean_weights(blocks: Sequence[Block], found: Pass, heads: Sequence[Mapping[int, float] | None]) -> Tensor:
    """[steps, keys], the mean over some heads of each layer, with how much each counts; None: all of them alike."""
    total, count = None, 0.0
    for block, chosen in zip(blocks, heads, strict=True):
        if chosen is not None and not chosen:
            continue
        weights = step_weights(block, found)
        counts = weights.new_ones(len(weights)) if chosen is None else weights.new_tensor(list(chosen.values()))
        part = torch.tensordot(counts, weights if chosen is None else weights[list(chosen)], 1)
        total = part if total is None else total + part
        count += float(counts.sum())
    assert total is not None
    return total / count


def step_weights(block: Block, found: Pass) -> Tensor:
    """Attention weights [heads, steps, keys] of the positions that predict."""
    steps = found.given.steps
    query, key, _ = block.states(found.tape, steps, slice(None))
    weights, _ = block.weights(query, key, steps.start)
    return weights


def _chosen(heads: Any, model: PreTrainedModel, sizes: Sequence[int]) -> list[dict[int, float] | None]:
    """By layer the chosen heads and how much each counts; None: all. sizes: the number of heads of each layer."""
    if heads == "all":
        return [None] * len(sizes)
    counts = _link_heads(model) if heads == "links" else dict.fromkeys(heads, 1.0)
    for layer, head in counts:
        if not (0 <= layer < len(sizes) and 0 <= head < sizes[layer]):
            raise ValueError(
                f"There is no head {head} in layer {layer}: this model has {len(sizes)} layers of {sizes[0]} heads, "
                "both counted from 0."
            )
    return [{head: count for (each, head), count in counts.items() if each == layer} for layer in range(len(sizes))]


def _link_heads(model: PreTrainedModel) -> dict[tuple[int, int], float]:
    """The heads that a generation config names, and how much each counts."""
    config: Any = getattr(model, "generation_config", None)
    named = getattr(config, "alignment_heads", None)
    if not named:
        raise ValueError(
            "The model's generation config names no alignment_heads, which heads='links' takes: set them to pairs of "
            "a layer and a head, or give the pairs as heads=..."
        )
    pairs = _pairs(named)
    steps = getattr(config, "alignment_steps", None) or ["predicts"] * len(pairs)
    counts = [float(count) for count in getattr(config, "alignment_weights", None) or [1.0] * len(pairs)]
    if len(steps) != len(pairs) or len(counts) != len(pairs) or min(counts) <= 0:
        raise ValueError(
            f"The model's generation config names {len(pairs)} alignment_heads, but has {len(steps)} alignment_steps "
            f"and {len(counts)} alignment_weights, which must be as many, weights above 0: mend them, or give pairs "
            "as heads=..."
        )
    if set(steps) != {"predicts"}:
        raise ValueError(
            "The model's generation config has alignment_steps of heads that link a token where it is read, one step "
            "after it was predicted, so that their weights explain no prediction: take hf_lrp.align for word links, "
            f"or give heads={list(pairs)} for what they look at where the token is predicted."
        )
    return dict(zip(pairs, counts, strict=True))


def _pairs(given: Any) -> Heads:
    try:
        pairs = tuple((int(layer), int(head)) for layer, head in given)
    except (TypeError, ValueError):
        raise TypeError(f"heads must be 'all', 'links' or pairs of a layer and a head, got {given!r:.80}.") from None
    if not pairs or len(set(pairs)) < len(pairs):
        raise ValueError(f"heads must name at least one head, and each once, got {given!r:.80}.")
    return pairs
