"""Every rule on every operation, against the slow version that writes all contributions out."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import slow_rules
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_operations import (
    BY_TOKEN,
    OPERATIONS,
    RULES,
    SIZES,
    WITHIN_TOKENS,
    Tensors,
    all_operations,
    all_rules,
    any_rule,
    any_sizes,
    assert_close,
    draw,
    fast,
    keeps_sign,
    slow,
    to_float32,
    totals,
)
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hf_lrp.relevance import operations
from hf_lrp.relevance.operations import attention_core, by_token
from hf_lrp.relevance.rules import AlphaBeta, Epsilon, Gamma, Rule


@all_operations
@settings(max_examples=40)
@given(rule=any_rule, seed=st.integers(0, 10**6), sizes=any_sizes)
def test_any_shape_and_any_rule_equals_the_slow_version(
    operation: str, rule: Rule, seed: int, sizes: dict[str, int]
) -> None:
    tensors = draw(operation, rule, seed, **sizes)
    received = fast(operation, rule, tensors)
    assert_close(received, slow(operation, rule, tensors), 1e-10)


@all_operations
@all_rules
def test_float32_equals_the_slow_version(operation: str, rule: Rule) -> None:
    for seed in (2, 3):
        tensors = to_float32(draw(operation, rule, seed, **SIZES))
        received = fast(operation, rule, tensors)
        assert all(r.dtype == torch.float32 for r in received)
        assert_close(received, slow(operation, rule, tensors), 1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_float32_equals_the_slow_version_for_sharp_attention(seed: int) -> None:
    tensors = to_float32(draw("attention", AlphaBeta(), seed, **SIZES))
    tensors["query"] *= 4
    received = fast("attention", AlphaBeta(), tensors)
    assert_close(received, slow("attention", AlphaBeta(), tensors), 1e-5)


@all_rules
@pytest.mark.parametrize("seed", range(4))
def test_attention_with_a_bias_of_relative_positions_equals_the_slow_version(rule: Rule, seed: int) -> None:
    """A constant added to the scores: nothing changes but the weights, which are given."""
    tensors = draw("attention", rule, seed, **SIZES)
    generator = torch.Generator().manual_seed(seed)
    distance = torch.arange(SIZES["outputs"]) - torch.arange(SIZES["tokens"])[:, None]
    bias = torch.randn(SIZES["tokens"] + SIZES["outputs"], generator=generator, dtype=torch.float64)
    tensors["mask"] = tensors["mask"] + 3 * bias[distance + SIZES["tokens"] - 1]
    assert_close(fast("attention", rule, tensors), slow("attention", rule, tensors), 1e-10)


@all_operations
def test_epsilon_has_the_precision_of_its_tensors(operation: str) -> None:
    rule = Epsilon(0.3)
    tensors = draw(operation, rule, 13, **SIZES)
    received = fast(operation, rule, tensors)
    assert_close(received, slow(operation, rule, tensors), 1e-10)


def zero_inputs(tensors: Tensors) -> None:
    for name in ("x", "update", "query", "key", "value"):
        if name in tensors:
            tensors[name] = torch.zeros_like(tensors[name])


def negative_inputs(tensors: Tensors) -> None:
    for name in ("x", "update", "query", "key", "value"):
        if name in tensors:
            tensors[name] = -tensors[name].abs()


def nothing_positive(tensors: Tensors) -> None:
    """Every contribution is negative, so that every output is dead for alpha 1."""
    negative_inputs(tensors)
    for name in ("weight", "gate", "row"):
        if name in tensors:
            tensors[name] = tensors[name].abs()
    for name in ("bias", "gate_bias"):
        if name in tensors:
            tensors[name] = -tensors[name].abs() - 0.1
    if "query" in tensors:
        tensors["query"] = torch.zeros_like(tensors["query"])


def some_outputs_dead(tensors: Tensors) -> None:
    if "row" in tensors:
        tensors["row"][0], tensors["bias"][0] = -tensors["x"][0], -1.0
    elif "bias" in tensors:
        tensors["weight"][0], tensors["bias"][0] = 0.0, -1.0
    for name in ("x", "update", "value"):
        if name in tensors:
            tensors[name][..., -1] = -1.0


def no_relevance(tensors: Tensors) -> None:
    if "relevance" in tensors:
        tensors["relevance"] = torch.zeros_like(tensors["relevance"])


def no_bias(tensors: Tensors) -> None:
    if tensors.keys() >= {"bias", "weight"}:
        tensors["bias"] = None


def negative_weight(tensors: Tensors) -> None:
    for name in ("weight", "gate", "row"):
        if name in tensors:
            tensors[name] = -tensors[name].abs()


EDITS = (zero_inputs, negative_inputs, nothing_positive, some_outputs_dead, no_relevance, no_bias, negative_weight)


@all_operations
@all_rules
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_corner_cases_equal_the_slow_version(operation: str, rule: Rule, edit: Callable[[Tensors], None]) -> None:
    tensors = draw(operation, rule, 5, **SIZES)
    edit(tensors)
    received = fast(operation, rule, tensors)
    sent, back = totals(operation, tensors, received)
    torch.testing.assert_close(back, sent, rtol=1e-9, atol=1e-9)
    assert_close(received, slow(operation, rule, tensors), 1e-10)


@all_operations
@all_rules
def test_relevance_is_conserved(operation: str, rule: Rule) -> None:
    precise = draw(operation, rule, 3, **SIZES)
    for tensors, tolerance in ((precise, 1e-12), (to_float32(precise), 1e-5)):
        received = fast(operation, rule, tensors)
        sent, back = totals(operation, tensors, received)
        magnitude = sum(float(r.abs().max()) for r in received) + 1
        assert float((sent - back).abs().max()) <= tolerance * magnitude


@pytest.mark.parametrize("operation", WITHIN_TOKENS)
@all_rules
def test_each_token_keeps_its_total(operation: str, rule: Rule) -> None:
    """So the contributions of tokens do not need what lies below the lowest attention, as a norm of embeddings."""
    for edit in (None, *EDITS):
        tensors = draw(operation, rule, 15, **SIZES)
        if edit is not None:
            edit(tensors)
        tokens = torch.arange(SIZES["tokens"])
        alone = torch.zeros(len(tokens), len(tokens), tensors["relevance"].shape[-1]).double()
        alone[tokens, tokens] = tensors["relevance"][:, 0]  # at each step one token has relevance
        (received,) = fast(operation, rule, tensors | {"relevance": alone})
        torch.testing.assert_close(received.sum(-1), alone.sum(-1), rtol=1e-9, atol=1e-9)


@all_operations
@all_rules
def test_only_rules_that_keep_the_sign_give_shares(operation: str, rule: Rule) -> None:
    assert rule.keeps_sign == keeps_sign(rule)
    tensors = draw(operation, rule, 4, **SIZES)
    received = fast(operation, rule, tensors)
    assert rule.keeps_sign == all(bool((r >= 0).all()) for r in received)


@pytest.mark.parametrize("operation", [operation for operation in OPERATIONS if operation != "logit"])
@all_rules
@pytest.mark.parametrize("factor", [2.0**-40, 2.0**60])
def test_dead_outputs_stand_relevance_of_any_size(operation: str, rule: Rule, factor: float) -> None:
    tensors = to_float32(draw(operation, rule, 5, **SIZES))
    some_outputs_dead(tensors)
    expected = fast(operation, rule, tensors)
    received = fast(operation, rule, tensors | {"relevance": tensors["relevance"] * factor})
    assert_close(tuple(r.double() / factor for r in received), expected, 1e-6)


@pytest.mark.parametrize("operation", WITHIN_TOKENS)
def test_a_dead_token_shares_equally(operation: str) -> None:
    tensors = draw(operation, AlphaBeta(), 6, **SIZES)
    nothing_positive(tensors)
    if operation != "linear":  # no contribution but the bias
        tensors["x"] = torch.zeros_like(tensors["x"])
    (received,) = fast(operation, AlphaBeta(), tensors)
    equal = tensors["relevance"].mean(-1, keepdim=True) * tensors["relevance"].shape[-1] / received.shape[-1]
    torch.testing.assert_close(received, equal.expand_as(received))


@pytest.mark.parametrize("rule", [rule for rule in RULES if isinstance(rule, AlphaBeta)], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_rms_norm_stands_one_massive_activation(rule: Rule, seed: int) -> None:
    tensors = to_float32(draw("rms_norm", rule, seed, **(SIZES | {"inputs": 64})))
    tensors["x"][:, seed * 30] = 1e4 * (-1) ** seed
    expected = slow("rms_norm", rule, tensors)[0]
    received = fast("rms_norm", rule, tensors)[0].double()
    torch.testing.assert_close(received, expected, rtol=1e-5, atol=1e-6 * float(expected.abs().max()))
    magnitude = expected.abs().sum(-1)
    assert float(((received.sum(-1) - tensors["relevance"].double().sum(-1)) / magnitude).abs().max()) <= 1e-6


def test_a_product_sends_half_to_each_factor() -> None:
    u, v = torch.tensor([2.0, -0.5, 3.0]), torch.tensor([1.0, 4.0, 0.25])
    slopes_u, slopes_v = torch.autograd.functional.jacobian(lambda u, v: u * v, (u, v))
    torch.testing.assert_close(slopes_u.diagonal() * u, slopes_v.diagonal() * v)  # hence equal parts
    layers = {"weight": torch.eye(2), "bias": None, "gate": torch.eye(2).flip(0), "gate_bias": None}
    relevance = torch.tensor([[[3.0, 1.0]]])  # of both products, each of both inputs
    received = operations.gated(AlphaBeta(), torch.ones(1, 2), **layers, relevance=relevance)
    torch.testing.assert_close(received, torch.tensor([[[2.0, 2.0]]]))
    assert torch.equal(relevance, torch.tensor([[[3.0, 1.0]]]))  # it is not changed


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), sizes=any_sizes)
def test_contributions_to_a_convolution_add_up_to_it(seed: int, sizes: dict[str, int]) -> None:
    tensors = draw("convolution", Epsilon(), seed, **sizes)
    x, weight, bias, stride, padding = (tensors[name] for name in ("x", "weight", "bias", "stride", "padding"))
    expected = F.conv1d(x.T, weight, bias, stride, padding).T
    assert len(expected) == len(tensors["relevance"])
    for t, output in enumerate(expected):
        window = slow_rules.convolution_window(x, weight, stride, padding, t)
        torch.testing.assert_close(torch.cat(list(window.values())).sum(0) + bias, output)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), sizes=any_sizes)
def test_a_convolution_hands_its_output_back_as_gradient_times_input(seed: int, sizes: dict[str, int]) -> None:
    """So it does for contributions that are not weighed by sign, if there is no bias."""
    tensors = draw("convolution", Epsilon(), seed, **sizes) | {"bias": None}
    x = tensors["x"].requires_grad_()
    output = F.conv1d(x.T, tensors["weight"], None, tensors["stride"], tensors["padding"]).T
    (gradient,) = torch.autograd.grad(output.sum(), x)
    tensors |= {"x": x.detach(), "relevance": output.detach()[:, None]}
    received = operations.convolution(Epsilon(0), **tensors)[:, 0]
    torch.testing.assert_close(received, gradient * x.detach(), rtol=1e-9, atol=1e-9)


def test_each_window_of_a_convolution_keeps_its_total() -> None:
    tensors = draw("convolution", AlphaBeta(), 18, **(SIZES | {"tokens": 8}))
    assert tensors["weight"].shape[2] == 3 and tensors["stride"] == 2 and tensors["padding"] == 1
    for t in range(4):
        relevance = torch.zeros(4, 1, 5).double()
        relevance[t] = tensors["relevance"][t, 0]
        received = operations.convolution(AlphaBeta(), **(tensors | {"relevance": relevance})).sum(-1).squeeze(1)
        window = slice(max(0, 2 * t - 1), 2 * t + 2)
        torch.testing.assert_close(received[window].sum(), relevance.sum())
        torch.testing.assert_close(received.sum(), relevance.sum())


def test_a_convolution_must_not_have_windows_of_padding_only() -> None:
    tensors = draw("convolution", AlphaBeta(), 0, **SIZES)
    with pytest.raises(ValueError, match="padding must be less than the kernel's 1"):
        fast("convolution", AlphaBeta(), tensors | {"padding": 1})


def test_a_head_keeps_its_total() -> None:
    tensors = draw("attention", AlphaBeta(), 6, **SIZES)
    received = fast("attention", AlphaBeta(), tensors)
    back = torch.stack([r.sum((1, 3)) for r in received]).sum(0)
    torch.testing.assert_close(back, tensors["relevance"].sum((1, 3)))


def test_a_dead_head_leaves_its_relevance_to_the_others_in_proportion() -> None:
    tensors = draw("attention", AlphaBeta(), 6, **(SIZES | {"heads": 3}))
    alone = fast("attention", AlphaBeta(), tensors)
    nothing_positive(dead := {name: t[1:2] for name, t in tensors.items() if name in ("query", "key", "value")})
    for name, head in dead.items():
        tensors[name] = torch.cat([tensors[name][:1], head, tensors[name][2:]])
    received = fast("attention", AlphaBeta(), tensors)
    held = tensors["relevance"].sum((1, 3), keepdim=True)  # [heads, 1, steps, 1]
    factor = held.sum(0) / (held[0] + held[2])
    assert float(factor.min()) > 1
    for before, after in zip(alone, received, strict=True):
        assert not after[1].any()
        torch.testing.assert_close(after[[0, 2]], before[[0, 2]] * factor)


def test_if_all_heads_are_dead_they_send_to_the_values_by_attention_weight() -> None:
    tensors = draw("attention", AlphaBeta(), 6, **SIZES)
    nothing_positive(tensors)
    to_query, to_key, to_value = fast("attention", AlphaBeta(), tensors)
    weights = torch.softmax(tensors["query"] @ tensors["key"].mT + tensors["mask"], -1)
    expected = torch.einsum("hqk,hqsd->hksd", weights, tensors["relevance"])
    assert not to_query.any() and not to_key.any()
    torch.testing.assert_close(to_value, expected)


@pytest.mark.parametrize("rule", [Epsilon(), Gamma()], ids=str)
def test_rules_that_detach_send_nothing_to_queries_and_keys(rule: Rule) -> None:
    to_query, to_key, to_value = fast("attention", rule, draw("attention", rule, 7, **SIZES))
    assert rule.detaches
    assert not to_query.any() and not to_key.any() and to_value.any()


@pytest.mark.parametrize("operation", BY_TOKEN)
@all_rules
@pytest.mark.parametrize("block", [1, 7, 64])
def test_blocks_make_no_difference(operation: str, rule: Rule, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = draw(operation, rule, 8, **SIZES)
    expected = fast(operation, rule, tensors)
    monkeypatch.setattr(by_token, "CPU_BLOCK", block)
    assert_close(fast(operation, rule, tensors), expected, 1e-12)


@all_rules
@pytest.mark.parametrize("edit", [None, nothing_positive, some_outputs_dead])
@pytest.mark.parametrize("own_step", [False, True])
@pytest.mark.parametrize("queries_per_block", [1, 2, 3])
def test_blocks_of_queries_make_no_difference(
    rule: Rule,
    edit: Callable[[Tensors], None] | None,
    own_step: bool,
    queries_per_block: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = SIZES | {"tokens": 5, "steps": 1 if own_step else 6}
    tensors = draw("attention", rule, 14, **sizes)
    if edit is not None:
        edit(tensors)
    expected = fast("attention", rule, tensors, own_step=own_step)
    per_query = sizes["heads"] * sizes["outputs"] * max(tensors["query"].shape[-1], sizes["steps"])
    monkeypatch.setattr(attention_core, "ATTENTION_BLOCK", queries_per_block * per_query)
    assert_close(fast("attention", rule, tensors, own_step=own_step), expected, 1e-12)


class LargestTensor(TorchDispatchMode):
    """Notes the number of elements of the largest tensor that arises."""

    elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self.elements = max([self.elements, *(t.numel() for t in tree_leaves(result) if isinstance(t, Tensor))])
        return result


def test_long_sequences_need_no_tensor_over_all_queries_and_keys() -> None:
    tensors = to_float32(draw("attention", AlphaBeta(), 16, tokens=300, outputs=300, inputs=127, steps=2, heads=1))
    assert 300 * 300 * tensors["value"].shape[-1] > attention_core.ATTENTION_BLOCK
    with LargestTensor() as largest:
        fast("attention", AlphaBeta(), tensors)
    assert 300 * 300 < largest.elements <= attention_core.ATTENTION_BLOCK


@pytest.mark.parametrize("operation", BY_TOKEN)
@pytest.mark.parametrize("rule", [AlphaBeta(), AlphaBeta(2, -1), Epsilon()], ids=str)
@pytest.mark.parametrize("lag", [0, 1, 3])
@pytest.mark.parametrize("block", [1, 2**18])
def test_lag_only_skips_what_is_zero(
    operation: str, rule: Rule, lag: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_token, "CPU_BLOCK", block)
    tensors = draw(operation, rule, 9, **(SIZES | {"tokens": 5, "steps": 4}))
    token, step = torch.arange(5)[:, None], torch.arange(4)
    carries = (step >= token - lag)[..., None]
    tensors["relevance"] = tensors["relevance"] * carries
    received = fast(operation, rule, tensors, lag=lag)
    assert_close(received, fast(operation, rule, tensors), 1e-12)
    assert not (received[0] * ~carries).any()


@all_rules
@pytest.mark.parametrize("edit", [None, nothing_positive, some_outputs_dead])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lag", [0, 2])
def test_lag_and_causality_only_skip_what_is_zero_in_attention(
    rule: Rule, edit: Callable[[Tensors], None] | None, causal: bool, lag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_core, "CAUSAL_QUERIES", 2)
    tensors = draw("attention", rule, 15, **(SIZES | {"tokens": 7, "outputs": 7 if causal else 5, "steps": 6}))
    if causal:
        tensors["mask"] = torch.full((7, 7), -math.inf).double().triu(1)
    if edit is not None:
        edit(tensors)
    token, step = torch.arange(7)[:, None], torch.arange(6)
    tensors["relevance"] = tensors["relevance"] * (step >= token - lag)[..., None]
    expected = fast("attention", rule, tensors)
    assert_close(fast("attention", rule, tensors, lag=lag, causal=causal), expected, 1e-12)


@all_rules
@pytest.mark.parametrize("edit", [None, nothing_positive, no_relevance])
def test_own_step_equals_one_step_per_query(rule: Rule, edit: Callable[[Tensors], None] | None) -> None:
    tensors = draw("attention", rule, 10, **(SIZES | {"steps": 1}))
    if edit is not None:
        edit(tensors)
    to_query, to_key, to_value = fast("attention", rule, tensors, own_step=True)
    queries = range(SIZES["tokens"])
    expanded = torch.diag_embed(tensors["relevance"][:, :, 0].mT).permute(0, 2, 3, 1)  # [heads, q, steps = q, d]
    expected = slow("attention", rule, tensors | {"relevance": expanded})
    actual = torch.zeros_like(expected[0])
    actual[:, queries, queries] = to_query[:, :, 0]
    assert_close((actual, to_key, to_value), expected, 1e-10)


@all_operations
def test_gamma_of_zero_is_epsilon(operation: str) -> None:
    tensors = draw(operation, Gamma(), 11, **SIZES)
    assert_close(fast(operation, Gamma(0.0), tensors), fast(operation, Epsilon(1e-9), tensors), 1e-12)


@all_operations
def test_a_large_gamma_looks_only_at_contributions_of_the_output_sign(operation: str) -> None:
    tensors = draw(operation, AlphaBeta(), 12, **SIZES)
    received = fast(operation, Gamma(1e12), tensors)
    assert all(bool((r >= -1e-9).all()) for r in received)
