"""Models that are not built as assumed are refused, not explained wrongly."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_models import random_ids
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_lrp.models.recording import Tape, UnknownStructure, require_equal
from hf_lrp.relevance.patching import PatchedModel, patched
from hf_lrp.relevance.propagation import propagate

SOURCE, DECODER = random_ids(5, seed=5), random_ids(4, seed=6)


def run(patch: PatchedModel) -> Tensor:
    source = {"input_ids": SOURCE}
    return propagate(patch, source, DECODER, lambda logits: logits.argmax(-1), slice(0, 4), 2**30).source


def double(module: nn.Module, args: Any, output: Any) -> Any:
    """A forward hook."""
    if isinstance(output, Tensor):
        return 2 * output
    if isinstance(output, tuple):
        return (2 * output[0], *output[1:])
    output.last_hidden_state = 2 * output.last_hidden_state
    return output


def double_before(module: nn.Module, args: Any, kwargs: Any) -> Any:
    """A forward pre-hook."""
    if args:
        return (2 * args[0], *args[1:]), kwargs
    return args, kwargs | {"hidden_states": 2 * kwargs["hidden_states"]}


PARTS = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.out_proj",
    "self_attn",
    "self_attn_layer_norm",
    "fc1",
    "fc2",
    "final_layer_norm",
)
CROSS_PARTS = ("encoder_attn.q_proj", "encoder_attn.k_proj", "encoder_attn.v_proj", "encoder_attn.out_proj")
INSIDE_LAYERS = [f"model.{side}.layers.1.{part}" for side in ("encoder", "decoder") for part in PARTS] + [
    f"model.decoder.layers.0.{part}" for part in (*CROSS_PARTS, "encoder_attn", "encoder_attn_layer_norm")
]


@pytest.mark.parametrize("name", INSIDE_LAYERS)
def test_a_hook_that_changes_activations_inside_a_layer_is_noticed(model: PreTrainedModel, name: str) -> None:
    handle = model.get_submodule(name).register_forward_hook(double)
    with patched(model) as patch, pytest.raises(UnknownStructure, match="differs from what hf_lrp assumes"):
        run(patch)
    handle.remove()
    with patched(model) as patch:
        assert bool(run(patch).isfinite().all())


ENTRIES = ("self_attn.q_proj", "self_attn", "fc1", "fc2", "self_attn.out_proj", "final_layer_norm")


@pytest.mark.parametrize(
    "name", [f"model.{side}.layers.0.{part}" for side in ("encoder", "decoder") for part in ENTRIES]
)
def test_a_hook_that_changes_what_goes_into_a_part_is_noticed(model: PreTrainedModel, name: str) -> None:
    model.get_submodule(name).register_forward_pre_hook(double_before, with_kwargs=True)
    with patched(model) as patch, pytest.raises(UnknownStructure):
        run(patch)


@pytest.mark.parametrize(
    "part", ["self_attn.k_proj", "self_attn.v_proj", "encoder_attn.k_proj", "encoder_attn.v_proj"]
)
def test_a_hook_that_changes_what_goes_into_keys_or_values_is_noticed(model: PreTrainedModel, part: str) -> None:
    linear = model.get_submodule(f"model.decoder.layers.0.{part}")
    linear.register_forward_pre_hook(double_before, with_kwargs=True)
    with patched(model) as patch, pytest.raises(UnknownStructure):
        run(patch)


@pytest.mark.parametrize(
    "name", ["model.encoder.layers.0", "model.decoder.layers.0", "model.encoder", "model.decoder", "lm_head"]
)
def test_a_hook_that_changes_activations_between_layers_is_noticed(model: PreTrainedModel, name: str) -> None:
    model.get_submodule(name).register_forward_hook(double)
    with patched(model) as patch, pytest.raises(UnknownStructure):
        run(patch)


@pytest.mark.parametrize("name", ["model.encoder.layers.0", "model.decoder.layers.1"])
def test_a_layer_that_adds_something_is_noticed(model: PreTrainedModel, name: str) -> None:
    layer: Any = model.get_submodule(name)

    class Odd(type(layer)):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = super().forward(*args, **kwargs)
            # a tuple in older releases of transformers
            return output + 0.1 if isinstance(output, Tensor) else (output[0] + 0.1, *output[1:])

    layer.__class__ = Odd
    with patched(model) as patch, pytest.raises(UnknownStructure, match="output of a layer"):
        run(patch)


@pytest.mark.parametrize(
    ("part", "base", "compute"),
    [
        ("fc1", nn.Linear, lambda module, x: nn.functional.linear(x, 2 * module.weight, module.bias)),
        (
            "final_layer_norm",
            nn.LayerNorm,
            lambda module, x: module.weight * x / x.norm(dim=-1, keepdim=True),
        ),
    ],
    ids=["linear", "norm"],
)
def test_a_linear_layer_or_norm_with_a_forward_of_its_own_is_refused(
    model: PreTrainedModel, part: str, base: Any, compute: Callable[[Any, Tensor], Tensor]
) -> None:
    class Odd(base):
        def forward(self, x: Tensor) -> Tensor:
            return compute(self, x)

    model.get_submodule(f"model.encoder.layers.0.{part}").__class__ = Odd
    with pytest.raises((UnknownStructure, TypeError)), patched(model) as patch:
        run(patch)


def other_activation(layer: Any) -> None:
    layer.activation_fn = nn.Tanh()


def other_scale(layer: Any) -> None:
    layer.self_attn.scaling *= 2


@pytest.mark.parametrize("change", [other_activation, other_scale], ids=lambda f: f.__name__)
def test_a_setting_changed_inside_is_noticed(model: PreTrainedModel, change: Callable[[Any], None]) -> None:
    with patched(model) as patch:
        change(model.model.encoder.layers[0])
        with pytest.raises(UnknownStructure):
            run(patch)


@pytest.mark.parametrize("change", [other_activation, other_scale], ids=lambda f: f.__name__)
def test_a_setting_changed_before_is_followed(model: PreTrainedModel, change: Callable[[Any], None]) -> None:
    with patched(model) as patch:
        before = run(patch)
    change(model.model.encoder.layers[0])
    with patched(model) as patch:
        assert not torch.allclose(run(patch), before)


def test_dropout_is_noticed(model: PreTrainedModel) -> None:
    model.train()
    torch.manual_seed(0)
    with patched(model) as patch, pytest.raises(UnknownStructure):
        run(patch)


def test_the_message_says_what_differs_and_what_can_cause_it() -> None:
    with pytest.raises(UnknownStructure, match="The residual sum differs .* Custom modeling code, hooks"):
        require_equal(torch.ones(2), torch.zeros(2), "residual sum")


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (torch.ones(2), torch.ones(3)),
        (torch.ones(2), torch.ones(2) + 1e-3),
        (torch.ones(2), torch.full((2,), torch.nan)),
        (torch.full((2,), torch.nan), torch.ones(2)),
    ],
)
def test_require_equal_refuses(actual: Tensor, expected: Tensor) -> None:
    with pytest.raises(UnknownStructure):
        require_equal(actual, expected, "thing")


def test_require_equal_allows_rounding_relative_to_the_largest_value() -> None:
    large, shifted = torch.tensor([1e3, 0.0]), torch.tensor([1e3, 0.01])
    require_equal(large, shifted, "thing")
    with pytest.raises(UnknownStructure):
        require_equal(large[1:], shifted[1:], "thing")


def test_a_layer_that_runs_twice_is_refused(model: PreTrainedModel) -> None:
    model.model.encoder.layers[1] = model.model.encoder.layers[0]
    with (
        patched(model) as patch,
        pytest.raises(UnknownStructure, match="ran twice in one forward pass.*share layers"),
    ):
        run(patch)


def test_a_module_that_took_no_part_is_refused() -> None:
    with pytest.raises(UnknownStructure, match="A Linear took no part in the forward pass"):
        Tape().input(nn.Linear(2, 2))


def test_nothing_is_recorded_outside_of_a_tape(model: PreTrainedModel) -> None:
    tape = Tape()
    with patched(model):
        with tape.recording():
            model.lm_head(torch.ones(1, 2, 16))
        model.lm_head(torch.ones(1, 3, 16))
        assert tape.input(model.lm_head).shape == (2, 16)
        assert tape.output(model.lm_head).shape == (2, 40)
