"""How relevance goes back through the parts of a layer: attention, feed-forward, and the residual around each.

Blocks are built from the description of a model family (:mod:`hf_lrp.relevance.families`); they hold a model's own
modules, which must have been exchanged for their counterparts before relevance can pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from hf_lrp.relevance import operations
from hf_lrp.relevance.modules import Tape, Window, require_equal

# Takes what cross-attention sends to the encoder output, [source positions, steps, d].
Leak = Callable[[Tensor], None]


class Block(Protocol):
    """What stands between a residual's two ends."""

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

    fc1: Any
    fc2: Any
    activation: Callable[[Tensor], Tensor]
    gate: Any | None = None

    @property
    def linears(self) -> tuple[Any, ...]:
        return (self.fc1, self.fc2) if self.gate is None else (self.fc1, self.gate, self.fc2)

    def entry(self, tape: Tape) -> Tensor:
        return tape.input(self.fc1)

    def exit(self, tape: Tape) -> Tensor:
        return tape.output(self.fc2)

    def check(self, tape: Tape, memory: Tensor | None) -> None:
        hidden = self.activation(tape.output(self.fc1))
        if self.gate is not None:
            require_equal(tape.input(self.gate), self.entry(tape), "input of the gate")
            hidden = hidden * tape.output(self.gate)
        require_equal(tape.input(self.fc2), hidden, "feed-forward activation")

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

    bias: a module whose ``compute_bias(queries, keys)`` [1, heads, queries, keys] is added to the scores.
    """

    q: Any
    k: Any
    v: Any
    out: Any
    heads: int
    scale: float
    causal: bool = False
    cross: bool = False
    bias: Any | None = None

    @property
    def linears(self) -> tuple[Any, ...]:
        return self.q, self.k, self.v, self.out

    def entry(self, tape: Tape) -> Tensor:
        return tape.input(self.q)

    def exit(self, tape: Tape) -> Tensor:
        return tape.output(self.out)

    def check(self, tape: Tape, memory: Tensor | None) -> None:
        attended_to = memory if self.cross and memory is not None else self.entry(tape)
        require_equal(tape.input(self.k), attended_to, "input of the keys")
        require_equal(tape.input(self.v), attended_to, "input of the values")
        query, key, value = (self._split(tape.output(module)) for module in (self.q, self.k, self.v))
        attended = self._weights(query, key, 0) @ value
        require_equal(tape.input(self.out), attended.transpose(0, 1).flatten(1), "attention")

    def relprop(self, window: Window, relevance: Tensor, leak: Leak) -> tuple[Tensor, Window]:
        to_query, to_key, to_value, keys = self._through_core(window, relevance)
        to_keys = self.k.relprop(keys, to_key).add_(self.v.relprop(keys, to_value))
        return self._join(window, self.q.relprop(window, to_query), keys, to_keys, leak)

    def totals(self, window: Window, relevance: Tensor, leak: Leak) -> tuple[Tensor, Window]:
        to_query, to_key, to_value, keys = self._through_core(window, relevance)
        return self._join(window, _total(to_query), keys, _total(to_key).add_(_total(to_value)), leak)

    def _join(
        self, window: Window, to_query: Tensor, keys: Window, to_keys: Tensor, leak: Leak
    ) -> tuple[Tensor, Window]:
        if self.cross:
            leak(to_keys)
            return to_query, window
        return join(to_query, window, to_keys, keys), keys

    def _through_core(self, window: Window, relevance: Tensor) -> tuple[Tensor, Tensor, Tensor, Window]:
        """From the block's output to the outputs of q, k and v, all [positions, steps, d], and the keys' window."""
        keys = self._key_window(window)
        relevance = self._split(self.out.relprop(window, relevance))
        query = self._split(window.output(self.q))
        key, value = self._split(keys.output(self.k)), self._split(keys.output(self.v))
        weights = self._weights(query, key, window.positions.start or 0)
        received = operations.attention(
            window.rule, query * self.scale, key, value, weights, relevance, window.own_step
        )
        to_query, to_key, to_value = (part.movedim(0, 2).flatten(2) for part in received)
        return to_query, to_key, to_value, keys

    def _key_window(self, window: Window) -> Window:
        if self.cross:
            return replace(window, positions=slice(None), lag=None, own_step=False)
        if window.own_step:
            return replace(
                window, positions=slice(0, window.positions.stop), lag=window.positions.start, own_step=False
            )
        return window

    def _weights(self, query: Tensor, key: Tensor, first: int) -> Tensor:
        """Attention weights [heads, q, k] of queries whose first one stands at position ``first``."""
        scores = (query * self.scale) @ key.transpose(1, 2)
        if self.bias is not None:
            scores += self.bias.compute_bias(first + query.shape[1], key.shape[1])[0, :, first:]
        if self.causal:
            future = torch.ones(scores.shape[1:], dtype=torch.bool, device=scores.device).triu(first + 1)
            scores = scores.masked_fill(future, float("-inf"))
        return scores.softmax(-1)

    def _split(self, x: Tensor) -> Tensor:
        """[positions, (steps,) d] -> [heads, positions, (steps,) d / heads]"""
        return x.unflatten(-1, (self.heads, -1)).movedim(-2, 0)


@dataclass(frozen=True)
class Residual:
    """``x + block(norm(x))`` (norm first) or ``norm(x + block(x))``."""

    block: Any
    norm: Any
    norm_first: bool

    def replay(self, tape: Tape, x: Tensor, memory: Tensor | None) -> Tensor:
        """What comes out for ``x``, checked step by step against what was recorded: [length, d]."""
        if self.norm_first:
            require_equal(tape.input(self.norm), x, "input of a norm")
        inner = self.norm.replay(tape) if self.norm_first else x
        require_equal(self.block.entry(tape), inner, f"input of {type(self.block).__name__}")
        self.block.check(tape, memory)
        joined = x + self.block.exit(tape)
        if self.norm_first:
            return joined
        require_equal(tape.input(self.norm), joined, "residual sum")
        return self.norm.replay(tape)

    def relprop(self, window: Window, relevance: Tensor, leak: Leak) -> tuple[Tensor, Window]:
        """From output to input."""
        to_x, to_update = self._part(window, relevance)
        to_input, reached = self.block.relprop(window, to_update, leak)
        if self.norm_first:
            to_input = self.norm.relprop(reached, to_input)
        return join(to_x, window, to_input, reached), reached

    def totals(self, window: Window, relevance: Tensor, leak: Leak) -> tuple[Tensor, Window]:
        """The same, but only each input position's total, [positions, steps, 1]: norms do not change it."""
        to_x, to_update = self._part(window, relevance)
        to_input, reached = self.block.totals(window, to_update, leak)
        return join(_total(to_x), window, to_input, reached), reached

    def _part(self, window: Window, relevance: Tensor) -> tuple[Tensor, Tensor]:
        """From the output to both terms of the sum."""
        if not self.norm_first:
            relevance = self.norm.relprop(window, relevance)
        x = window.input(self.norm) if self.norm_first else self.block.entry(window.tape)[window.positions]
        return operations.residual(window.rule, x, self.block.exit(window.tape)[window.positions], relevance)


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
