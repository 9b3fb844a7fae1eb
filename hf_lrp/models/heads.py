"""Attention heads, and what they are given: queries, keys and values, from a projection, a norm on it, and a rotation.

Projections may be separate linear layers or parts of one (fused); keys and values may have fewer heads than queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_lrp.models.families import NormKind, Pairs
from hf_lrp.models.modules import norm_eps
from hf_lrp.models.recording import Tape
from hf_lrp.models.rotation import Rotation, of_all_heads


@dataclass(frozen=True)
class Projection:
    """A linear layer, or those of its outputs that ``rows`` are (of a fused one)."""

    module: Any
    rows: slice | Tensor | None = None

    def input(self, tape: Tape) -> Tensor:
        """[length, in]"""
        return tape.input(self.module)

    def output(self, tape: Tape) -> Tensor:
        """[length, out]"""
        output = tape.output(self.module)
        return output if self.rows is None else output[:, self.rows]


@dataclass(frozen=True)
class Rotary:
    """Rotary positions, as the model's own module computes them.

    pairs: which features are turned together: the halves of a head, or neighbours.
    layer_type: what the module is asked for, where its angles differ between layers.
    """

    module: Any
    pairs: Pairs
    layer_type: str | None = None

    def rotation(self, tape: Tape, like: Tensor) -> Rotation:
        """The rotation of one head, [length, d]; like: [length, heads, d]."""
        return tape.once((self.module, self.layer_type, len(like)), lambda: self._make(like))

    def _make(self, like: Tensor) -> Rotation:
        positions = torch.arange(len(like), device=like.device)[None]
        asked = () if self.layer_type is None else (self.layer_type,)
        cos, sin = (part[0] for part in self.module(like[None, :, 0], positions, *asked))
        turned, width = cos.shape[-1], like.shape[-1]
        numbers = torch.arange(width, device=like.device)
        if self.pairs == "halves":
            partner, first = (numbers + turned // 2) % max(turned, 1), numbers < turned // 2
        else:
            partner, first = numbers ^ 1, numbers % 2 == 0
        partner = torch.where(numbers < turned, partner, numbers)  # the rest of a head stays as it is
        cos, sin = F.pad(cos, (0, width - turned), value=1.0), F.pad(sin, (0, width - turned))
        return Rotation(cos, torch.where(first, -sin, sin), partner)


@dataclass(frozen=True)
class HeadNorm:
    """A norm on queries or keys: of each head (whose weights may differ), or of all heads together."""

    module: Any
    kind: NormKind

    def __call__(self, x: Tensor) -> Tensor:
        """[length, heads, d] -> [length, heads, d]"""
        rows, weight = self.rows(x)
        offset = rows - rows.mean(-1, keepdim=True) if self.is_centred else rows
        scale = torch.rsqrt(offset.square().mean(-1, keepdim=True) + self.eps)
        return (weight * offset * scale).view(x.shape)

    @property
    def eps(self) -> float:
        """Epsilon: added to the variance or mean square."""
        return norm_eps(self.module)

    @property
    def is_centred(self) -> bool:
        """Whether the mean is subtracted."""
        return self.kind == "own layer"

    def rows(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows that are normed together, [rows, d], and their gain, of the same shape."""
        gain = 1 + self.module.weight if self.kind == "offset rms" else self.module.weight
        if gain.dim() == 1 and len(gain) != x.shape[-1]:
            rows = x.flatten(1)
            return rows, gain.expand_as(rows)
        rows = x.flatten(0, 1)
        return rows, gain.expand_as(x).reshape(rows.shape)


@dataclass(frozen=True)
class HeadStates:
    """Queries, keys or values of all heads: a projection, then a norm and a rotation, if there are any."""

    projection: Projection
    heads: int
    norm: HeadNorm | None = None
    rotary: Rotary | None = None

    def states(self, tape: Tape, positions: slice) -> Tensor:
        """[heads, positions, d]"""
        x = self.projected(tape, positions)
        if self.norm is not None:
            x = self.norm(x)
        if self.rotary is not None:
            x = of_all_heads(self.rotation_of(tape, positions), self.heads).turn(x.flatten(1)).view(x.shape)
        return x.movedim(1, 0)

    def projected(self, tape: Tape, positions: slice) -> Tensor:
        """[positions, heads, d]"""
        return self.projection.output(tape)[positions].unflatten(-1, (self.heads, -1))

    def rotation_of(self, tape: Tape, positions: slice) -> Rotation:
        """The rotation of one head, [positions, d]; one that turns nothing where there is none."""
        whole = self.projected(tape, slice(None))
        if self.rotary is None:  # one that turns nothing
            length, width = whole[positions].shape[::2]
            numbers = torch.arange(width, device=whole.device)
            return Rotation(whole.new_ones(length, width), whole.new_zeros(length, width), numbers)
        rotation = self.rotary.rotation(tape, whole)
        return Rotation(rotation.cos[positions], rotation.sin[positions], rotation.partner)
