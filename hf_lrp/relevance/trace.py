"""Trace: what is kept of relevance on its way through a stack, summed by layer and step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from hf_lrp.models.structure import Attention, FeedForward, Layer, Network, Residual, Stack
from hf_lrp.relevance.operations import Pairs
from hf_lrp.relevance.window import Window

# Whether to keep what goes through the layers, and with it what goes from each query to each key.
Inside = bool | Literal["pairs"]

# Relevance by name, each tensor with steps on its second axis; see `Trace`.
Flow = dict[str, Tensor]


class Extent(NamedTuple):
    """How much goes through a stack: steps, the position of the first of them, positions, those of the encoder."""

    steps: int
    first: int
    positions: int
    memory: int = 0


class Trace:
    """Relevance on its way through one stack, which `Backward` notes.

    Attributes:
        flow: by name,
            ``positions`` [layers + 1, steps, positions]: at the input of each layer, and last at the top's output,
            ``BLOCK.through`` and ``BLOCK.past`` [layers, steps]: what goes through a block (``self``, ``cross``,
            ``feed_forward``), and what goes past it, both at the sum that joins the two,
            ``BLOCK.heads`` [layers, steps, heads, 3]: through each head's queries, keys and values,
            ``sent`` [layers, steps, memory]: what cross-attention sends to the encoder's output;
            where ``pairs`` are asked for, also what each query's output sends: ``BLOCK.to_queries`` [layers, steps,
            heads, queries], ``BLOCK.to_keys`` and ``BLOCK.to_values`` [layers, steps, heads, queries, keys].
    """

    def __init__(self, stack: Stack, extent: Extent, like: Tensor, pairs: bool = False) -> None:
        self.extent, self.pairs = extent, pairs
        self._layers = {id(layer): number for number, layer in enumerate(stack.layers)}
        self._blocks: dict[int, tuple[str, int]] = {}
        shapes: dict[str, tuple[int, ...]] = {"positions": (extent.positions,)}
        for number, layer in enumerate(stack.layers):
            for block in blocks_of(layer):
                name = block_name(block)
                self._blocks[id(block)] = name, number
                shapes |= {f"{name}.through": (), f"{name}.past": ()}
                if isinstance(block, Attention):
                    shapes[f"{name}.heads"] = (block.q.heads, 3)
                    shapes |= {"sent": (extent.memory,)} if block.cross else {}
                    shapes |= self._shapes_of_pairs(name, block) if pairs else {}
        layers = len(stack.layers)
        self.flow: Flow = {
            name: like.new_zeros(layers + (name == "positions"), extent.steps, *shape)
            for name, shape in shapes.items()
        }

    def _shapes_of_pairs(self, name: str, block: Attention) -> dict[str, tuple[int, ...]]:
        queries, keys = self.extent.positions, self.extent.memory if block.cross else self.extent.positions
        both = block.q.heads, queries, keys
        return {f"{name}.to_queries": both[:2], f"{name}.to_keys": both, f"{name}.to_values": both}

    def above(self, layer: Layer, relevance: Tensor, window: Window) -> None:
        """Note the relevance [positions, steps, d] of a layer's output."""
        self._border(self._layers[id(layer)] + 1, relevance, window)

    def bottom(self, relevance: Tensor, window: Window) -> None:
        """Note the relevance [positions, steps, d] of the lowest layer's input."""
        self._border(0, relevance, window)

    def _border(self, number: int, relevance: Tensor, window: Window) -> None:
        totals, row = relevance.sum(-1), self.flow["positions"][number]
        if window.own_step:
            steps = self._steps(window)
            row[steps, steps + self.extent.first] = totals[:, 0]
        else:
            row[:, window.positions] = totals.T

    def joined(self, residual: Residual, to_x: Tensor, to_updates: Sequence[Tensor], window: Window) -> None:
        """Note what went past a residual's blocks and to each; positions may come in several parts."""
        past = self._by_step(to_x, window)
        for branch, to_update in zip(residual.branches, to_updates, strict=True):
            name, number = self._blocks[id(branch.block)]
            self.flow[f"{name}.past"][number] += past
            self.flow[f"{name}.through"][number] += self._by_step(to_update, window)

    def attended(self, block: Attention, received: Sequence[Tensor], windows: Sequence[Window]) -> None:
        """Note what queries, keys and values of all heads received, [positions, steps, heads, d] each."""
        name, number = self._blocks[id(block)]
        for kind, (part, window) in enumerate(zip(received, windows, strict=True)):
            heads = part.sum(-1)
            if window.own_step:
                self.flow[f"{name}.heads"][number, self._steps(window), :, kind] = heads[:, 0]
            else:
                self.flow[f"{name}.heads"][number, :, :, kind] = heads.sum(0)

    def received(self, block: Attention, window: Window) -> Tensor:
        """Relevance that each head received, [heads, steps, 3], for the steps of a window."""
        name, number = self._blocks[id(block)]
        heads = self.flow[f"{name}.heads"][number].transpose(0, 1)
        return heads[:, self._steps(window)] if window.own_step else heads

    def paired(self, block: Attention, pairs: Pairs, window: Window, keys: Window) -> None:
        """Note what queries of a window send to these keys."""
        name, number = self._blocks[id(block)]
        for kind, part in zip(("to_queries", "to_keys", "to_values"), pairs, strict=True):
            kept = self.flow[f"{name}.{kind}"][number]
            if kind != "to_queries":
                kept = kept[..., keys.positions]
            if window.own_step:
                steps = self._steps(window)
                kept[steps, :, steps + self.extent.first] = part[:, 0].transpose(0, 1)
            else:
                kept[:, :, window.positions] = part.transpose(0, 1)

    def sent(self, block: Attention, to_keys: Tensor) -> None:
        """Note what a cross-attention sends to the encoder's output, [positions, steps, d]."""
        self.flow["sent"][self._blocks[id(block)][1]] = to_keys.sum(-1).T

    def _by_step(self, relevance: Tensor, window: Window) -> Tensor:
        """[positions, steps, d] -> [steps]"""
        if not window.own_step:
            return relevance.sum((0, 2))
        totals = relevance.new_zeros(self.extent.steps)
        totals[self._steps(window)] = relevance.sum((1, 2))
        return totals

    def _steps(self, window: Window) -> Tensor:
        """The steps of a window in which each position has its own, as many as there are positions."""
        return torch.arange(window.positions.start, window.positions.stop) - self.extent.first


@dataclass
class Kept:
    """Flows through both stacks that belong to one decoder input, in parts, each of some of its steps.

    pairs: whether they have pairs of queries and keys.
    """

    pairs: bool = False
    decoder: list[Flow] = field(default_factory=list)
    encoder: list[Flow] = field(default_factory=list)

    def joined(self) -> Flow:
        """All steps, with ``decoder.`` and ``encoder.`` in front of names."""
        sides = {"decoder": self.decoder, "encoder": self.encoder}
        flows = {side: join(parts) for side, parts in sides.items() if parts}
        return {f"{side}.{name}": tensor for side, flow in flows.items() for name, tensor in flow.items()}


def join(parts: Sequence[Flow]) -> Flow:
    """The steps of several flows, one after the other."""
    return {name: torch.cat([part[name] for part in parts], 1) for name in parts[0]}


def split(flow: Flow, steps: Sequence[int]) -> list[Flow]:
    """Flows of so many steps each."""
    pieces = {name: tensor.split(list(steps), 1) for name, tensor in flow.items()}
    return [{name: parts[number] for name, parts in pieces.items()} for number in range(len(steps))]


def blocks_of(layer: Layer) -> list[Attention | FeedForward]:
    """The blocks of a layer, in order."""
    return [branch.block for residual in layer.residuals for branch in residual.branches]


def block_name(block: Attention | FeedForward) -> str:
    """``self``, ``cross`` or ``feed_forward``."""
    if isinstance(block, FeedForward):
        return "feed_forward"
    return "cross" if block.cross else "self"


def bytes_of_pairs(network: Network, source: int, target: int, steps: int, item: int) -> int:
    """Bytes of the pairs of queries and keys of sentences of these lengths: as noted, joined, and in the result."""
    sizes = [
        block.q.heads * length * (1 + 2 * (source if block.cross else length))
        for stack, length in ((network.encoder, source), (network.decoder, target))
        if stack is not None
        for layer in stack.layers
        for block in blocks_of(layer)
        if isinstance(block, Attention)
    ]
    return 3 * item * steps * sum(sizes)
