"""Half-precision models are explained in float32 copies that hold what their weights are at the moment."""

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from tiny_models import random_ids, tiny_model

from hf_lrp import explain
from hf_lrp.models.half_precision import in_float32

pytestmark = pytest.mark.filterwarnings("ignore:hf_lrp")
SOURCE, TARGET = random_ids(4, seed=1), random_ids(3, seed=2)


@pytest.fixture(params=[torch.float16, torch.bfloat16])
def model(request: pytest.FixtureRequest) -> Any:
    return tiny_model().to(request.param)


def test_the_copy_has_the_same_weights_in_float32(model: Any) -> None:
    dtype, before = model.dtype, copy.deepcopy(model.state_dict())
    copied, notes = in_float32(model)
    assert all(tensor.dtype == torch.float32 for tensor in (*copied.parameters(), *copied.buffers()))
    assert copied.lm_head.weight is copied.model.shared.weight
    assert notes == (f"{str(dtype).removeprefix('torch.')} weights were propagated in float32",)
    assert model.dtype == dtype
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]) and torch.equal(tensor.float(), copied.state_dict()[name])


def test_single_values_changed_through_data_are_seen(model: Any) -> None:
    in_float32(model)
    for seed, parameter in enumerate(model.parameters()):
        place = int(torch.randint(parameter.numel(), (), generator=torch.Generator().manual_seed(seed)))
        parameter.data.view(-1)[place] += 1
    copied = in_float32(model)[0]
    for name, parameter in model.named_parameters():
        assert torch.equal(copied.get_parameter(name), parameter.float()), name


@pytest.mark.parametrize(
    "name", ["model.shared", "model.encoder.layers.0.fc1", "model.decoder.layers.1.encoder_attn.k_proj"]
)
def test_a_value_changed_through_data_is_explained(model: Any, name: str) -> None:
    before = explain(model, None, SOURCE, TARGET)
    weight = model.get_submodule(name).weight
    weight.data[SOURCE[0] % len(weight), 1] += 3
    after = explain(model, None, SOURCE, TARGET)
    expected = explain(copy.deepcopy(model).float(), None, SOURCE, TARGET)
    assert torch.equal(after.source, expected.source) and torch.equal(after.target, expected.target)
    assert (after.source - before.source).abs().max() > 1e-5


def test_settings_are_those_of_the_moment(model: Any) -> None:
    in_float32(model)
    model.generation_config.num_beams = 3
    assert in_float32(model)[0].generation_config.num_beams == 3


def test_copies_are_not_kept(model: Any) -> None:
    kept = weakref.ref(in_float32(model)[0].lm_head.weight)
    gc.collect()
    assert kept() is None
