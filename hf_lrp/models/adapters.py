"""Models with adapters of PEFT: explained as what they compute, with the adapters merged."""

from __future__ import annotations

import copy
from typing import Any

from transformers import PreTrainedModel

MERGED = "adapters were merged into the weights, in a copy of the model"


def merge_adapters(model: PreTrainedModel) -> PreTrainedModel:
    """A copy with the model's adapters merged; the model itself if it has none.

    Raises:
        ValueError: its adapters are no changes of weights, such as prompts, and cannot be merged.
    """
    configs: dict[str, Any] = getattr(model, "peft_config", None) or {}
    if not configs:
        return model
    merged: Any = copy.deepcopy(model)
    if hasattr(merged, "merge_and_unload"):
        plain: PreTrainedModel = merged.merge_and_unload()
        return plain
    layers = [(name, each) for name, each in merged.named_modules() if hasattr(each, "get_base_layer")]
    if not layers:
        kinds = ", ".join(sorted({str(config.peft_type) for config in configs.values()}))
        raise ValueError(
            f"The adapters of this model ({kinds}) cannot be merged into its weights, so it cannot be explained. "
            "Those of LoRA and its kind can."
        )
    for name, layer in layers:  # added with model.add_adapter, without a model around it
        layer.merge()
        merged.set_submodule(name, layer.get_base_layer())
    merged.peft_config = {}
    return merged
