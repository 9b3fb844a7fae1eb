"""Inputs and options of `explain`, also senseless ones: right shares or an error in words, and the model as it was."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from fuzzing import assert_says_what_to_do, numbers_of_cases, try_cases
from hypothesis import strategies as st
from tiny_models import tiny_model
from tiny_tokenizer import WORDS, tiny_tokenizer

from hf_lrp import AlphaBeta, Contributions, Epsilon, Gamma, explain

sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
ids = st.lists(st.integers(2, 25), max_size=5).map(lambda numbers: [*numbers, 1])
wild_ids = st.lists(st.integers(-3, 45), max_size=5)
odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=8),
    wild_ids,
    wild_ids.map(lambda numbers: torch.tensor(numbers, dtype=torch.float32)),
    wild_ids.map(lambda numbers: torch.tensor([numbers])),
    st.just({}),
    st.just(object()),
    st.just(torch.zeros(2, 0, dtype=torch.long)),
    st.just(np.array(["the cat", "a dog"])),
    st.just("\ud800"),
)
good = st.one_of(sentences, ids.map(torch.tensor), ids.map(np.array))
doubtful = st.one_of(odd, st.lists(st.one_of(sentences, odd), max_size=3))
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "prefix": st.one_of(st.sampled_from(["model", "reference", "random"]), odd),
    "predict": st.one_of(
        st.sampled_from(["top1", "target"]), wild_ids, st.lists(st.tuples(*[st.integers(0, 39)] * 2)), odd
    ),
    "rule": st.one_of(st.sampled_from([AlphaBeta(), AlphaBeta(0.5, 0.5), Epsilon(), Gamma(), AlphaBeta(4, -3)]), odd),
    "start_token": st.one_of(st.sampled_from(["exclude", "keep"]), odd),
    "batch_size": st.one_of(st.integers(1, 3), odd),
    "max_memory": st.one_of(st.sampled_from(["1GB", "10MB", "1KB", 2**24]), odd),
    "seed": st.one_of(st.integers(0, 9), odd),
    "pool": st.one_of(st.lists(sentences, min_size=2, max_size=4), odd),
    "num_beams": st.integers(1, 2),  # what else generate takes is its own matter
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[Any, Any, dict[str, Any]]:
    """Source, target and options, of which one at most is doubtful, so that many calls are right."""
    place = draw(st.sampled_from(["nowhere", "source", "target", "options"]))
    number = draw(st.sampled_from([None, 2, 3]))
    several = sentences if number is None else st.lists(sentences, min_size=number, max_size=number)
    source = draw(doubtful if place == "source" else good if number is None else several)
    target = draw(doubtful if place == "target" else st.one_of(st.none(), several))
    name = draw(st.sampled_from(sorted(OPTIONS))) if place == "options" else None
    return source, target, {name: draw(OPTIONS[name])} if name else {}


def state_of(model: Any) -> list[Any]:
    """What must not change: weights, their versions and gradients, hooks, classes, modes, attention, settings."""
    modules = [(type(m), m.training, len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    weights = [(float(p.detach().double().sum()), p._version, p.requires_grad, p.grad) for p in model.parameters()]
    return [modules, weights, model.config.to_dict(), model.generation_config.to_dict()]


def assert_shares_are_right(result: Contributions, rule: Any) -> None:
    steps, positions = len(result.target_tokens), len(result.source_tokens)
    assert result.source.shape == (steps, positions) and result.target.shape == (steps, steps)
    for shares in (result.source, result.target, result.start, result.logits, result.probability):
        assert bool(torch.isfinite(shares).all())
    if rule in (None, AlphaBeta(), AlphaBeta(0.5, 0.5)):
        totals = result.source.sum(1) + result.target.sum(1)
        totals += result.start if not math.isclose(float(totals[0]), 1, abs_tol=1e-4) else 0  # kept
        torch.testing.assert_close(totals, torch.ones(steps), atol=1e-4, rtol=0)
        assert result.conservation_error < 1e-4
    assert torch.equal(result.target, result.target.tril(-1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cases", numbers_of_cases(60, 3000))
def test_shares_are_right_or_the_error_says_what_to_do(cases: int) -> None:
    model, tokenizer = tiny_model("marian", max_position_embeddings=32), tiny_tokenizer()
    model.generation_config.max_length = 8
    before = state_of(model)
    accepted = []

    def check(call: tuple[Any, Any, dict[str, Any]]) -> None:
        source, target, given = call
        try:
            result = explain(model, tokenizer, source, target, **given)
        except (ValueError, TypeError) as error:
            assert_says_what_to_do(error)
        else:
            for one in result if isinstance(result, list) else [result]:
                assert_shares_are_right(one, given.get("rule"))
            accepted.append(source)
        assert state_of(model) == before

    try_cases(check, cases, calls())
    assert len(accepted) > cases / 5
