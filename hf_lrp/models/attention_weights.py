"""Attention weights of each head, as a model computed them for a batch, from what its projections gave.

Weights are read from the model's structure, so they are there whatever attention kernel the model runs, and they are
those of `output_attentions=True` with the eager one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_lrp.models.exchange import recorded
from hf_lrp.models.recording import Recorded, Tape, require_equal
from hf_lrp.models.structure import Attention, Network, Stack


def attention_blocks(stack: Stack, cross: bool) -> tuple[Attention, ...]:
    """The self-attention of each layer of a stack, or the attention to the encoder."""
    blocks = [b.block for layer in stack.layers for residual in layer.residuals for b in residual.branches]
    return tuple(block for block in blocks if isinstance(block, Attention) and block.cross == cross)


def head_weights(attention: Attention, tape: Tape, queries: slice, keys: slice) -> Tensor:
    """Attention weights [heads, queries, keys] of the first so many positions; raises where they are not the model's.

    What the weights make of the values must be what the output projection was given.
    """
    query, key, value = attention.states(tape, queries, keys)
    weights = attention.weights(query, key, 0)[0]
    attended = (weights @ value).transpose(0, 1).flatten(1)
    require_equal(attention.out.input(tape)[queries], attended, "attention")
    return weights


class _Complete(Exception):
    """All that was to be recorded has been seen."""


class BatchTape(Tape):
    """Tape of some modules in one forward pass over a padded batch, to be read sentence by sentence."""

    def __init__(self, modules: Sequence[nn.Module], stop: bool, time_first: bool) -> None:
        """stop: end the forward pass once the last of the modules has run."""
        super().__init__()
        self._batch: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        self._wanted, self._stop, self._axis = set(modules), stop, int(time_first)

    def add(self, module: nn.Module, x: Tensor, y: Tensor) -> None:
        """Note input and output of a module for the whole batch."""
        if module not in self._wanted:
            return
        self._batch[module] = (x.detach(), y.detach())
        if self._stop and len(self._batch) == len(self._wanted):
            raise _Complete

    def sentence(self, number: int) -> Tape:
        """The part of one sentence, padding included, as if it had been alone."""
        tape = Tape()
        for module, (x, y) in self._batch.items():
            tape.add(module, x.select(self._axis, number), y.select(self._axis, number))
        return tape


@contextmanager
def attention_recorded(model: PreTrainedModel, network: Network, blocks: Sequence[Attention]) -> Iterator[Network]:
    """Let `record_batch` see the linear layers of these attention blocks."""
    modules = {linear for block in blocks for linear in block.linears}
    kinds: dict[nn.Module, type[Recorded]] = {m: kind for m, kind in network.counterparts.items() if m in modules}
    with recorded(model, network=replace(network, counterparts=kinds)) as part:
        yield part


def record_batch(model: PreTrainedModel, inputs: dict[str, Any], part: Network, stop: bool) -> tuple[BatchTape, Any]:
    """One forward pass over a padded batch; with ``stop``, only up to the last block that is looked at.

    Args:
        part: what `attention_recorded` gave.

    Returns:
        what the blocks saw, and the model's output, None with ``stop``.
    """
    tape = BatchTape(list(part.counterparts), stop, part.time_first)
    try:
        with tape.recording():
            return tape, model(**inputs, use_cache=False)
    except _Complete:
        return tape, None
