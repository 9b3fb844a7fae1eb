"""The compiled core of attention gives what the torch code gives, at every instruction set that this machine has."""

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_operations import assert_same_shares
from test_compiled import LEVELS
from torch import Tensor

from hf_lrp.relevance import compiled, operations
from hf_lrp.relevance.rules import AlphaBeta, Epsilon

RULE = AlphaBeta(1, 0)
Arguments = dict[str, Any]


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(compiled.VARIABLE, request.param)
    return request.param


def draw(
    seed: int,
    heads: int = 2,
    queries: int = 5,
    keys: int = 7,
    steps: int = 6,
    width: int = 10,
    value_width: int = 12,
    lag: int | None = None,
    kind: str = "cross",
    capped: bool = False,
) -> Arguments:
    """Random arguments in float32, with some zeros. kind: cross, causal (as many keys as queries) or own step."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) * (torch.rand(*shape, generator=generator) > 0.1)

    causal, own_step = kind == "causal", kind == "own step"
    keys = queries if causal else keys
    query, key, value = normal(heads, queries, width), normal(heads, keys, width), normal(heads, keys, value_width)
    scores = query @ key.mT
    if causal:
        scores = scores.masked_fill(torch.ones(queries, keys).triu(1).bool(), float("-inf"))
    relevance = normal(queries, 1 if own_step else steps, heads, value_width).abs()
    if own_step:
        lag = None
    if lag is not None:
        relevance *= (torch.arange(steps) >= torch.arange(queries)[:, None] - lag)[..., None, None]
    return {
        **{"query": query, "key": key, "value": value, "weights": scores.softmax(-1)},
        **{"relevance": relevance.movedim(2, 0), "own_step": own_step, "lag": lag, "causal": causal},
        "slope": torch.rand(heads, queries, keys, generator=generator) if capped else None,
    }


def run(arguments: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    return operations.attention(RULE, **arguments)


def in_torch(arguments: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    """The torch code, in float64, which the compiled part does not cover."""
    return run({name: t.double() if isinstance(t, Tensor) else t for name, t in arguments.items()})


def assert_same(arguments: Arguments) -> None:
    """The compiled part is used, and agrees with torch."""
    assert compiled.covers(RULE, *(t for t in arguments.values() if isinstance(t, Tensor)))
    assert_same_shares(run(arguments), in_torch(arguments))


any_sizes = st.fixed_dictionaries(
    {
        "heads": st.integers(1, 3),
        "queries": st.integers(1, 20),
        "keys": st.integers(1, 70),
        "steps": st.integers(1, 40),
        "width": st.integers(1, 70),
        "value_width": st.integers(1, 70),
        "lag": st.none() | st.integers(0, 6),
        "kind": st.sampled_from(["cross", "causal", "own step"]),
        "capped": st.booleans(),
    }
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), sizes=any_sizes)
def test_any_shape(level: str, seed: int, sizes: dict[str, Any]) -> None:
    assert_same(draw(seed, **sizes))


@pytest.mark.parametrize("kind", ["cross", "causal", "own step"])
def test_several_tiles_of_everything(level: str, kind: str) -> None:
    sizes = dict(heads=2, queries=75, keys=67, steps=80, width=66, value_width=150)
    assert_same(draw(1, kind=kind, lag=0, **sizes))


def dead_outputs(arguments: Arguments) -> None:
    """Values that are not positive, and keys that say nothing: only queries and keys receive, where G is positive."""
    arguments["value"] = -arguments["value"].abs()


def dead_heads(arguments: Arguments) -> None:
    """One value for all keys leaves G = 0, and it is negative: one head has nowhere to send its relevance."""
    arguments["value"][0] = -1.0


def all_dead(arguments: Arguments) -> None:
    arguments["value"] = torch.full_like(arguments["value"], -1.0)


def zeros(arguments: Arguments) -> None:
    for name in ("query", "key", "value"):
        arguments[name] = torch.zeros_like(arguments[name])


def no_relevance(arguments: Arguments) -> None:
    arguments["relevance"] = torch.zeros_like(arguments["relevance"])


def one_key_has_all(arguments: Arguments) -> None:
    weights = torch.zeros_like(arguments["weights"])
    weights[..., 0] = 1.0
    arguments["weights"] = weights


def one_key_has_almost_all(arguments: Arguments) -> None:
    keys = arguments["weights"].shape[-1]
    weights = torch.full_like(arguments["weights"], 1e-9)
    weights[..., 0] = 1.0 - (keys - 1) * 1e-9
    arguments["weights"] = weights


def scaled(name: str, factor: float) -> Any:
    def edit(arguments: Arguments) -> None:
        arguments[name] = arguments[name] * factor

    edit.__name__ = f"{name} times {factor}"
    return edit


SCALES = [scaled(name, factor) for name in ("query", "key", "value", "relevance") for factor in (1e-12, 1e12)]
SPECIAL = [dead_outputs, dead_heads, all_dead, zeros, no_relevance, one_key_has_all, one_key_has_almost_all]


@pytest.mark.parametrize("edit", SPECIAL + SCALES, ids=lambda edit: edit.__name__)
@pytest.mark.parametrize("kind", ["cross", "own step"])
def test_corner_cases(level: str, edit: Any, kind: str) -> None:
    for seed in (1, 2):
        arguments = draw(seed, kind=kind)
        edit(arguments)
        assert_same(arguments)


def test_what_a_dead_head_holds_goes_to_the_others(level: str) -> None:
    arguments = draw(3)
    dead_heads(arguments)
    to_query, to_key, to_value = run(arguments)
    assert float(to_query[0].sum() + to_key[0].sum() + to_value[0].sum()) == 0
    received = sum(part.sum((0, 1, 3)) for part in (to_query, to_key, to_value))
    torch.testing.assert_close(received, arguments["relevance"].sum((0, 1, 3)))


@pytest.mark.parametrize("kind", ["cross", "causal", "own step"])
def test_denormals(level: str, kind: str) -> None:
    """Contributions of the size of denormal numbers, which have few digits: totals are kept, and nothing breaks."""
    arguments = draw(4, kind=kind)
    arguments["value"] = arguments["value"] * 1e-40
    received = run(arguments)
    assert all(bool(part.isfinite().all()) and bool((part >= 0).all()) for part in received)
    total = sum(float(part.sum()) for part in received)
    assert total == pytest.approx(float(arguments["relevance"].sum()), rel=1e-5)


def test_strided_tensors(level: str) -> None:
    arguments = draw(5)
    turned = {n: t.mT.contiguous().mT if isinstance(t, Tensor) else t for n, t in arguments.items()}
    for a, e in zip(run(turned), run(arguments), strict=True):
        assert torch.equal(a, e)


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads_make_no_difference(
    level: str, threads: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(compiled, "SMALLEST_SHARE", 1)
    arguments = draw(6, heads=5)
    before = torch.get_num_threads()
    request.addfinalizer(lambda: torch.set_num_threads(before))
    results = []
    for number in (1, threads):
        torch.set_num_threads(number)
        results.append(run(arguments))
    for a, e in zip(*results, strict=True):
        assert torch.equal(a, e)


def test_other_rules_go_through_torch(level: str) -> None:
    arguments = draw(7)
    received = operations.attention(Epsilon(), **arguments)
    assert float(received[0].abs().max()) == 0  # with weights as constants, only values receive
