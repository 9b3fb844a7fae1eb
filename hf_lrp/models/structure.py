"""The parts of a model and how they are joined: attention, feed-forward, the residual around each, layers, stacks.

Built from the description of a model family (`hf_lrp.models.families`); parts hold a model's own modules. What a
forward pass computed is replayed from what a `Tape` recorded: a part raises `UnknownStructure` where it is not what
its description assumes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from hf_lrp.models.heads import HeadStates, Projection
from hf_lrp.models.recording import Recorded, Tape, require_equal


class Block(Protocol):
    """A block: what stands between a residual's two ends."""

    mixes_positions: bool

    @property
    def linears(self) -> tuple[Any, ...]:
        """Its linear layers."""

    def entry(self, tape: Tape) -> Tensor:
        """The block's input, [length, d]."""

    def exit(self, tape: Tape) -> Tensor:
        """The block's output, [length, d]."""

    def check(self, tape: Tape, memory: Tensor | None) -> None:
        """Raise if the block's forward pass was not the assumed one. memory: the encoder's output, in a decoder."""


@dataclass(frozen=True)
class FeedForward:
    """``fc2(activation(fc1(x)))``, or ``fc2(activation(fc1(x)) * gate(x))``."""

    fc1: Projection
    fc2: Projection
    activation: Callable[[Tensor], Tensor]
    gate: Projection | None = None
    mixes_positions: ClassVar = False

    @property
    def linears(self) -> tuple[Any, ...]:
        return distinct(self.fc1, self.fc2) if self.gate is None else distinct(self.fc1, self.gate, self.fc2)

    def entry(self, tape: Tape) -> Tensor:
        return self.fc1.input(tape)

    def exit(self, tape: Tape) -> Tensor:
        return self.fc2.output(tape)

    def check(self, tape: Tape, memory: Tensor | None) -> None:
        hidden = self.activation(self.fc1.output(tape))
        if self.gate is not None:
            require_equal(self.gate.input(tape), self.entry(tape), "input of the gate")
            hidden = hidden * self.gate.output(tape)
        require_equal(self.fc2.input(tape), hidden, "feed-forward activation")


@dataclass(frozen=True)
class Attention:
    """Multi-head attention: of a sequence to itself (``causal`` or not), or to the encoder's output.

    Keys and values may have fewer heads than queries, each for a group of these.

    bias: what has ``compute_bias(queries, keys)`` [1, heads, queries, keys], which is added to the scores.
    reach: how many positions a query sees, itself included (if causal; else to either side of itself).
    cap: scores s become ``cap * tanh(s / cap)``.
    """

    q: HeadStates
    k: HeadStates
    v: HeadStates
    out: Projection
    scale: float
    causal: bool = False
    cross: bool = False
    bias: Any | None = None
    reach: int | None = None
    cap: float | None = None
    mixes_positions: ClassVar = True

    @property
    def linears(self) -> tuple[Any, ...]:
        return distinct(self.q.projection, self.k.projection, self.v.projection, self.out)

    def entry(self, tape: Tape) -> Tensor:
        return self.q.projection.input(tape)

    def exit(self, tape: Tape) -> Tensor:
        return self.out.output(tape)

    def check(self, tape: Tape, memory: Tensor | None) -> None:
        attended_to = memory if self.cross and memory is not None else self.entry(tape)
        require_equal(self.k.projection.input(tape), attended_to, "input of the keys")
        require_equal(self.v.projection.input(tape), attended_to, "input of the values")
        query, key, value = self.states(tape, slice(None), slice(None))
        attended = self.weights(query, key, 0)[0] @ value
        require_equal(self.out.input(tape), attended.transpose(0, 1).flatten(1), "attention")

    def states(self, tape: Tape, queries: slice, keys: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values for each head of the queries: [heads, positions, d]."""
        key, value = (
            part.states(tape, keys).repeat_interleave(self.q.heads // part.heads, 0)
            if part.heads != self.q.heads
            else part.states(tape, keys)
            for part in (self.k, self.v)
        )
        return self.q.states(tape, queries), key, value

    def weights(self, query: Tensor, key: Tensor, first: int) -> tuple[Tensor, Tensor | None]:
        """Attention weights [heads, q, k] of queries whose first one stands at position ``first``.

        With them, the derivative of the scores by the products of queries and keys, if it is not 1.
        """
        scores, slope = (query * self.scale) @ key.transpose(1, 2), None
        if self.cap is not None:
            capped = torch.tanh(scores / self.cap)
            scores, slope = self.cap * capped, 1 - capped.square()
        if self.bias is not None:
            scores += self.bias.compute_bias(first + query.shape[1], key.shape[1])[0, :, first:]
        if self.causal or self.reach is not None:
            scores = scores.masked_fill(self._hidden(scores, first), float("-inf"))
        return scores.softmax(-1), slope

    def _hidden(self, scores: Tensor, first: int) -> Tensor:
        """Which keys a query does not see: [q, k]."""
        _, queries, keys = scores.shape
        numbers = torch.arange(max(first + queries, keys), device=scores.device)
        back = numbers[first : first + queries, None] - numbers[:keys]  # how far back a key is
        if not self.causal:
            return back.abs() > (self.reach or 0)
        return back < 0 if self.reach is None else (back < 0) | (back >= self.reach)


def distinct(*projections: Projection) -> tuple[Any, ...]:
    """The modules of projections, a fused one once."""
    return tuple(dict.fromkeys(projection.module for projection in projections))


@dataclass(frozen=True)
class Branch:
    """A branch: what a residual adds to x, ``after(block(before(x)))``; either norm may be absent."""

    block: Attention | FeedForward
    before: Any | None = None
    after: Any | None = None

    def entry(self, tape: Tape) -> Tensor:
        """x, [length, d]."""
        return self.block.entry(tape) if self.before is None else tape.input(self.before)

    def exit(self, tape: Tape) -> Tensor:
        """Output that is added, [length, d]."""
        return self.block.exit(tape) if self.after is None else tape.output(self.after)

    def replay(self, tape: Tape, x: Tensor, memory: Tensor | None) -> Tensor:
        """Output that is added to ``x``, checked step by step against what was recorded: [length, d]."""
        if self.before is not None:
            require_equal(tape.input(self.before), x, "input of a norm")
            x = self.before.replay(tape)
        require_equal(self.block.entry(tape), x, f"input of {type(self.block).__name__}")
        for linear in self.block.linears:
            linear.check(tape)
        self.block.check(tape, memory)
        if self.after is None:
            return self.block.exit(tape)
        require_equal(tape.input(self.after), self.block.exit(tape), "input of a norm")
        return self.after.replay(tape)


@dataclass(frozen=True)
class Residual:
    """``x + branch(x)``, or a sum with several branches (parallel blocks); ``norm``: one after the sum.

    Of several branches, attention is the last, because its relevance covers the most positions.
    """

    branches: tuple[Branch, ...]
    norm: Any | None = None

    @property
    def mixes_positions(self) -> bool:
        """Whether a position's output depends on other positions."""
        return any(branch.block.mixes_positions for branch in self.branches)

    def terms(self, tape: Tape) -> list[Tensor]:
        """The terms of the sum, [length, d] each: x first."""
        return [self.branches[0].entry(tape), *(branch.exit(tape) for branch in self.branches)]

    def replay(self, tape: Tape, x: Tensor, memory: Tensor | None) -> Tensor:
        """Output for ``x``, checked step by step against what was recorded: [length, d]."""
        joined = x
        for branch in self.branches:
            joined = joined + branch.replay(tape, x, memory)
        if self.norm is None:
            return joined
        require_equal(tape.input(self.norm), joined, "residual sum")
        return self.norm.replay(tape)


@dataclass(frozen=True)
class Layer:
    """One layer of a stack: residual blocks in order."""

    module: nn.Module
    residuals: tuple[Residual, ...]

    def replay(self, tape: Tape, x: Tensor, memory: Tensor | None) -> Tensor:
        """Output for ``x``, checked against what was recorded: [length, d]."""
        require_equal(tape.input(self.module), x, "input of a layer")
        for residual in self.residuals:
            x = residual.replay(tape, x, memory)
        require_equal(tape.output(self.module), x, "output of a layer")
        return x


@dataclass(frozen=True)
class FrontEnd:
    """Front end from features over time to positions: convolutions, an activation after each, positions."""

    convolutions: tuple[Any, ...]
    activation: Callable[[Tensor], Tensor]
    positions: Any

    def check(self, tape: Tape, x: Tensor) -> None:
        """Raise unless the front end's output is ``x`` [length, d] and was computed as assumed."""
        for earlier, later in zip(self.convolutions, self.convolutions[1:], strict=False):
            require_equal(tape.input(later), self.activation(tape.output(earlier)), "activation after a convolution")
        embedded = self.activation(tape.output(self.convolutions[-1])).T
        require_equal(x, embedded + self.positions.weight[: len(embedded)], "output of the convolutions")


@dataclass(frozen=True)
class Stack:
    """Encoder or decoder. projection: a linear layer on top of the final norm."""

    layers: tuple[Layer, ...]
    final_norm: Any | None
    front: FrontEnd | None = None
    projection: Any | None = None

    def replay(self, tape: Tape, memory: Tensor | None = None) -> Tensor:
        """The stack's output [length, d]; raises if the stack is not what it is taken for."""
        x = tape.input(self.layers[0].module)
        if self.front is not None:
            self.front.check(tape, x)
        for layer in self.layers:
            x = layer.replay(tape, x, memory)
        if self.final_norm is not None:
            require_equal(tape.input(self.final_norm), x, "input of the final norm")
            x = self.final_norm.replay(tape)
        if self.projection is not None:
            require_equal(tape.input(self.projection), x, "input of the projection on top of the stack")
            x = tape.output(self.projection)
        return x


@dataclass(frozen=True)
class Network:
    """A model as its family describes it, and the modules whose inputs and outputs are recorded, with their kinds.

    encoder: None in a model that is a decoder only.
    head_bias: [V] or None; head_scale: the output layer sees the decoder's output times this; logit_scale, logit_cap:
    what comes out is multiplied by the one, and softly capped at the other. time_first: layers see batches as
    [length, batch, d].
    """

    encoder: Stack | None
    decoder: Stack
    head: Any
    head_bias: Tensor | None
    head_scale: float
    counterparts: dict[nn.Module, type[Recorded]]
    logit_scale: float = 1.0
    logit_cap: float | None = None
    time_first: bool = False

    def check_decoder(self, tape: Tape, memory: Tensor | None, logits: Tensor) -> None:
        """Raise if a recorded forward pass is not the one relevance assumes, from the encoder's output on.

        memory: the encoder's replayed output, [source, d]; logits: those of the pass, [positions, V], which may leave
        out positions at the beginning.
        """
        output = self.decoder.replay(tape, memory)[-len(logits) :]
        require_equal(tape.input(self.head), output * self.head_scale, "input of the output layer")
        expected = tape.output(self.head)
        if self.head_bias is not None:
            expected = expected + self.head_bias
        if self.logit_scale != 1:
            expected = expected * self.logit_scale
        if self.logit_cap is not None:
            expected = self.logit_cap * torch.tanh(expected / self.logit_cap)
        require_equal(logits, expected, "output of the model")

    def logit_rows(self, ids: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Weights [n, d] and biases [n] of the logits ``ids`` [n], or of differences of two, [n, 2].

        logits: [n, V]. The derivative of a soft cap weighs the two of a difference; a single logit's drops out.
        """
        rows = self.head.weight[ids]
        biases = [bias[ids] for bias in (self.head.bias, self.head_bias) if bias is not None]
        total = sum(biases[1:], biases[0]) if biases else rows.new_zeros(ids.shape)
        if ids.dim() == 1:
            return rows, total
        if self.logit_cap is not None:
            slope = 1 - (logits.gather(1, ids) / self.logit_cap).square()
            rows, total = rows * slope.unsqueeze(-1), total * slope
        return rows[:, 0] - rows[:, 1], total[:, 0] - total[:, 1]


def widths(network: Network) -> tuple[int, int]:
    """The widest input or output of linear layers in attention, and in all blocks."""
    stacks = [stack for stack in (network.encoder, network.decoder) if stack is not None]
    blocks = [b.block for stack in stacks for layer in stack.layers for r in layer.residuals for b in r.branches]
    widest = [max(max(linear.weight.shape) for linear in block.linears) for block in blocks]
    return max(w for w, block in zip(widest, blocks, strict=True) if isinstance(block, Attention)), max(widest)
