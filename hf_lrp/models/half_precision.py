"""Models with half-precision weights are explained in float32 copies."""

from __future__ import annotations

import copy
import warnings

from torch import nn
from transformers import PreTrainedModel


def in_float32(model: PreTrainedModel) -> tuple[PreTrainedModel, tuple[str, ...]]:
    """The model, or a float32 copy if it has half-precision weights, and what to say of that.

    The copy is made anew by every call: weights can change without a trace, through ``.data``, and comparing all of
    them with what they were takes longer than converting them.
    """
    halves = [p for p in model.parameters() if p.dtype.is_floating_point and p.dtype.itemsize < 4]
    if not halves:
        return model, ()
    dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in halves})
    note = f"{' and '.join(dtypes)} weights were propagated in float32"
    warnings.warn(
        f"hf_lrp: {note}, in a copy of the model. Load it with dtype=torch.float32 to avoid the copy.", stacklevel=3
    )
    converted = {id(p): nn.Parameter(p.detach().float(), p.requires_grad) for p in halves}
    return copy.deepcopy(model, converted).float(), (note,)
