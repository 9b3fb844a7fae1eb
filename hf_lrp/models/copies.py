"""The model as it is explained: the user's own, or a copy in float32 and with adapters merged."""

from __future__ import annotations

import copy
import operator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_lrp.data.warning import warn
from hf_lrp.models.adapters import MERGED, merge_adapters
from hf_lrp.models.recording import Recorded


class Layout:
    """Which modules and weights a model is made of; kept alive, so that none is replaced unnoticed."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._modules = list(model.modules())
        self._classes = [_class_of(module) for module in self._modules]
        self._tensors = [*model.parameters(), *model.buffers()]

    def is_of(self, model: PreTrainedModel) -> bool:
        """Whether a model still is made of these."""
        modules, tensors = list(model.modules()), [*model.parameters(), *model.buffers()]
        return (
            len(modules) == len(self._modules)
            and len(tensors) == len(self._tensors)
            and all(map(operator.is_, modules, self._modules))
            and all(map(operator.is_, tensors, self._tensors))
            and [_class_of(module) for module in modules] == self._classes
        )


def _class_of(module: nn.Module) -> tuple[type[nn.Module], bool]:
    """A module's own class, whatever it is exchanged for at the moment, and whether it has a forward of its own."""
    return (module.original if isinstance(module, Recorded) else type(module)), "forward" in vars(module)


class WorkingCopy:
    """A working copy: what a model computes, in plain float32 (or float64) weights.

    Most models are their own working copy. Models with half-precision weights or with adapters of PEFT are copied
    once; the copy follows its original, whose weights may change without a trace, through ``.data``: half-precision
    weights are converted again each time, and adapters merged again where any weight is another.
    """

    def __init__(self, original: PreTrainedModel) -> None:
        self.original = original
        self._merged: _Copy | None = None
        self._converted: _Copy | None = None

    def merged(self) -> tuple[PreTrainedModel, tuple[str, ...]]:
        """The model, or a copy with its adapters merged, with the weights of the moment, and what to say of it."""
        model, kept = self.original, self._merged
        if not getattr(model, "peft_config", None):
            return model, ()
        if kept is None or not kept.layout.is_of(model) or not all(map(torch.equal, _tensors(model), kept.weights)):
            weights = [tensor.clone() for tensor in _tensors(model)]
            self._merged = kept = _Copy(merge_adapters(model), Layout(model), weights)
        return _with_settings(kept.model, model), (MERGED,)

    def in_float32(self, model: PreTrainedModel) -> tuple[PreTrainedModel, tuple[str, ...]]:
        """Model that `merged` gave, or a float32 copy with the weights of the moment, and notes on it."""
        halves = _halves(model)
        if not halves:
            return model, ()
        dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in halves})
        note = f"{' and '.join(dtypes)} weights were propagated in float32"
        kept = self._converted
        if kept is not None and kept.layout.is_of(model):
            for own, other in zip(kept.weights, _tensors(model), strict=True):
                own.copy_(other)
        else:
            warn(f"{note}, in a copy of the model. Load it with dtype=torch.float32 to avoid the copy.")
            converted = {id(p): nn.Parameter(p.detach().float(), p.requires_grad) for p in halves}
            copied = copy.deepcopy(model, converted).float()
            self._converted = kept = _Copy(copied, Layout(model), _tensors(copied))
        return _with_settings(kept.model, model), (note,)


class _Copy(NamedTuple):
    """A copy, what its original was made of, and weights: of the original then, or the copy's own."""

    model: PreTrainedModel
    layout: Layout
    weights: list[Tensor]


def _with_settings(copied: PreTrainedModel, model: PreTrainedModel) -> PreTrainedModel:
    copied.generation_config = copy.deepcopy(model.generation_config)
    return copied


def _halves(model: PreTrainedModel) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.dtype.is_floating_point and p.dtype.itemsize < 4]


def _tensors(model: PreTrainedModel) -> list[Tensor]:
    """All weights and buffers, without gradients."""
    return [tensor.detach() for tensor in (*model.parameters(), *model.buffers())]
