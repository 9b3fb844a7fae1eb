"""Half-precision models are explained in float32 copies that hold what their weights are at the moment."""

import copy
from typing import Any

import pytest
import torch
from tiny_models import random_ids, tiny_model
from torch import nn

from hf_lrp import Explainer, explain
from hf_lrp.models.copies import WorkingCopy

pytestmark = pytest.mark.filterwarnings("ignore:hf_lrp")
SOURCE, TARGET = random_ids(4, seed=1), random_ids(3, seed=2)


@pytest.fixture(params=[torch.float16, torch.bfloat16])
def model(request: pytest.FixtureRequest) -> Any:
    return tiny_model().to(request.param)


def test_the_copy_has_the_same_weights_in_float32(model: Any) -> None:
    dtype, before = model.dtype, copy.deepcopy(model.state_dict())
    copied, notes = WorkingCopy(model).in_float32(model)
    assert all(tensor.dtype == torch.float32 for tensor in (*copied.parameters(), *copied.buffers()))
    assert copied.lm_head.weight is copied.model.shared.weight
    assert notes == (f"{str(dtype).removeprefix('torch.')} weights were propagated in float32",)
    assert model.dtype == dtype
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]) and torch.equal(tensor.float(), copied.state_dict()[name])


def test_the_copy_is_made_once_and_follows_single_values_changed_through_data(model: Any) -> None:
    working = WorkingCopy(model)
    first = working.in_float32(model)[0]
    for seed, parameter in enumerate(model.parameters()):
        place = int(torch.randint(parameter.numel(), (), generator=torch.Generator().manual_seed(seed)))
        parameter.data.view(-1)[place] += 1
    copied = working.in_float32(model)[0]
    assert copied is first
    for name, parameter in model.named_parameters():
        assert torch.equal(copied.get_parameter(name), parameter.float()), name


@pytest.mark.parametrize(
    "name", ["model.shared", "model.encoder.layers.0.fc1", "model.decoder.layers.1.encoder_attn.k_proj"]
)
def test_a_value_changed_through_data_is_explained(model: Any, name: str) -> None:
    explainer = Explainer(model)
    before = explainer.explain(SOURCE, TARGET)
    weight = model.get_submodule(name).weight
    weight.data[SOURCE[0] % len(weight), 1] += 3
    expected = explain(copy.deepcopy(model).float(), None, SOURCE, TARGET)
    for after in (explainer.explain(SOURCE, TARGET), explain(model, None, SOURCE, TARGET)):
        assert torch.equal(after.source, expected.source) and torch.equal(after.target, expected.target)
        assert (after.source - before.source).abs().max() > 1e-5


def test_a_module_that_is_exchanged_is_explained(model: Any) -> None:
    explainer = Explainer(model)
    explainer.explain(SOURCE, TARGET)
    layer = model.model.decoder.layers[0]
    layer.fc1 = nn.Linear(layer.fc1.in_features, layer.fc1.out_features).to(model.dtype).eval()
    after, expected = explainer.explain(SOURCE, TARGET), explain(copy.deepcopy(model).float(), None, SOURCE, TARGET)
    assert torch.equal(after.source, expected.source)


def test_settings_are_those_of_the_moment(model: Any) -> None:
    working = WorkingCopy(model)
    working.in_float32(model)
    model.generation_config.num_beams = 3
    assert working.in_float32(model)[0].generation_config.num_beams == 3
