"""How relevance goes back through the parts of a model: attention, feed-forward, residuals, layers, stacks.

Parts are described in `hf_lrp.models.structure`; their modules must have been exchanged for relevance-aware
counterparts (`hf_lrp.relevance.counterparts`) and recorded.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from torch import Tensor, nn

from hf_lrp.models.heads import HeadNorm, HeadStates, Projection
from hf_lrp.models.recording import Tape
from hf_lrp.models.rotation import Rotation, of_all_heads
from hf_lrp.models.structure import Attention, Branch, FeedForward, FrontEnd, Layer, Residual, Stack
from hf_lrp.relevance import operations
from hf_lrp.relevance.reused_memory import new_empty
from hf_lrp.relevance.rules import Rule
from hf_lrp.relevance.trace import Trace
from hf_lrp.relevance.window import WHOLE, Window

# What works within positions is done for so many at a time that its widest tensor has about this many elements:
# more cost memory, and time for the system to clear it.
CPU_ELEMENTS = 2**22
GPU_ELEMENTS = 2**28


class Backward:
    """Relevance on its way back through one recorded forward pass, and what it leaves on the way.

    Methods take relevance [positions, steps, d] of a part's output and its window, and give that of the part's input
    and the window which that covers. Relevance that is given may be changed in place.

    Attributes:
        leak: what cross-attention has sent to the encoder's output so far: [source positions, steps, d], or with
            `leak_totals` only each position's total, [source positions, steps, 1], which is cheaper. None: nothing.
        trace: where all that passes is noted; None: nowhere.
    """

    def __init__(self, tape: Tape, rule: Rule, leak_totals: bool = False, trace: Trace | None = None) -> None:
        self.tape, self.rule, self.trace = tape, rule, trace
        self.leak: Tensor | None = None
        self._leak_totals = leak_totals

    # ---- stacks and layers

    def stack(self, stack: Stack, relevance: Tensor, window: Window) -> Tensor:
        """From a stack's output to the total of each input position: [positions, steps].

        A position's total is all that is asked for, and whatever works within a position keeps it. So the lowest
        projections and everything below them (norms, scales and sums of embeddings) need no propagation. What mixes
        positions, the front end's convolutions, does.
        """
        if stack.projection is not None:
            relevance = self.linear(Projection(stack.projection), relevance, window)
        if stack.final_norm is not None:
            relevance = self.norm(stack.final_norm, relevance, window)
        lowest, *others = stack.layers
        for layer in reversed(others):
            relevance, window = self.layer(layer, relevance, window)
        if stack.front is None:
            relevance, window = self.layer_totals(lowest, relevance, window)
        else:
            relevance, window = self.layer(lowest, relevance, window)
        if self.trace is not None:
            self.trace.bottom(relevance, window)
        return relevance.squeeze(-1) if stack.front is None else self.front_end(stack.front, relevance)

    def layer(self, layer: Layer, relevance: Tensor, window: Window) -> tuple[Tensor, Window]:
        """From a layer's output to its input."""
        if self.trace is not None:
            self.trace.above(layer, relevance, window)
        for residual in reversed(layer.residuals):
            relevance, window = self.residual(residual, relevance, window)
        return relevance, window

    def layer_totals(self, layer: Layer, relevance: Tensor, window: Window) -> tuple[Tensor, Window]:
        """From a layer's output to the total of each position of its input: [positions, steps, 1]."""
        if self.trace is not None:
            self.trace.above(layer, relevance, window)
        first, *others = layer.residuals
        for residual in reversed(others):
            relevance, window = self.residual(residual, relevance, window)
        return self._residual_totals(first, relevance, window)

    def front_end(self, front: FrontEnd, relevance: Tensor) -> Tensor:
        """[positions, steps, d] -> the total of the features that each position stands for: [positions, steps]."""
        positions = len(relevance)
        for convolution in reversed(front.convolutions):
            x = self.tape.input(convolution).T  # recorded as [channels, frames]
            relevance = convolution.relprop(self.rule, x, relevance)
        return relevance.sum(-1).unflatten(0, (positions, -1)).sum(1)

    # ---- residuals

    def residual(self, residual: Residual, relevance: Tensor, window: Window) -> tuple[Tensor, Window]:
        """From a sum (and the norm after it) to what was added to."""
        if residual.mixes_positions:
            return self._residual(residual, relevance, window)
        result = new_empty(relevance, *relevance.shape)
        size = _positions_at_a_time(residual, relevance)
        for start in range(0, len(relevance), size):
            some = slice(start, min(start + size, len(relevance)))
            result[some] = self._residual(residual, relevance[some], window.part(some))[0]
        return result, window

    def _residual(self, residual: Residual, relevance: Tensor, window: Window) -> tuple[Tensor, Window]:
        total, *to_updates = self._part_sum(residual, relevance, window)
        covered = window
        pairs = zip(residual.branches, to_updates, strict=True)
        for _, sharing in groupby(pairs, lambda pair: id(pair[0].before)):  # a norm is passed once
            received: Tensor | None = None
            reached = window
            for branch, to_update in sharing:
                to_input, wider = self._block(branch, to_update, window)
                received = to_input if received is None else reached.join(received, to_input, wider)
                reached = wider
            assert received is not None
            if branch.before is not None:
                received = self.norm(branch.before, received, reached)
            total, covered = covered.join(total, received, reached), reached
        return total, covered

    def _residual_totals(self, residual: Residual, relevance: Tensor, window: Window) -> tuple[Tensor, Window]:
        """The same, but only each input position's total, [positions, steps, 1]: norms do not change it."""
        to_x, *to_updates = self._part_sum(residual, relevance, window)
        total, covered = _total(to_x), window
        for branch, to_update in zip(residual.branches, to_updates, strict=True):
            received, reached = self._block_totals(branch, to_update, window)
            total, covered = covered.join(total, received, reached), reached
        return total, covered

    def _part_sum(self, residual: Residual, relevance: Tensor, window: Window) -> list[Tensor]:
        """From the output to all terms of the sum, x first."""
        if residual.norm is not None:
            relevance = self.norm(residual.norm, relevance, window)
        terms = [term[window.positions] for term in residual.terms(self.tape)]
        to_x, *to_updates = operations.sum_of(self.rule, terms, relevance)
        if self.trace is not None:
            self.trace.joined(residual, to_x, to_updates, window)
        return [to_x, *to_updates]

    def _block(self, branch: Branch, relevance: Tensor, window: Window) -> tuple[Tensor, Window]:
        """From what a branch adds to the output of the norm before its block, which branches may share."""
        if branch.after is not None:
            relevance = self.norm(branch.after, relevance, window)
        if isinstance(branch.block, FeedForward):
            return self.feed_forward(branch.block, relevance, window), window
        return self.attention(branch.block, relevance, window)

    def _block_totals(self, branch: Branch, relevance: Tensor, window: Window) -> tuple[Tensor, Window]:
        """The same, but only each input position's total, [positions, steps, 1]."""
        if branch.after is not None:
            relevance = self.norm(branch.after, relevance, window)
        if isinstance(branch.block, FeedForward):
            return _total(relevance), window
        return self.attention(branch.block, relevance, window, totals=True)

    # ---- blocks

    def feed_forward(self, block: FeedForward, relevance: Tensor, window: Window) -> Tensor:
        """From the block's output to its input.

        Relevance passes the activation unchanged, and the product of a gated block in equal halves.
        """
        relevance = self.linear(block.fc2, relevance, window)
        if block.gate is None:
            return self.linear(block.fc1, relevance, window)
        x, layers = self._input(block.fc1.module, window), (block.fc1, block.gate)
        (weight, bias), (gate, gate_bias) = (layer.module.weights(layer.rows) for layer in layers)
        return operations.gated(self.rule, x, weight, bias, gate, gate_bias, relevance, window.lag)

    def attention(
        self, block: Attention, relevance: Tensor, window: Window, totals: bool = False
    ) -> tuple[Tensor, Window]:
        """From the block's output to its input; cross-attention leaves what keys and values receive in `leak`.

        totals: only each input position's total, [positions, steps, 1].
        """
        keys = WHOLE if block.cross else window.below()
        to_query, to_key, to_value = self._attention_core(block, relevance, window, keys)
        if totals or (block.cross and self._leak_totals):
            to_keys = _total(to_key).add_(_total(to_value))
        else:
            to_keys = self._head_states(block.k, to_key, keys)
            del to_key  # each is as large as anything that is held meanwhile
            to_keys.add_(self._head_states(block.v, to_value, keys))
            del to_value
        to_input = _total(to_query) if totals else self._head_states(block.q, to_query, window)
        if block.cross:
            if self.trace is not None:
                self.trace.sent(block, to_keys)
            self.leak = to_keys if self.leak is None else self.leak.add_(to_keys)
            return to_input, window
        return window.join(to_input, to_keys, keys), keys

    def _attention_core(
        self, block: Attention, relevance: Tensor, window: Window, keys: Window
    ) -> tuple[Tensor, Tensor, Tensor]:
        """From the block's output to queries, keys and values of all heads, [positions, steps, d] each."""
        relevance = self.linear(block.out, relevance, window).unflatten(-1, (block.q.heads, -1)).movedim(-2, 0)
        query, key, value = block.states(self.tape, window.positions, keys.positions)
        weights, slope = block.weights(query, key, window.positions.start or 0)
        causal = block.causal and not window.own_step
        received = operations.attention(
            self.rule, query * block.scale, key, value, weights, relevance, window.own_step, slope, window.lag, causal
        )
        to_query, to_key, to_value = (part.movedim(0, 2) for part in received)
        if self.trace is not None:
            self.trace.attended(block, (to_query, to_key, to_value), (window, keys, keys))
            if self.trace.pairs:
                core = operations.Core(
                    query * block.scale, key, value, weights, slope, window.own_step, window.lag, causal
                )
                totals = self.trace.received(block, window)
                pairs = operations.attention_pairs(self.rule, core, relevance, totals)
                self.trace.paired(block, pairs, window, keys)
        return to_query.flatten(2), _of_groups(block, block.k, to_key), _of_groups(block, block.v, to_value)

    # ---- modules

    def linear(
        self, projection: Projection, relevance: Tensor, window: Window, rotation: Rotation | None = None
    ) -> Tensor:
        """[positions, steps, out] -> [positions, steps, in]; rotation: one that follows."""
        x, module = self._input(projection.module, window), projection.module
        received: Tensor = module.relprop(self.rule, x, relevance, window.lag, projection.rows, rotation)
        return received

    def norm(self, norm: Any, relevance: Tensor, window: Window) -> Tensor:
        """[positions, steps, d] -> [positions, steps, d]"""
        x = self._input(norm, window)
        received: Tensor = norm.relprop(self.rule, x, relevance, window.lag)
        return received

    def _head_states(self, states: HeadStates, relevance: Tensor, window: Window) -> Tensor:
        """[positions, steps, heads d] -> [positions, steps, in]"""
        place = self.tape, window.positions
        if states.norm is not None:
            x, rotation = states.projected(*place), states.rotation_of(*place)
            relevance = self._head_norm(states.norm, x, rotation, relevance)
        elif states.rotary is not None:
            rotation = of_all_heads(states.rotation_of(*place), states.heads)
            return self.linear(states.projection, relevance, window, rotation)
        return self.linear(states.projection, relevance, window)

    def _head_norm(self, norm: HeadNorm, x: Tensor, rotation: Rotation, relevance: Tensor) -> Tensor:
        """x: [positions, heads, d]; rotation: of one head; relevance: [positions, steps, heads d] -> the same."""
        positions, heads, width = x.shape
        rows, weight = norm.rows(x)
        if len(rows) == positions:
            turn, routed = of_all_heads(rotation, heads), relevance
        else:
            cos, sin = (part.repeat_interleave(heads, 0) for part in (rotation.cos, rotation.sin))
            turn = Rotation(cos, sin, rotation.partner)
            routed = relevance.unflatten(-1, (heads, width)).transpose(1, 2).flatten(0, 1)
        received = operations.rotated_norm(self.rule, rows, weight, norm.eps, norm.is_centred, turn, routed)
        if len(rows) == positions:
            return received
        return received.view(positions, heads, -1, width).transpose(1, 2).flatten(2)

    def _input(self, module: nn.Module, window: Window) -> Tensor:
        """Input of a module at a window's positions: [positions, d]."""
        return self.tape.input(module)[window.positions]


def _of_groups(block: Attention, states: HeadStates, relevance: Tensor) -> Tensor:
    """[positions, steps, heads of queries, d] -> [positions, steps, heads of keys x d]"""
    if states.heads == block.q.heads:
        return relevance.flatten(2)
    return relevance.unflatten(2, (states.heads, -1)).sum(3).flatten(2)


def _positions_at_a_time(residual: Residual, relevance: Tensor) -> int:
    widest = max(max(linear.weight.shape) for branch in residual.branches for linear in branch.block.linears)
    elements = CPU_ELEMENTS if relevance.device.type == "cpu" else GPU_ELEMENTS
    return max(1, elements // (relevance.shape[1] * widest))


def _total(relevance: Tensor) -> Tensor:
    """[positions, steps, d] -> [positions, steps, 1]"""
    return relevance.sum(-1, keepdim=True)
