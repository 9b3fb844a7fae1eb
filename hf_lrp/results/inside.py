"""What a method keeps of the inside of a model: named tensors with one row per step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Inside:
    """Tensors `[T, ...]` by name, such as relevance by layer and head."""

    tensors: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        with torch.inference_mode(False):
            kept = {
                name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
                for name, tensor in self.tensors.items()
            }
        object.__setattr__(self, "tensors", kept)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Inside):
            return NotImplemented
        return self.tensors.keys() == other.tensors.keys() and all(
            torch.equal(tensor, other.tensors[name]) for name, tensor in self.tensors.items()
        )

    __hash__ = None  # type: ignore[assignment]

    def at(self, steps: list[int]) -> Inside:
        """The same at some steps only, given by their indices."""
        return Inside({name: tensor[steps] for name, tensor in self.tensors.items()})


def check_inside(inside: Any, steps: int) -> None:
    """Raise unless there is nothing, or tensors that fit T steps."""
    if inside is None:
        return
    if not isinstance(inside, Inside):
        raise ValueError(f"inside must be an Inside or None, got {type(inside).__name__}.")
    for name, tensor in inside.tensors.items():
        if tensor.shape[:1] != (steps,):
            raise ValueError(f"inside[{name!r}] must have {steps} rows, one per step, got {list(tensor.shape)}.")
