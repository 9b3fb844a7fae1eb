"""Derivatives of explained logits through the parts of a model, or what stands for them, for all steps together.

Everything is linear in what goes back, so that steps share each part's weights, as rows of one matrix product. Each
row belongs to a position and a step; in a causal decoder, step t has rows at its own position and before it only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hf_lrp.models.heads import HeadNorm, HeadStates, Projection
from hf_lrp.models.recording import Tape
from hf_lrp.models.rotation import of_all_heads
from hf_lrp.models.structure import Attention, Branch, FeedForward, Residual, Stack


@dataclass(frozen=True)
class Law:
    """Law of slopes: the derivatives themselves, or what AttnLRP has in their place.

    Args:
        constant_divisors: deviations and root mean squares in norms count as constants.
        secants: an activation, or a soft cap, has its output divided by its input as slope.
        product: by what the derivatives of a product by its factors are multiplied; attention has two products in a
            row, of queries and keys, and of weights and values.
    """

    constant_divisors: bool = False
    secants: bool = False
    product: float = 1.0

    def slope(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Of a function that works element by element, at x; what it gives has the shape of x."""
        with torch.enable_grad():
            point = x.detach().clone().requires_grad_()
            value = function(point)
            (derivative,) = torch.autograd.grad(value.sum(), point)
        if not self.secants:
            return derivative
        return torch.where(x == 0, derivative, value.detach() / x.where(x != 0, 1))


DERIVATIVES = Law()


class Rows(NamedTuple):
    """The position [n] and the step [n] of each row; ``positions`` and ``steps`` there are in all."""

    position: Tensor
    step: Tensor
    positions: int
    steps: int

    @classmethod
    def own(cls, first: int, steps: int, positions: int, device: torch.device) -> Rows:
        """One row per step, at its own position, from ``first`` on."""
        numbers = torch.arange(steps, device=device)
        return cls(numbers + first, numbers, positions, steps)

    @classmethod
    def whole(cls, positions: int, steps: int, device: torch.device) -> Rows:
        """All positions at all steps, ordered by step."""
        pairs = torch.cartesian_prod(torch.arange(steps, device=device), torch.arange(positions, device=device))
        return cls(pairs[:, 1], pairs[:, 0], positions, steps)

    def before(self) -> Rows:
        """All positions up to each step's last one, ordered by step."""
        last = torch.zeros(self.steps, dtype=torch.long, device=self.step.device)
        last.scatter_reduce_(0, self.step, self.position, "amax")
        step, position = (torch.arange(self.positions, device=last.device) <= last[:, None]).nonzero(as_tuple=True)
        return Rows(position, step, self.positions, self.steps)

    def spread(self, x: Tensor) -> Tensor:
        """Rows [n, d] as [steps, positions, d], 0 where there is none."""
        whole = x.new_zeros(self.steps, self.positions, x.shape[-1])
        whole[self.step, self.position] = x
        return whole

    def gather(self, whole: Tensor) -> Tensor:
        """[steps, positions, d] as rows [n, d]."""
        return whole[self.step, self.position]


class Slopes:
    """Derivatives on their way back through one recorded forward pass; modules must be recording ones meanwhile.

    Methods take rows [n, d] of a part's output and give those of its input.

    Attributes:
        memory: what has come to the encoder's output so far, [steps, S, d]; None: nothing.
    """

    def __init__(self, tape: Tape, law: Law) -> None:
        self.tape, self.law = tape, law
        self.memory: Tensor | None = None

    def stack(self, stack: Stack, x: Tensor, rows: Rows) -> Tensor:
        """From a stack's output to the input of its lowest layer: [steps, positions, d]."""
        if stack.projection is not None:
            x = self.linear(Projection(stack.projection), x)
        if stack.final_norm is not None:
            x = self.norm(stack.final_norm, x, rows)
        for layer in reversed(stack.layers):
            for residual in reversed(layer.residuals):
                x, rows = self.residual(residual, x, rows)
        return rows.spread(x)

    def residual(self, residual: Residual, x: Tensor, rows: Rows) -> tuple[Tensor, Rows]:
        """The input's rows too: attention reaches earlier positions."""
        if residual.norm is not None:
            x = self.norm(residual.norm, x, rows)
        total, covered = x, rows
        for branch in residual.branches:
            received, reached = self.branch(branch, x, rows)
            if reached is not covered:
                total, covered = reached.gather(covered.spread(total)), reached
            total = total + received
        return total, covered

    def branch(self, branch: Branch, x: Tensor, rows: Rows) -> tuple[Tensor, Rows]:
        """From what a branch adds to its input."""
        if branch.after is not None:
            x = self.norm(branch.after, x, rows)
        if isinstance(branch.block, FeedForward):
            x = self.feed_forward(branch.block, x, rows)
        else:
            x, rows = self.attention(branch.block, x, rows)
        return (x if branch.before is None else self.norm(branch.before, x, rows)), rows

    def feed_forward(self, block: FeedForward, x: Tensor, rows: Rows) -> Tensor:
        """Through ``fc2(activation(fc1(x)))``, gated or not."""
        x = self.linear(block.fc2, x)
        hidden = block.fc1.output(self.tape)
        slope = self.law.slope(block.activation, hidden)
        if block.gate is None:
            return self.linear(block.fc1, x * slope[rows.position])
        x, gate = self.law.product * x, block.gate.output(self.tape)
        to_gate = self.linear(block.gate, x * block.activation(hidden)[rows.position])
        return to_gate + self.linear(block.fc1, x * (slope * gate)[rows.position])

    def attention(self, block: Attention, x: Tensor, rows: Rows) -> tuple[Tensor, Rows]:
        """From the block's output to its input; what keys and values of cross-attention receive goes to ``memory``."""
        heads, product = block.q.heads, self.law.product
        query, key, value = block.states(self.tape, slice(None), slice(None))
        weights, slope = self._weights(block, query, key)
        mixed = (
            rows.spread(self.linear(block.out, x)).unflatten(-1, (heads, -1)).transpose(1, 2)
        )  # [steps, heads, q, d]
        to_value = product * (weights.transpose(1, 2) @ mixed)
        to_weights = product * (mixed @ value.transpose(1, 2))  # [steps, heads, q, k]
        to_scores = weights * (to_weights - (weights * to_weights).sum(-1, keepdim=True))
        if slope is not None:
            to_scores = to_scores * slope
        to_scores = product * block.scale * to_scores
        to_query, to_key = to_scores @ key, to_scores.transpose(2, 3) @ query
        reached = Rows.whole(key.shape[1], rows.steps, x.device) if block.cross else self._reached(block, rows)
        received = self.head_states(block.k, to_key, reached) + self.head_states(block.v, to_value, reached)
        to_input = self.head_states(block.q, to_query, rows)
        if block.cross:
            sent = reached.spread(received)
            self.memory = sent if self.memory is None else self.memory + sent
            return to_input, rows
        if reached is not rows:
            to_input = reached.gather(rows.spread(to_input))
        return to_input + received, reached

    @staticmethod
    def _reached(block: Attention, rows: Rows) -> Rows:
        """The positions that a self-attention reads from; below the top layer they are there already."""
        return rows.before() if block.causal and len(rows.step) == rows.steps else rows

    def _weights(self, block: Attention, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor | None]:
        """Weights [heads, q, k], and the slopes of scores where these are capped."""
        weights, slope = block.weights(query, key, 0)
        if block.cap is None or not self.law.secants:
            return weights, slope
        cap = block.cap
        return weights, self.law.slope(
            lambda u: cap * torch.tanh(u / cap), (query * block.scale) @ key.transpose(1, 2)
        )

    # ---- what works within positions

    def head_states(self, states: HeadStates, whole: Tensor, rows: Rows) -> Tensor:
        """From queries, keys or values [steps, heads of queries, positions, d] to what they are projected from."""
        group = whole.shape[1] // states.heads
        if group > 1:
            whole = whole.unflatten(1, (states.heads, group)).sum(2)
        x = rows.gather(whole.transpose(1, 2).flatten(2))
        if states.rotary is not None:
            cos, sin, partner = of_all_heads(states.rotation_of(self.tape, slice(None)), states.heads)
            x = cos[rows.position] * x + (sin[rows.position] * x)[:, partner]
        if states.norm is not None:
            x = self._head_norm(states.norm, states.projected(self.tape, slice(None)), x, rows)
        return self.linear(states.projection, x)

    def _head_norm(self, norm: HeadNorm, projected: Tensor, x: Tensor, rows: Rows) -> Tensor:
        """projected: [positions, heads, d]; x: rows [n, heads d]."""
        vectors, gain = norm.rows(projected)
        width, parts = vectors.shape[1], len(vectors) // len(projected)  # all heads together, or each by itself
        vectors, gain = (t.reshape(len(projected), parts, width)[rows.position] for t in (vectors, gain))
        received = self._through_norm(vectors, gain, norm.eps, norm.is_centred, x.view(len(x), parts, width))
        return received.flatten(1)

    def norm(self, norm: Any, x: Tensor, rows: Rows) -> Tensor:
        """Through a norm over the last dimension."""
        vectors = self.tape.input(norm)[rows.position]
        return self._through_norm(vectors, norm.gain(), norm.added(), norm.centred, x)

    def _through_norm(self, vectors: Tensor, gain: Tensor, eps: float, centred: bool, x: Tensor) -> Tensor:
        """vectors: what was normed, of the shape of x."""
        offset = vectors - vectors.mean(-1, keepdim=True) if centred else vectors
        scale = torch.rsqrt(offset.square().mean(-1, keepdim=True) + eps)
        x = gain * x
        result = x - x.mean(-1, keepdim=True) if centred else x
        if not self.law.constant_divisors:
            normed = offset * scale
            result = result - normed * (x * normed).mean(-1, keepdim=True)
        return result * scale

    def linear(self, projection: Projection, x: Tensor) -> Tensor:
        """Through a linear layer: rows [n, out] -> [n, in]."""
        weight, _ = projection.module.weights(projection.rows)
        received: Tensor = x @ weight
        return received
