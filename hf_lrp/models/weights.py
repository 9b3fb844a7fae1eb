"""Check that a model's weights are plain numbers that relevance can be computed with."""

from __future__ import annotations

import torch
from torch import nn
from transformers import PreTrainedModel

REMEDY = "Load the model without quantisation and with dtype=torch.float32, and merge adapters (merge_and_unload)."


def require_plain_weights(model: PreTrainedModel) -> None:
    """Raise for quantised models, whoever quantised them, and for models without any weights in memory."""
    name = type(model).__name__
    quantised = getattr(model, "hf_quantizer", None) is not None
    # what was loaded from a GGUF file is de-quantised
    if quantised and str(getattr(model, "quantization_method", "")).rpartition(".")[2].lower() != "gguf":
        raise TypeError(f"{name} is quantised, and relevance needs the real weights. {REMEDY}")
    for path, module in model.named_modules():
        if _is_quantised(module):
            raise TypeError(
                f"{name} is quantised ({path} is a {type(module).__name__} of {type(module).__module__}), and "
                f"relevance needs the real weights. {REMEDY}"
            )
    for path, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta:
            raise ValueError(
                f"{name} has no weights: {path} is on the meta device. Load the checkpoint with from_pretrained, "
                "without device_map or offloading."
            )
        if type(tensor) not in (nn.Parameter, torch.Tensor, nn.Buffer):
            raise TypeError(
                f"{name} is quantised or distributed ({path} is a {type(tensor).__name__}), and relevance needs plain "
                f"tensors. {REMEDY}"
            )


def require_computable(model: PreTrainedModel) -> None:
    """Raise where the model's own code cannot compute in the type of its weights."""
    if model.config.model_type == "fsmt" and model.dtype == torch.float64:
        from transformers.models.fsmt.modeling_fsmt import fill_with_neg_inf

        try:
            fill_with_neg_inf(torch.zeros(1, dtype=torch.float64))
        except RuntimeError as error:
            raise ValueError(
                "transformers cannot compute FSMT in float64: the mask of its decoder overflows. Explain it in "
                "float32, with model.float()."
            ) from error


def _is_quantised(module: nn.Module) -> bool:
    """As `torch.ao.quantization` makes modules: their weight is packed, and given by a method."""
    return callable(getattr(module, "weight", None)) and not isinstance(module.weight, torch.Tensor)


def not_finite(model: PreTrainedModel) -> list[str]:
    """Names of weights and buffers that contain NaN or infinity."""
    tensors = (*model.named_parameters(), *model.named_buffers())
    return [name for name, tensor in tensors if tensor.is_floating_point() and not torch.isfinite(tensor).all()]
