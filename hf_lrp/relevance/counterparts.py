"""Relevance-aware counterparts of modules: they also know how relevance goes back through what they compute."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hf_lrp.models.modules import (
    RecordedConv1d,
    RecordedLayer,
    RecordedLayerNorm,
    RecordedLinear,
    RecordedOffsetRMSNorm,
    RecordedOwnLayerNorm,
    RecordedOwnLinear,
    RecordedRMSNorm,
    RecordedTransposedLinear,
    norm_eps,
)
from hf_lrp.models.recording import Recorded
from hf_lrp.models.rotation import Rotation
from hf_lrp.relevance import operations
from hf_lrp.relevance.rules import Rule


class RelevanceLayer(RecordedLayer):
    """Counterpart of an encoder or decoder layer, for checking how its parts are joined."""

    called = "Relevance"


class RelevanceLinear(RecordedLinear):
    """Counterpart of ``nn.Linear``."""

    called = "Relevance"

    def relprop(
        self,
        rule: Rule,
        x: Tensor,
        relevance: Tensor,
        lag: int | None,
        rows: slice | Tensor | None = None,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """x: [positions, in]; relevance: [positions, steps, out] -> [positions, steps, in]

        rows: the outputs that relevance comes from; rotation: of these, which follows the layer.
        """
        weight, bias = self.weights(rows)
        if rotation is not None:
            return operations.rotated_linear(rule, x, weight, bias, rotation, relevance, lag)
        return operations.linear(rule, x, weight, bias, relevance, lag)


class RelevanceOwnLinear(RelevanceLinear, RecordedOwnLinear):
    """Counterpart of a linear layer with a class of its own, which is known by what it computes."""


class RelevanceTransposedLinear(RelevanceLinear, RecordedTransposedLinear):
    """The same for a layer that holds its weights as [in, out] (transformers' ``Conv1D``)."""


class RelevanceLayerNorm(RecordedLayerNorm):
    """Counterpart of ``nn.LayerNorm`` over the last dimension."""

    called = "Relevance"

    def relprop(self, rule: Rule, x: Tensor, relevance: Tensor, lag: int | None) -> Tensor:
        """x: [positions, d]; relevance: [positions, steps, d] -> [positions, steps, d]"""
        weight = torch.ones_like(x[0]) if self.weight is None else self.weight
        return operations.layer_norm(rule, x, weight, self.bias, self.eps, relevance, lag)


class RelevanceOwnLayerNorm(RecordedOwnLayerNorm):
    """Counterpart of a layer norm without bias that has a class of its own."""

    called = "Relevance"

    def relprop(self, rule: Rule, x: Tensor, relevance: Tensor, lag: int | None) -> Tensor:
        """x: [positions, d]; relevance: [positions, steps, d] -> [positions, steps, d]"""
        return operations.layer_norm(rule, x, self.weight, None, norm_eps(self), relevance, lag)


class RelevanceRMSNorm(RecordedRMSNorm):
    """Counterpart of a norm without mean and bias."""

    called = "Relevance"

    def relprop(self, rule: Rule, x: Tensor, relevance: Tensor, lag: int | None) -> Tensor:
        """x: [positions, d]; relevance: [positions, steps, d] -> [positions, steps, d]"""
        return operations.rms_norm(rule, x, self.gain(), relevance)


class RelevanceOffsetRMSNorm(RelevanceRMSNorm, RecordedOffsetRMSNorm):
    """The same for a norm whose weight is what its gain has beyond 1 (Gemma)."""


class RelevanceConv1d(RecordedConv1d):
    """Counterpart of ``nn.Conv1d`` over frames: plain, without dilation and groups."""

    called = "Relevance"

    def relprop(self, rule: Rule, x: Tensor, relevance: Tensor) -> Tensor:
        """x: [frames in, in]; relevance: [frames out, steps, out] -> [frames in, steps, in]"""
        stride, padding = self.stride[0], int(self.padding[0])
        return operations.convolution(rule, x, self.weight, self.bias, stride, padding, relevance)


RELEVANCE_AWARE: Mapping[type[Recorded], type[Recorded]] = {
    RecordedLayer: RelevanceLayer,
    RecordedLinear: RelevanceLinear,
    RecordedOwnLinear: RelevanceOwnLinear,
    RecordedTransposedLinear: RelevanceTransposedLinear,
    RecordedLayerNorm: RelevanceLayerNorm,
    RecordedOwnLayerNorm: RelevanceOwnLayerNorm,
    RecordedRMSNorm: RelevanceRMSNorm,
    RecordedOffsetRMSNorm: RelevanceOffsetRMSNorm,
    RecordedConv1d: RelevanceConv1d,
}
