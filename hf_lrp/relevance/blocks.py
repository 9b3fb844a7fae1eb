"""How relevance goes back through the parts of a layer: attention, feed-forward, and the residual around each.

Blocks are built from the description of a model family (`hf_lrp.models.families`); they hold a model's own
modules, which must have been exchanged for their counterparts before relevance can pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from hf_lrp.relevance import operations
from hf_lrp.relevance.heads import HeadStates, Projection
from hf_lrp.relevance.modules import Tape, Window, require_equal

# What works within positions is done for so many at a time that its widest tensor has about this many elements:
# more cost memory, and time for the system to clear it.
CPU_ELEMENTS = 2**22
GPU_ELEMENTS = 2**28


class Leak:
    """What cross-attention sends to the encoder's output, summed over the layers: [source positions, steps, d].

    totals: only each position's total, [.., 1], is asked for, which is cheaper.
    """

    def __init__(self, totals: bool = False) -> None:
        self.totals = totals
        self.relevance: Tensor | None = None

    def add(self, relevance: Tensor) -> None:
        """Add what one layer sends."""
        self.relevance = relevance if self.relevance is None else self.relevance.add_(relevance)


class Block(Protocol):
    """What stands between a residual's two ends."""

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

    def relprop(self, window: Window, relevance: Tensor, leak: Leak) -> tuple[Tensor, Window]:
        """From output to input, and the window that the input's relevance covers."""

    def totals(self, window: Window, relevance: Tensor, leak: Leak) -> tuple[Tensor, Window]:
        """The same, but only each input position's total, [positions, steps, 1], which is cheaper."""


@dataclass(frozen=True)
class FeedForward:
    """``fc2(activation(fc1(x)))``, or ``fc2(activation(fc1(x)) * gate(x))``.

    Relevance passes the activation unchanged, and the product in equal halves.
    """

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

    def relprop(self, window: Window, relevance: Tensor, leak: Leak) -> tuple[Tensor, Window]:
        relevance = self.fc2.relprop(window, relevance)
        if self.gate is None:
            return self.fc1.relprop(window, relevance), window
        activated, gating = operations.product(relevance)
        return self.fc1.relprop(window, activated).add_(self.gate.relprop(window, gating)), window

    def totals(self, window: Window, relevance: Tensor, leak: Leak) -> tuple[Tensor, Window]:
        return _total(relevance), window


@dataclass(frozen=True)
class Attention:
    """Multi-head attention: of a sequence to itself (``causal`` or not), or to the encoder's output.

    Keys and values may have fewer heads than queries, each for a group of these; they receive the group's relevance.

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
        query, key, value = self._states(tape, slice(None), slice(None))
        attended = self._weights(query, key, 0)[0] @ value
        require_equal(self.out.input(tape), attended.transpose(0, 1).flatten(1), "attention")

    def relprop(self, window: Window, relevance: Tensor, leak: Leak) -> tuple[Tensor, Window]:
        to_query, to_key, to_value, keys = self._through_core(window, relevance)
        if self.cross and leak.totals:
            to_keys = _total(to_key).add_(_total(to_value))
        else:
            to_keys = self.k.relprop(keys, to_key)
            del to_key  # each is as large as anything that is held meanwhile
            to_keys.add_(self.v.relprop(keys, to_value))
            del to_value
        return self._join(window, self.q.relprop(window, to_query), keys, to_keys, leak)

    def totals(self, window: Window, relevance: Tensor, leak: Leak) -> tuple[Tensor, Window]:
        to_query, to_key, to_value, keys = self._through_core(window, relevance)
        return self._join(window, _total(to_query), keys, _total(to_key).add_(_total(to_value)), leak)

    def _join(
        self, window: Window, to_query: Tensor, keys: Window, to_keys: Tensor, leak: Leak
    ) -> tuple[Tensor, Window]:
        if self.cross:
            leak.add(to_keys)
            return to_query, window
        return join(to_query, window, to_keys, keys), keys

    def _through_core(self, window: Window, relevance: Tensor) -> tuple[Tensor, Tensor, Tensor, Window]:
        """From the block's output to queries, keys and values, all [positions, steps, d], and the keys' window."""
        keys = self._key_window(window)
        relevance = self.out.relprop(window, relevance).unflatten(-1, (self.q.heads, -1)).movedim(-2, 0)
        query, key, value = self._states(window.tape, window.positions, keys.positions)
        weights, slope = self._weights(query, key, window.positions.start or 0)
        causal = self.causal and not window.own_step
        received = operations.attention(
            window.rule, query * self.scale, key, value, weights, relevance, window.own_step, slope, window.lag, causal
        )
        to_query, to_key, to_value = (part.movedim(0, 2) for part in received)
        return to_query.flatten(2), self._of_groups(self.k, to_key), self._of_groups(self.v, to_value), keys

    def _states(self, tape: Tape, queries: slice, keys: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values for each head of the queries: [heads, positions, d]."""
        key, value = (
            part.states(tape, keys).repeat_interleave(self.q.heads // part.heads, 0)
            if part.heads != self.q.heads
            else part.states(tape, keys)
            for part in (self.k, self.v)
        )
        return self.q.states(tape, queries), key, value

    def _of_groups(self, states: HeadStates, relevance: Tensor) -> Tensor:
        """[positions, steps, heads of queries, d] -> [positions, steps, heads of keys x d]"""
        if states.heads == self.q.heads:
            return relevance.flatten(2)
        return relevance.unflatten(2, (states.heads, -1)).sum(3).flatten(2)

    def _key_window(self, window: Window) -> Window:
        if self.cross:
            return replace(window, positions=slice(None), lag=None, own_step=False)
        if window.own_step:
            return replace(
                window, positions=slice(0, window.positions.stop), lag=window.positions.start, own_step=False
            )
        return window

    def _weights(self, query: Tensor, key: Tensor, first: int) -> tuple[Tensor, Tensor | None]:
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
    """What a residual adds to x: ``after(block(before(x)))``; either norm may be absent."""

    block: Any
    before: Any | None = None
    after: Any | None = None

    def entry(self, tape: Tape) -> Tensor:
        """x, [length, d]."""
        return self.block.entry(tape) if self.before is None else tape.input(self.before)

    def exit(self, tape: Tape) -> Tensor:
        """What is added, [length, d]."""
        return self.block.exit(tape) if self.after is None else tape.output(self.after)

    def replay(self, tape: Tape, x: Tensor, memory: Tensor | None) -> Tensor:
        """What is added to ``x``, checked step by step against what was recorded: [length, d]."""
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

    def relprop(self, window: Window, relevance: Tensor, leak: Leak) -> tuple[Tensor, Window]:
        """From what is added to the output of the norm before the block, which branches may share."""
        if self.after is not None:
            relevance = self.after.relprop(window, relevance)
        return self.block.relprop(window, relevance, leak)

    def totals(self, window: Window, relevance: Tensor, leak: Leak) -> tuple[Tensor, Window]:
        """The same, but only each input position's total, [positions, steps, 1]."""
        if self.after is not None:
            relevance = self.after.relprop(window, relevance)
        return self.block.totals(window, relevance, leak)


@dataclass(frozen=True)
class Residual:
    """``x + branch(x)``, or a sum with several branches (parallel blocks); ``norm``: one after the sum.

    Of several branches, attention is the last, because its relevance covers the most positions.
    """

    branches: tuple[Branch, ...]
    norm: Any | None = None

    def replay(self, tape: Tape, x: Tensor, memory: Tensor | None) -> Tensor:
        """What comes out for ``x``, checked step by step against what was recorded: [length, d]."""
        joined = x
        for branch in self.branches:
            joined = joined + branch.replay(tape, x, memory)
        if self.norm is None:
            return joined
        require_equal(tape.input(self.norm), joined, "residual sum")
        return self.norm.replay(tape)

    def relprop(self, window: Window, relevance: Tensor, leak: Leak) -> tuple[Tensor, Window]:
        """From output to input."""
        if any(branch.block.mixes_positions for branch in self.branches):
            return self._relprop(window, relevance, leak)
        result = torch.empty_like(relevance)
        size = self._positions_at_a_time(relevance)
        for start in range(0, len(relevance), size):
            some = slice(start, min(start + size, len(relevance)))
            result[some] = self._relprop(window.part(some), relevance[some], leak)[0]
        return result, window

    def _positions_at_a_time(self, relevance: Tensor) -> int:
        widest = max(max(linear.weight.shape) for branch in self.branches for linear in branch.block.linears)
        elements = CPU_ELEMENTS if relevance.device.type == "cpu" else GPU_ELEMENTS
        return max(1, elements // (relevance.shape[1] * widest))

    def _relprop(self, window: Window, relevance: Tensor, leak: Leak) -> tuple[Tensor, Window]:
        total, *to_updates = self._part(window, relevance)
        covered = window
        pairs = zip(self.branches, to_updates, strict=True)
        for _, sharing in groupby(pairs, lambda pair: id(pair[0].before)):  # a norm is passed once
            received: Tensor | None = None
            reached = window
            for branch, to_update in sharing:
                to_input, wider = branch.relprop(window, to_update, leak)
                received = to_input if received is None else join(received, reached, to_input, wider)
                reached = wider
            assert received is not None
            if branch.before is not None:
                received = branch.before.relprop(reached, received)
            total, covered = join(total, covered, received, reached), reached
        return total, covered

    def totals(self, window: Window, relevance: Tensor, leak: Leak) -> tuple[Tensor, Window]:
        """The same, but only each input position's total, [positions, steps, 1]: norms do not change it."""
        to_x, *to_updates = self._part(window, relevance)
        total, covered = _total(to_x), window
        for branch, to_update in zip(self.branches, to_updates, strict=True):
            received, reached = branch.totals(window, to_update, leak)
            total, covered = join(total, covered, received, reached), reached
        return total, covered

    def _part(self, window: Window, relevance: Tensor) -> list[Tensor]:
        """From the output to all terms of the sum, x first."""
        if self.norm is not None:
            relevance = self.norm.relprop(window, relevance)
        tape, positions = window.tape, window.positions
        terms = [self.branches[0].entry(tape), *(branch.exit(tape) for branch in self.branches)]
        return operations.sum_of(window.rule, [term[positions] for term in terms], relevance)


@dataclass(frozen=True)
class Layer:
    """One layer of a stack: residual blocks in order."""

    module: nn.Module
    residuals: tuple[Residual, ...]

    def replay(self, tape: Tape, x: Tensor, memory: Tensor | None) -> Tensor:
        """What comes out for ``x``, checked against what was recorded: [length, d]."""
        require_equal(tape.input(self.module), x, "input of a layer")
        for residual in self.residuals:
            x = residual.replay(tape, x, memory)
        require_equal(tape.output(self.module), x, "output of a layer")
        return x

    def relprop(self, window: Window, relevance: Tensor, leak: Leak) -> tuple[Tensor, Window]:
        """From the layer's output to its input."""
        for residual in reversed(self.residuals):
            relevance, window = residual.relprop(window, relevance, leak)
        return relevance, window

    def totals(self, window: Window, relevance: Tensor, leak: Leak) -> Tensor:
        """From the layer's output to the total of each position of its input: [positions, steps]."""
        first, *others = self.residuals
        for residual in reversed(others):
            relevance, window = residual.relprop(window, relevance, leak)
        return first.totals(window, relevance, leak)[0].squeeze(-1)


@dataclass(frozen=True)
class FrontEnd:
    """What turns features over time into a stack's positions: convolutions, an activation after each, positions."""

    convolutions: tuple[Any, ...]
    activation: Callable[[Tensor], Tensor]
    positions: Any

    def check(self, tape: Tape, x: Tensor) -> None:
        """Raise unless the front end's output is ``x`` [length, d] and was computed as assumed."""
        for earlier, later in zip(self.convolutions, self.convolutions[1:], strict=False):
            require_equal(tape.input(later), self.activation(tape.output(earlier)), "activation after a convolution")
        embedded = self.activation(tape.output(self.convolutions[-1])).T
        require_equal(x, embedded + self.positions.weight[: len(embedded)], "output of the convolutions")

    def totals(self, window: Window, relevance: Tensor) -> Tensor:
        """[positions, steps, d] -> the total of the features that each position stands for: [positions, steps]."""
        positions = len(relevance)
        for convolution in reversed(self.convolutions):
            relevance = convolution.relprop(window, relevance)
        return relevance.sum(-1).unflatten(0, (positions, -1)).sum(1)


def _total(relevance: Tensor) -> Tensor:
    """[positions, steps, d] -> [positions, steps, 1]"""
    return relevance.sum(-1, keepdim=True)


def join(own: Tensor, window: Window, spread: Tensor, reached: Window) -> Tensor:
    """Sum of two relevances of the same tensor, the second of which may cover more positions and steps."""
    if not window.own_step or reached.own_step:
        return own.add_(spread)
    first = window.positions.start
    steps = torch.arange(len(own), device=own.device)
    spread[first + steps, steps] += own[:, 0]
    return spread
