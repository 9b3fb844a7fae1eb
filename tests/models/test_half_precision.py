"""Half-precision weights are converted once per model, and again where they have changed."""

import gc
import weakref
from typing import Any

import pytest
import torch
from tiny_models import random_ids, tiny_model

from hf_lrp import explain
from hf_lrp.models.half_precision import in_float32

pytestmark = pytest.mark.filterwarnings("ignore:hf_lrp")


@pytest.fixture
def model() -> Any:
    return tiny_model().half()


def pointers(model: Any) -> list[int]:
    return [p.data_ptr() for p in model.parameters()]


def test_weights_are_converted_once(model: Any) -> None:
    first, second = in_float32(model)[0], in_float32(model)[0]
    assert first is not second and pointers(first) == pointers(second)
    assert all(p.dtype == torch.float32 for p in first.parameters())
    assert all(p.dtype == torch.float16 for p in model.parameters())
    assert first.lm_head.weight is first.model.shared.weight


@pytest.mark.parametrize("in_place", [True, False])
def test_a_changed_weight_is_converted_again(model: Any, in_place: bool) -> None:
    weight = model.model.encoder.layers[0].fc1.weight
    before = in_float32(model)[0]
    with torch.no_grad():
        (weight if in_place else weight.data).mul_(2)
    after = in_float32(model)[0]
    changed = [a != b for a, b in zip(pointers(before), pointers(after), strict=True)]
    assert sum(changed) == 1
    assert torch.equal(after.model.encoder.layers[0].fc1.weight, weight.float())


def test_settings_are_those_of_the_moment(model: Any) -> None:
    in_float32(model)
    model.generation_config.num_beams = 3
    assert in_float32(model)[0].generation_config.num_beams == 3


def test_weights_of_a_model_that_is_gone_are_not_kept() -> None:
    kept = weakref.ref(in_float32(tiny_model().half())[0].lm_head.weight)
    gc.collect()
    assert kept() is None


def test_results_are_the_same_again(model: Any) -> None:
    results = [explain(model, None, random_ids(4, seed=1), random_ids(3, seed=2)) for _ in range(2)]
    assert results[0] == results[1]
