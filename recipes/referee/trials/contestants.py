"""The methods that are compared, and how one of a reader's own joins them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from judgement.questions import BASELINE

from hf_lrp import Explainer
from hf_lrp.methods import ALTI, LRP, Attention, AttnLRP, Erasure, GradientNorm, GradientTimesInput

METHODS: dict[str, Any] = {
    BASELINE: LRP(),
    "attn-lrp": AttnLRP(),
    "alti": ALTI(),
    "attention": Attention(),
    "gradient-norm": GradientNorm(),
    "gradient-x-input": GradientTimesInput(),
    "erasure": Erasure(),
}
WITHOUT_SHARE = ("attention",)  # source and prefix sum to 1 each: R(source) means nothing


def read_method(given: str) -> tuple[str, Any]:
    """A method of one's own: ``NAME=package.module:Object`` or ``NAME=package.module:Class()``."""
    name, _, place = given.partition("=")
    module, _, attribute = place.partition(":")
    if not (name and module and attribute):
        raise SystemExit(f"--method {given}: write NAME=package.module:ATTRIBUTE.")
    found = getattr(importlib.import_module(module), attribute.removesuffix("()"), None)
    if found is None:
        raise SystemExit(f"--method {given}: {module} has no {attribute}.")
    return name, found() if isinstance(found, type) else found


def explain(explainer: Explainer, method: Any, text: str, target: Sequence[int], prompt: str | None = None) -> Any:
    """A method's contributions to each token of a target."""
    return explainer.explain([text], [list(target)], method=method, predict="target", prompt=prompt)[0]


def values(result: Any) -> tuple[np.ndarray, np.ndarray]:
    """Values `[T, S]` and `[T, T]` of source and target tokens."""
    return result.source.numpy().astype(np.float64), result.target.numpy().astype(np.float64)
