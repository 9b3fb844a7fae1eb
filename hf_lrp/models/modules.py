"""Counterparts of modules by what they compute: linear layers, norms, convolutions, layers.

Some modules are known by their class, others by what they compute, which is checked against what was recorded.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hf_lrp.models.recording import Recorded, Tape, require_equal


class RecordedLayer(Recorded):
    """Counterpart of an encoder or decoder layer, for checking how its parts are joined."""


class RecordedLinear(Recorded):
    """Counterpart of ``nn.Linear``."""

    weight: Tensor
    bias: Tensor | None

    def check(self, tape: Tape) -> None:
        """Raise if the output is not that of a linear layer; a class that is known needs no check."""

    def matrix(self) -> Tensor:
        """[out, in]"""
        return self.weight

    def weights(self, rows: slice | Tensor | None) -> tuple[Tensor, Tensor | None]:
        """[out, in] and [out], of all outputs or of those that ``rows`` are."""
        weight, bias = self.matrix(), self.bias
        return (weight, bias) if rows is None else (weight[rows], None if bias is None else bias[rows])


class RecordedOwnLinear(RecordedLinear):
    """Counterpart of a linear layer with a class of its own, which is known by what it computes."""

    noted_as_copy = True  # Falcon adds the attention's output to that of the feed-forward block

    def check(self, tape: Tape) -> None:
        expected = nn.functional.linear(tape.input(self), self.matrix(), self.bias)
        require_equal(tape.output(self), expected, "output of a linear layer")


class RecordedTransposedLinear(RecordedOwnLinear):
    """The same for a layer that holds its weights as [in, out] (transformers' ``Conv1D``)."""

    def matrix(self) -> Tensor:
        return self.weight.T


class RecordedNorm(Recorded):
    """Counterpart of a norm over the last dimension, ``gain * (x - mean) / divisor + bias``.

    centred: whether the mean is subtracted.
    """

    centred: ClassVar = True

    def gain(self) -> Tensor:
        """Gain by which the normed input is multiplied, [d]."""
        raise NotImplementedError

    def added(self) -> float:
        """Epsilon: added to the variance or mean square."""
        return norm_eps(self)

    def divisor(self, x: Tensor) -> Tensor:
        """The standard deviation or root mean square of x [length, d], and what is added to it: [length, 1]."""
        offset = x - x.mean(-1, keepdim=True) if self.centred else x
        return (offset.square().mean(-1, keepdim=True) + self.added()).sqrt()

    def linear_part(self, x: Tensor, vectors: Tensor) -> Tensor:
        """Linear part of the norm, of vectors [length, ..., d], without bias; the divisor is that of x [length, d]."""
        scale = (self.gain() / self.divisor(x)).view(len(x), *[1] * (vectors.dim() - 2), x.shape[-1])
        return scale * (vectors - vectors.mean(-1, keepdim=True) if self.centred else vectors)

    def replay(self, tape: Tape) -> Tensor:
        """The norm's output, [length, d]; raises if a norm known by what it computes gives another."""
        return tape.output(self)


class RecordedLayerNorm(RecordedNorm, nn.LayerNorm):
    """Counterpart of ``nn.LayerNorm`` over the last dimension."""

    def gain(self) -> Tensor:
        return torch.ones(self.normalized_shape) if self.weight is None else self.weight


class RecordedOwnLayerNorm(RecordedNorm):
    """Counterpart of a layer norm without bias that has a class of its own, and is known by what it computes."""

    weight: Tensor

    def gain(self) -> Tensor:
        return self.weight

    def replay(self, tape: Tape) -> Tensor:
        x = tape.input(self)
        expected = nn.functional.layer_norm(x, x.shape[-1:], self.weight, None, norm_eps(self))
        require_equal(tape.output(self), expected, "output of a layer norm")
        return tape.output(self)


class RecordedRMSNorm(RecordedNorm):
    """Counterpart of a norm without mean and bias. It has no one class, and is known by what it computes."""

    weight: Tensor
    centred = False

    def gain(self) -> Tensor:
        return self.weight

    def replay(self, tape: Tape) -> Tensor:
        x = tape.input(self)
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + norm_eps(self))
        require_equal(tape.output(self), self.gain() * x * scale, "output of an RMS norm")
        return tape.output(self)


class RecordedOffsetRMSNorm(RecordedRMSNorm):
    """The same for a norm whose weight is what its gain has beyond 1 (Gemma)."""

    def gain(self) -> Tensor:
        return 1 + self.weight


class RecordedConv1d(Recorded, nn.Conv1d):
    """Counterpart of ``nn.Conv1d`` over frames: plain, without dilation and groups."""


def norm_eps(norm: Any) -> float:
    """Epsilon of a norm without a known class: added to the variance or mean square."""
    eps: float = norm.variance_epsilon if hasattr(norm, "variance_epsilon") else norm.eps
    return eps
