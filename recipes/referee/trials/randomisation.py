"""Whether a method's answer changes when the model's weights are shuffled (Adebayo et al. 2018)."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch
from judgement.measures import ranks
from torch import nn
from transformers import PreTrainedModel

from hf_lrp.models.families import family_of

SEED = 0
CASCADE = ("top_shuffled", "decoder_shuffled", "all_shuffled")  # from the prediction down


def shuffled_models(model: PreTrainedModel) -> Iterator[tuple[str, PreTrainedModel]]:
    """Copies with ever more weights shuffled within their tensors; tables of positions stay."""
    family = family_of(model)
    layers = f"{family.decoder}.{family.layers}"
    top = f"{layers}.{len(model.get_submodule(layers)) - 1}"
    for name, part in zip(CASCADE, (top, layers, ""), strict=True):
        changed = copy.deepcopy(model)
        _shuffle(changed.get_submodule(part))
        yield name, changed


@torch.no_grad()
def _shuffle(part: nn.Module) -> None:
    generator = torch.Generator().manual_seed(SEED)
    for name, weight in part.named_parameters():
        if "position" not in name:
            order = torch.randperm(weight.numel(), generator=generator)
            weight.copy_(weight.flatten()[order].view_as(weight))


def similarity(first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]) -> float:
    """Mean over steps of the rank correlation of two methods' values of source and prefix tokens.

    Args:
        first, second: values `[T, S]` and `[T, T]` of source and target tokens.
    """
    found = []
    for step in range(2, len(first[0])):
        x, y = (ranks(np.concatenate([source[step], target[step][:step]])) for source, target in (first, second))
        if x.std() > 0 and y.std() > 0:
            found.append(((x - x.mean()) * (y - y.mean())).mean() / (x.std() * y.std()))
    return float(np.mean(found)) if found else np.nan
