"""Random arguments of every operation, run by its fast and its slow version."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import slow_rules
import torch
from hypothesis import strategies as st
from torch import Tensor

from hf_lrp.relevance import operations
from hf_lrp.relevance.rules import AlphaBeta, Epsilon, Gamma, Rule

Tensors = dict[str, Any]

RULES = (
    AlphaBeta(),
    AlphaBeta(0.5, 0.5),
    AlphaBeta(2, -1),
    AlphaBeta(0, 1),
    Epsilon(1e-6),
    Epsilon(0.25),
    Gamma(),
    Gamma(5),
)
OPERATIONS = ("linear", "gated", "convolution", "layer_norm", "rms_norm", "residual", "logit", "attention")
BY_TOKEN = ("linear", "gated", "layer_norm")
WITHIN_TOKENS = (*BY_TOKEN, "rms_norm")
SIZES = {"tokens": 4, "steps": 3, "inputs": 7, "outputs": 5, "heads": 2}

all_rules = pytest.mark.parametrize("rule", RULES, ids=str)
all_operations = pytest.mark.parametrize("operation", OPERATIONS)


def draw(
    operation: str, rule: Rule, seed: int, tokens: int, steps: int, inputs: int, outputs: int, heads: int
) -> Tensors:
    """Random arguments of an operation, with some zeros; relevance is negative only if the rule allows it."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        values = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return values * (torch.rand(*shape, generator=generator) > 0.1)

    def relevance(*shape: int) -> Tensor:
        return normal(*shape).abs() if keeps_sign(rule) else normal(*shape)

    tensors: Tensors
    if operation == "linear":
        tensors = {"x": normal(tokens, inputs), "weight": normal(outputs, inputs), "bias": normal(outputs)}
        return tensors | {"relevance": relevance(tokens, steps, outputs)}
    if operation == "gated":
        layers = {"weight": normal(outputs, inputs), "bias": normal(outputs)}
        layers |= {"gate": normal(outputs, inputs), "gate_bias": normal(outputs)}
        return {"x": normal(tokens, inputs)} | layers | {"relevance": relevance(tokens, steps, outputs)}
    if operation == "convolution":
        kernel, stride, padding = 1 + seed % 4, 1 + seed // 4 % 3, seed // 12 % (1 + seed % 4)
        frames = max(tokens, kernel - 2 * padding)
        tensors = {"x": normal(frames, inputs), "weight": normal(outputs, inputs, kernel), "bias": normal(outputs)}
        tensors |= {"stride": stride, "padding": padding}
        return tensors | {"relevance": relevance((frames + 2 * padding - kernel) // stride + 1, steps, outputs)}
    if operation == "layer_norm":
        tensors = {"x": normal(tokens, inputs), "weight": normal(inputs), "bias": normal(inputs), "eps": 0.01}
        return tensors | {"relevance": relevance(tokens, steps, inputs)}
    if operation == "rms_norm":
        tensors = {"x": normal(tokens, inputs), "weight": normal(inputs)}
        return tensors | {"relevance": relevance(tokens, steps, inputs)}
    if operation == "residual":
        tensors = {"x": normal(tokens, inputs), "update": normal(tokens, inputs)}
        return tensors | {"relevance": relevance(tokens, steps, inputs)}
    if operation == "logit":
        return {"x": normal(tokens, inputs), "row": normal(tokens, inputs), "bias": normal(tokens)}
    keys, width = outputs, inputs // 2 + 1
    causal = torch.full((tokens, keys), -math.inf).double().triu(max(1, keys - tokens + 1))
    return {
        "query": normal(heads, tokens, width),
        "key": normal(heads, keys, width),
        "value": normal(heads, keys, width),
        "mask": causal if seed % 2 else torch.zeros_like(causal),
        "relevance": relevance(heads, tokens, steps, width),
    }


def keeps_sign(rule: Rule) -> bool:
    return isinstance(rule, AlphaBeta) and 0 <= rule.alpha <= 1


def fast(operation: str, rule: Rule, tensors: Tensors, **options: Any) -> tuple[Tensor, ...]:
    """What `hf_lrp.relevance.operations` gives."""
    if operation == "attention":
        tensors = dict(tensors)
        weights = torch.softmax(tensors["query"] @ tensors["key"].mT + tensors.pop("mask"), -1)
        return operations.attention(rule, **tensors, weights=weights, **options)
    received = getattr(operations, operation)(rule, **tensors, **options)
    return received if isinstance(received, tuple) else (received,)


def slow(operation: str, rule: Rule, tensors: Tensors) -> tuple[Tensor, ...]:
    """What it should give."""
    received = getattr(slow_rules, operation)(rule, **tensors)
    return received if isinstance(received, tuple) else (received,)


def assert_close(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...], tolerance: float) -> None:
    """Equal within `tolerance`, relative to the largest magnitude."""
    assert [a.shape for a in actual] == [e.shape for e in expected]
    magnitude = max(1.0, *(float(e.abs().max()) for e in expected))
    for a, e in zip(actual, expected, strict=True):
        assert float((a.double() - e.double()).abs().max()) <= tolerance * magnitude


def totals(operation: str, tensors: Tensors, received: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """What went in and what came back: per token or (convolution, attention) sequence, and step."""
    dims = {"attention": (0, 1, 3), "convolution": (0, 2)}.get(operation, (2,))
    back = torch.stack([r.sum(dims) for r in received]).sum(0)
    return torch.ones_like(back) if operation == "logit" else tensors["relevance"].sum(dims), back


def to_float32(tensors: Tensors) -> Tensors:
    return {name: value.float() if isinstance(value, Tensor) else value for name, value in tensors.items()}


any_rule = st.one_of(
    st.sampled_from(RULES),
    st.integers(-30, 30).map(lambda tenths: AlphaBeta(tenths / 10, 1 - tenths / 10)),
    st.integers(1, 200).map(lambda parts: Epsilon(parts / 128)),
    st.floats(0, 10).map(Gamma),
)
any_sizes = st.fixed_dictionaries(
    {
        "tokens": st.integers(1, 5),
        "steps": st.integers(1, 5),
        "inputs": st.integers(1, 9),
        "outputs": st.integers(1, 9),
        "heads": st.integers(1, 3),
    }
)


def assert_same_shares(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    """Non-negative, in float32, and within 1e-6 of what float64 gives, relative to the largest magnitude."""
    magnitude = max(float(e.abs().max()) for e in expected)
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == torch.float32 and a.shape == e.shape
        assert float((a.double() - e).abs().max()) <= 1e-6 * magnitude
        assert bool((a >= 0).all())
