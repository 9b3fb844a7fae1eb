"""Whether a model is as it was: classes, weights, gradients, hooks, modes, configs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from hf_lrp.models.recording import Recorded


def is_patched(model: nn.Module) -> bool:
    return any(isinstance(module, Recorded) for module in model.modules())


def state_of(model: PreTrainedModel) -> dict[str, Any]:
    """Everything that must be as before: tensors as lists, hooks by identity, for ==."""
    modules = {
        name: {
            "identity": id(module),
            "class": type(module),
            "attributes": sorted(vars(module)),
            "hooks": {
                key: [*map(id, value.values())]
                for key, value in vars(module).items()
                if "hooks" in key and isinstance(value, dict)
            },
            "training": module.training,
        }
        for name, module in model.named_modules()
    }
    parameters = {
        name: (
            id(parameter),
            parameter._version,
            parameter.requires_grad,
            parameter.tolist(),
            None if parameter.grad is None else parameter.grad.tolist(),
        )
        for name, parameter in model.named_parameters()
    }
    return {
        "modules": modules,
        "parameters": parameters,
        "buffers": {name: buffer.tolist() for name, buffer in model.named_buffers()},
        "config": model.config.to_dict(),
        "generation config": model.generation_config.to_dict() if model.generation_config else None,
        "attention": model.config._attn_implementation,
    }


@contextmanager
def unchanged(model: PreTrainedModel) -> Iterator[None]:
    """Check that the block leaves no trace in the model."""
    before = state_of(model)
    yield
    assert state_of(model) == before
    assert not is_patched(model)
