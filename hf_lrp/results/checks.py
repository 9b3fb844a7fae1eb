"""Checks of the fields of contributions."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hf_lrp.results.prefix_types import PREFIXES
from hf_lrp.results.used_method import UsedMethod

if TYPE_CHECKING:
    from hf_lrp.results.contributions import Contributions

FLOATS = ("source", "target", "start", "logits", "log_probability", "scale")
IDS = ("source_ids", "target_ids", "predicted_ids")
CHOICES = {
    "start_token": ("exclude", "keep"),
    "prefix": PREFIXES,
    "predict": ("top1", "target", "ids", "contrastive"),
    "level": ("token", "word"),
}


def check_descriptions(c: Contributions) -> None:
    """Tokens, words, steps and names belong together."""
    written, positions = len(c.target_tokens), len(c.source_tokens)
    if not written or not positions:
        raise ValueError(f"at least one source and one target token are needed, got {positions} and {written}.")
    ascending = all(a < b for a, b in pairwise(c.steps))
    if not ascending or not 1 <= c.steps[0] <= c.steps[-1] <= written:
        raise ValueError(f"steps must be ascending numbers from 1 to {written}, got {c.steps}.")
    for name, length in (
        ("predicted_tokens", len(c.steps)),
        ("source_words", positions),
        ("target_words", written),
    ):
        if len(getattr(c, name)) != length:
            raise ValueError(f"{name} must have {length} entries, got {len(getattr(c, name))}.")
    if c.contrasted and len(c.contrasted) != len(c.steps):
        raise ValueError(f"contrasted must have {len(c.steps)} pairs of words, got {len(c.contrasted)}.")
    for name in ("source_words", "target_words"):
        words = getattr(c, name)
        if words[0] != 0 or any(b - a not in (0, 1) for a, b in pairwise(words)):
            raise ValueError(f"{name} must start at 0 and grow by 0 or 1 from token to token, got {words}.")
    if not isinstance(c.method, UsedMethod):
        raise ValueError(f"method must be a UsedMethod, a name with settings, got {type(c.method).__name__}.")
    for name, choices in CHOICES.items():
        if getattr(c, name) not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(c, name)!r}.")


def check_tensors(c: Contributions) -> None:
    """Tensors have the shapes and kinds that the tokens ask for, and no token contributes before it is written."""
    steps, written, positions = len(c.steps), len(c.target_tokens), len(c.source_tokens)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("start", "logits", "log_probability", "scale"), (steps,))
    shapes |= {"source": (steps, positions), "target": (steps, written)}
    shapes |= {"source_ids": (positions,), "target_ids": (written,)}
    shapes["predicted_ids"] = (steps, 2) if c.predicted_ids.ndim == 2 else (steps,)
    for name, shape in shapes.items():
        tensor = getattr(c, name)
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"{name} must have shape {list(shape)} for {positions} source and {written} target tokens, "
                f"got {list(tensor.shape)}."
            )
        kind_is_right = tensor.is_floating_point() if name in FLOATS else _is_integer(tensor)
        if not kind_is_right:
            kind = "a floating point" if name in FLOATS else "an integer"
            raise ValueError(f"{name} must be {kind} tensor, got {tensor.dtype}.")
    if c.target[~c.known].count_nonzero():
        raise ValueError("target must be lower triangular: a token that is not yet written cannot contribute.")


def _is_integer(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
