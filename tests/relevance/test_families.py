"""Every family, with the variants its configs allow: contributions are right, and the model is left alone."""

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from left_alone import is_patched, unchanged
from slow_propagation import Stack, describe, modules_of, slow_propagate
from test_blocks import double
from test_patching import assert_same
from tiny_models import (
    ALL_FAMILIES,
    EOS,
    VARIANTS,
    decoder_inputs,
    encoder_inputs,
    fill_with_lowest,
    random_ids,
    require_attention_weights,
    tiny_model,
    tiny_variant,
)
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.fsmt import modeling_fsmt
from transformers.models.t5 import modeling_t5

from hf_lrp import AlphaBeta, Contributions, Epsilon, explain, patched
from hf_lrp.models.families import FAMILIES
from hf_lrp.models.recording import UnknownStructure
from hf_lrp.relevance.propagation import Relevance, propagate
from hf_lrp.relevance.rules import Rule

AUDIO = "whisper"
TEXT_FAMILIES = [family for family in ALL_FAMILIES if family != AUDIO]
TARGETS = [torch.cat([random_ids(length, seed=length), torch.tensor([EOS])]) for length in (3, 2)]

# Families that have sdpa in new releases of transformers only, and whether T5's attention weights are of float32 in
# any model, as up to 5.8.
LATELY = ("t5", "mt5", "umt5", "seamless_m4t")
T5_ROUNDS = "softmax(scores.float()" in inspect.getsource(modeling_t5)

all_variants = pytest.mark.parametrize("name", VARIANTS)
all_families = pytest.mark.parametrize("family", ALL_FAMILIES)


@pytest.fixture(autouse=True)
def fsmt_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modeling_fsmt, "fill_with_neg_inf", fill_with_lowest)


def top1(logits: Tensor) -> Tensor:
    return logits.argmax(-1)


def run(
    model: PreTrainedModel,
    rule: Rule | None = None,
    decoder: Tensor | None = None,
    steps: slice | None = None,
    max_memory: int = 2**40,
) -> Relevance:
    decoder = decoder_inputs(model) if decoder is None else decoder
    with patched(model, rule) as patch:
        return propagate(patch, encoder_inputs(model), decoder, top1, steps or slice(0, len(decoder)), max_memory)


def source_pair(model: PreTrainedModel) -> Any:
    """Two sources, as `explain` takes them: ids of different lengths, or features."""
    inputs = [encoder_inputs(model, length, seed=length) for length in (5, 3)]
    if "input_ids" in inputs[0]:
        return [one["input_ids"] for one in inputs]
    return {"input_features": torch.stack([one["input_features"] for one in inputs])}


def explain_pair(model: PreTrainedModel, sources: Any = None, **options: Any) -> list[Contributions]:
    results = explain(model, None, source_pair(model) if sources is None else sources, **options)
    assert isinstance(results, list) and len(results) == 2
    return results


def assert_close(actual: Contributions, expected: Contributions, tolerance: float) -> None:
    for name in ("source", "target", "start", "logits", "log_probability"):
        torch.testing.assert_close(getattr(actual, name), getattr(expected, name), rtol=0, atol=tolerance)
    assert torch.equal(actual.target_ids, expected.target_ids)
    assert torch.equal(actual.predicted_ids, expected.predicted_ids)


def test_every_supported_family_is_tested() -> None:
    assert set(FAMILIES) >= set(ALL_FAMILIES)
    assert {family for family, _ in VARIANTS.values()} == set(ALL_FAMILIES)


@all_families
def test_shares_of_a_step_sum_to_one_are_not_negative_and_causal(family: str) -> None:
    model = tiny_model(family)
    relevance = run(model)
    positions = model.config.max_source_positions if family == AUDIO else 5
    assert relevance.source.shape == (6, positions) and relevance.decoder.shape == (6, 6)
    total = relevance.source.sum(1) + relevance.decoder.sum(1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-5)
    assert bool((relevance.source >= 0).all()) and bool((relevance.decoder >= 0).all())
    assert not relevance.decoder.triu(1).any()
    assert bool((relevance.source.sum(1) > 0).all()) and bool((relevance.decoder.sum(1) > 0).all())


@all_families
def test_later_prefix_tokens_make_no_difference(family: str) -> None:
    model = tiny_model(family, dtype=torch.float64)
    decoder = decoder_inputs(model)
    changed = torch.cat([decoder[:3], random_ids(3, seed=9)])
    full, other = run(model, decoder=decoder), run(model, decoder=changed)
    torch.testing.assert_close(other.source[:3], full.source[:3], rtol=0, atol=1e-10)
    torch.testing.assert_close(other.decoder[:3], full.decoder[:3], rtol=0, atol=1e-10)
    assert not torch.allclose(other.decoder[4:], full.decoder[4:], rtol=0, atol=1e-4)


@all_families
@pytest.mark.parametrize("rule", [AlphaBeta(), Epsilon()], ids=str)
def test_chunks_of_steps_and_some_steps_make_no_difference(family: str, rule: Rule) -> None:
    model = tiny_model(family, dtype=torch.float64)
    whole, chunks, some = run(model, rule), run(model, rule, max_memory=0), run(model, rule, steps=slice(2, 5))
    for part in ("source", "decoder"):
        torch.testing.assert_close(getattr(chunks, part), getattr(whole, part), rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(getattr(some, part), getattr(whole, part)[2:5], rtol=1e-8, atol=1e-8)


SMALL = {"d_model": 8, "hidden_size": 8, "encoder_ffn_dim": 6, "decoder_ffn_dim": 7, "max_source_positions": 4}
SMALL_T5 = {"d_model": 6, "d_ff": 7, "d_kv": 3}


@all_variants
@pytest.mark.parametrize("rule", [AlphaBeta(), AlphaBeta(0.5, 0.5), Epsilon()], ids=str)
def test_equals_the_slow_propagation(name: str, rule: Rule) -> None:
    sizes = SMALL_T5 if "t5" in name else SMALL
    model = tiny_variant(name, dtype=torch.float64, **sizes)
    length = 4 if name in ALL_FAMILIES and rule == AlphaBeta() else 3
    source, decoder = encoder_inputs(model, length), decoder_inputs(model, length - 1)
    with patched(model, rule) as patch:
        relevance = propagate(patch, source, decoder, top1, slice(0, length - 1), 2**40)
    slow_source, slow_decoder = slow_propagate(model, rule, source, decoder, relevance.explained)
    magnitude = float(torch.cat([slow_source, slow_decoder], 1).abs().max())
    closeness = 1e-4 if T5_ROUNDS and "t5" in name else 1e-7
    assert float((relevance.source - slow_source).abs().max()) < closeness * magnitude
    assert float((relevance.decoder - slow_decoder).abs().max()) < closeness * magnitude


@pytest.mark.parametrize("family", TEXT_FAMILIES)
@pytest.mark.parametrize("prefix", ["reference", "model"])
def test_a_padded_batch_gives_what_single_sentences_give(family: str, prefix: str) -> None:
    model = tiny_model(family)
    sources = source_pair(model)
    pad: Any = model.config.pad_token_id
    ids = nn.utils.rnn.pad_sequence(sources, batch_first=True, padding_value=pad)
    options: list[dict[str, Any]] = [{"target": target} for target in TARGETS]
    batch_options: dict[str, Any] = {"target": nn.utils.rnn.pad_sequence(TARGETS, True, padding_value=pad)}
    if prefix == "model":
        options, batch_options = 2 * [{"max_new_tokens": 4}], {"max_new_tokens": 4}
    batch = explain(model, None, {"input_ids": ids, "attention_mask": ids != pad}, **batch_options)
    assert isinstance(batch, list)
    for source, option, together in zip(sources, options, batch, strict=True):
        alone = explain(model, None, source, **option)
        assert isinstance(alone, Contributions) and together.prefix == prefix
        assert together.source.shape[1] == len(source)
        assert_close(together, alone, 1e-6)


@pytest.mark.parametrize("prefix", ["reference", "model"])
def test_a_batch_of_recordings_gives_what_single_ones_give(prefix: str) -> None:
    model = tiny_model(AUDIO)
    sources = source_pair(model)["input_features"]
    options: list[dict[str, Any]] = [{"target": target} for target in TARGETS]
    batch_options: dict[str, Any] = {"target": TARGETS}
    if prefix == "model":
        options, batch_options = 2 * [{"max_new_tokens": 4}], {"max_new_tokens": 4}
    batch = explain_pair(model, {"input_features": sources}, **batch_options)
    for source, option, together in zip(sources, options, batch, strict=True):
        alone = explain(model, None, source, **option)
        assert isinstance(alone, Contributions) and together.prefix == prefix
        assert_close(together, alone, 1e-6)


def everything(model: Any) -> list[Any]:
    """Logits, hidden states and attention weights of a forward pass."""
    inputs = {name: tensor[None] for name, tensor in encoder_inputs(model).items()}
    output = model(
        **inputs,
        decoder_input_ids=decoder_inputs(model)[None],
        use_cache=False,
        output_attentions=True,
        output_hidden_states=True,
    )
    require_attention_weights(output)
    names = ["logits", "encoder_attentions", "decoder_attentions", "cross_attentions"]
    found = [output[name] for name in [*names, "encoder_hidden_states", "decoder_hidden_states"]]
    description = describe(model)
    depths = len(description.encoder.layers), len(description.decoder.layers)
    assert [len(part) for part in found[1:]] == [depths[0], depths[1], depths[1], depths[0] + 1, depths[1] + 1]
    return found


@all_variants
def test_a_patched_model_computes_the_same(name: str) -> None:
    model = tiny_variant(name)
    model.set_attn_implementation("eager")
    expected = everything(model)
    with patched(model):
        assert is_patched(model)
        assert_same(everything(model), expected)
    assert_same(everything(model), expected)


@all_variants
def test_the_model_comes_back_as_it_was(name: str) -> None:
    model = tiny_variant(name)
    describe(model).head.register_forward_hook(lambda *_: None)
    next(model.parameters()).requires_grad_(False)
    with unchanged(model):
        explain_pair(model, target=TARGETS)


PREDICTIONS: dict[str, Any] = {
    "top1": "top1",
    "target": "target",
    "ids": [random_ids(len(target), seed=7) for target in TARGETS],
    "pairs": [random_ids(len(target), 2, seed=8) for target in TARGETS],
}


@pytest.mark.parametrize(
    ("family", "prefix", "predict"),
    [("marian", prefix, predict) for prefix in ("reference", "random") for predict in PREDICTIONS]
    + [(family, "random", "pairs") for family in ALL_FAMILIES if family != "marian"],
)
def test_given_prefixes_and_predictions(family: str, prefix: str, predict: str) -> None:
    targets = TARGETS if prefix == "reference" else TARGETS[::-1]
    wanted = PREDICTIONS[predict]
    if prefix == "random" and not isinstance(wanted, str):
        wanted = wanted[::-1]
    results = explain_pair(tiny_model(family), target=TARGETS, prefix=prefix, predict=wanted)
    for number, (result, target) in enumerate(zip(results, targets, strict=True)):
        assert torch.equal(result.target_ids, target) and result.prefix == prefix
        assert_shares(result)
        if predict == "target":
            assert torch.equal(result.predicted_ids, target)
        elif predict != "top1":
            assert torch.equal(result.predicted_ids, wanted[number])


@all_families
def test_the_models_own_prefixes(family: str) -> None:
    model = tiny_model(family)
    for result in explain_pair(model, max_new_tokens=4, num_beams=1, do_sample=False):
        assert result.prefix == "model" and 1 <= len(result.target_ids) <= 4
        assert torch.equal(result.predicted_ids, result.target_ids)  # greedy: each is the most probable
        assert_shares(result)


def assert_shares(result: Contributions) -> None:
    """Strictly causal shares that sum to one, the first step's all on the source."""
    total = result.source.sum(1) + result.target.sum(1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-5)
    assert not result.target.triu().any()
    assert result.conservation_error <= 1e-5
    assert bool((result.source >= 0).all()) and bool((result.target >= 0).all())
    assert bool((result.start > 0).all())


@all_families
def test_attention_implementations_agree(family: str) -> None:
    model = tiny_model(family)
    model.set_attn_implementation("eager")
    eager = run(model)
    if not model._supports_sdpa:
        assert family in ("fsmt", *LATELY)  # they have no other implementation
        return
    model.set_attn_implementation("sdpa")
    sdpa = run(model)
    for part in ("source", "decoder", "logits"):
        torch.testing.assert_close(getattr(sdpa, part), getattr(eager, part), rtol=0, atol=1e-5)


@all_families
def test_half_precision_is_explained_in_a_float32_copy(family: str) -> None:
    half = tiny_model(family, dtype=torch.float16)
    full = copy.deepcopy(half).float()
    sources = source_pair(full)
    expected = explain_pair(full, sources, target=TARGETS)
    with unchanged(half), pytest.warns(UserWarning, match="float16 weights were propagated in float32"):
        results = explain_pair(half, sources, target=TARGETS)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == "float32" and any("float16" in note for note in result.notes)
        assert_close(result, wanted, 1e-6)


def layers(model: Any) -> Iterator[nn.Module]:
    """Layers of both stacks: all members of the only module lists directly below them."""
    for stack in (model.get_encoder(), model.get_decoder()):
        (members,) = (child for child in stack.children() if isinstance(child, nn.ModuleList))
        yield from members


PARTS: dict[str, Callable[[Any], list[nn.Module]]] = {
    "linear layers, norms, convolutions of the encoder": lambda model: list(modules_of(describe(model).encoder)),
    "linear layers and norms of the decoder": lambda model: list(modules_of(describe(model).decoder)),
    "layers, stacks and output layer": lambda model: [
        *layers(model),
        model.get_encoder(),
        model.get_decoder(),
        describe(model).head,
    ],
}


@all_families
@pytest.mark.parametrize("parts", PARTS)
def test_a_changed_activation_is_noticed(family: str, parts: str) -> None:
    model = tiny_model(family)
    modules = PARTS[parts](model)
    assert len(modules) >= 5
    for module in modules:
        handle = module.register_forward_hook(double)
        with pytest.raises(UnknownStructure, match="differs from what hf_lrp assumes"):
            run(model)
        assert not is_patched(model)
        handle.remove()
    run(model)


def double_before(module: nn.Module, args: Any, kwargs: Any) -> Any:
    """A forward pre-hook."""
    return (2 * args[0], *args[1:]), kwargs


@all_families
def test_a_changed_input_is_noticed(family: str) -> None:
    model = tiny_model(family)
    description = describe(model)
    modules: list[nn.Module] = [description.head]
    for stack in (description.encoder, description.decoder):
        modules += modules_of(Stack(stack.layers[-1:], stack.final_norm, stack.convolutions[1:]))
    if description.encoder.convolutions:
        modules.append(next(layers(model)))  # what enters it is checked against the convolutions
    for module in modules:
        handle = module.register_forward_pre_hook(double_before, with_kwargs=True)
        with pytest.raises(UnknownStructure, match="differs from what hf_lrp assumes"):
            run(model)
        handle.remove()


@pytest.mark.parametrize("family", ["t5", "mt5", "umt5"])
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_an_rms_norm_that_is_none_is_noticed(family: str, side: str) -> None:
    model = tiny_model(family)
    norm = getattr(describe(model), side).layers[1][1][1]

    class Centred(type(norm)):  # type: ignore[misc]
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x - x.mean(-1, keepdim=True))

    norm.__class__ = Centred
    with pytest.raises(UnknownStructure, match="output of an RMS norm"):
        run(model)


@all_families
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_layer_with_another_forward_is_noticed(family: str, side: str) -> None:
    model = tiny_model(family)
    stack = getattr(describe(model), side)
    last = stack.layers[-1][-1][0].last
    layer = next(module for module in layers(model) if any(child is last for child in module.modules()))

    class Odd(type(layer)):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = super().forward(*args, **kwargs)
            return (output[0] + 0.1, *output[1:]) if isinstance(output, tuple) else output + 0.1

    layer.__class__ = Odd
    with pytest.raises(UnknownStructure, match="output of a layer"):
        run(model)
