"""Models with half-precision weights are explained in float32 copies, whose weights are converted once."""

from __future__ import annotations

import copy
import warnings
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

# How many values of a weight tell whether it has changed, where its version does not (changes through `.data`).
SAMPLE = 64

# By model and parameter name: what the half-precision weight was, and its float32 counterpart.
_converted: WeakKeyDictionary[nn.Module, dict[str, tuple[Any, nn.Parameter]]] = WeakKeyDictionary()


def in_float32(model: PreTrainedModel) -> tuple[PreTrainedModel, tuple[str, ...]]:
    """The model, or a float32 copy if it has half-precision weights, and what to say of that.

    The copy is new for every call, as the model may have changed, but weights that have not are converted only once
    and kept as long as the model lives.
    """
    halves = {name: p for name, p in model.named_parameters() if p.dtype.is_floating_point and p.dtype.itemsize < 4}
    if not halves:
        return model, ()
    dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in halves.values()})
    note = f"{' and '.join(dtypes)} weights were propagated in float32"
    warnings.warn(
        f"hf_lrp: {note}, in a copy of the model. Load it with dtype=torch.float32 to avoid the copy.", stacklevel=3
    )
    known = _converted.setdefault(model, {})
    for name, parameter in halves.items():
        state = _state(parameter)
        if name not in known or known[name][0] != state:
            known[name] = state, nn.Parameter(parameter.detach().float(), parameter.requires_grad)
    memo = {id(parameter): known[name][1] for name, parameter in halves.items()}
    return copy.deepcopy(model, memo).float(), (note,)


def _state(parameter: Tensor) -> tuple[Any, ...]:
    values = parameter.detach().flatten()
    sample = values[:: max(1, len(values) // SAMPLE)].float().cpu()
    where = (parameter.data_ptr(), parameter.dtype, parameter.device, parameter.requires_grad)
    return parameter._version, *where, tuple(sample.view(torch.int32).tolist())
