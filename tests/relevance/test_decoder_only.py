"""Models that are a decoder only, of every family with its variants: shares of all tokens of the input."""

from typing import Any

import pytest
import torch
from left_alone import is_patched, unchanged
from slow_decoder import slow_decoder
from tiny_decoders import DECODERS, tiny_decoder
from tiny_models import random_ids, tiny_model
from torch import Tensor, nn
from transformers import MambaConfig, MambaForCausalLM, MixtralConfig, MixtralForCausalLM, PreTrainedModel

from hf_lrp import AlphaBeta, Epsilon, Gamma, patched
from hf_lrp.models.families import FAMILIES
from hf_lrp.models.recording import UnknownStructure
from hf_lrp.relevance.propagation import Relevance, propagate
from hf_lrp.relevance.rules import Rule

IDS = random_ids(7, seed=3)
PROMPT = 4  # of these
RULES = [AlphaBeta(), AlphaBeta(0.5, 0.5), Epsilon()]

all_decoders = pytest.mark.parametrize("name", DECODERS)
one_per_family = pytest.mark.parametrize("name", sorted({family: n for n, (family, *_) in DECODERS.items()}.values()))


def run(
    model: PreTrainedModel,
    rule: Rule | None = None,
    ids: Tensor = IDS,
    first: int = PROMPT - 1,
    explained: Tensor | None = None,
    max_memory: int = 2**40,
) -> Relevance:
    def choose(logits: Tensor) -> Tensor:
        return logits.argmax(-1) if explained is None else explained

    with patched(model, rule) as patch:
        return propagate(patch, {}, ids, choose, slice(first, len(ids)), max_memory)


def precise(name: str) -> PreTrainedModel:
    """The model in float64, in which transformers' XGLM cannot run."""
    return tiny_decoder(name, dtype=torch.float32 if name == "xglm" else torch.float64)


def disturb(module: nn.Module, args: Any, output: Any) -> Any:
    """A forward hook. (A factor or shift for all features, or of all keys, may make no difference.)"""
    first = output[0] if isinstance(output, tuple) else output
    changed = first * torch.linspace(1, 2, first.shape[-1])
    return (changed, *output[1:]) if isinstance(output, tuple) else changed


def test_every_family_without_an_encoder_is_tested() -> None:
    assert {family for family, *_ in DECODERS.values()} == {k for k, f in FAMILIES.items() if f.encoder is None}


@all_decoders
def test_shares_of_a_step_sum_to_one_are_not_negative_and_causal(name: str) -> None:
    relevance = run(tiny_decoder(name))
    assert relevance.source.shape == (4, 0) and relevance.decoder.shape == (4, 7)
    total = relevance.decoder.sum(1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-5)
    assert bool((relevance.decoder >= 0).all())
    assert not relevance.decoder.triu(PROMPT).any()
    assert bool((relevance.decoder[:, :PROMPT].sum(1) > 0).all())


@all_decoders
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_equals_the_slow_propagation(name: str, rule: Rule) -> None:
    model = precise(name)
    ids = IDS[:5]
    relevance = run(model, rule, ids)
    slow, logits = slow_decoder(model, rule, ids, relevance.explained, PROMPT - 1)
    own = model(input_ids=ids[None]).logits[0]
    torch.testing.assert_close(
        logits, own.double(), rtol=0, atol=1e-4
    )  # many models compute norms and softmax in float32
    assert float((relevance.decoder - slow).abs().max()) < 1e-5 * max(1.0, float(slow.abs().max()))


@pytest.mark.parametrize("name", ["gemma2", "gpt2", "cohere"])
def test_differences_of_logits_equal_the_slow_propagation(name: str) -> None:
    model = tiny_decoder(name, dtype=torch.float64)
    ids, pairs = IDS[:5], random_ids(2, 2, seed=9)
    relevance = run(model, AlphaBeta(), ids, explained=pairs)
    slow, _ = slow_decoder(model, AlphaBeta(), ids, pairs, PROMPT - 1)
    assert float((relevance.decoder - slow).abs().max()) < 1e-5
    logits = model(input_ids=ids[None]).logits[0, PROMPT - 1 :].gather(1, pairs)
    torch.testing.assert_close(relevance.logits, logits[:, 0] - logits[:, 1])


@all_decoders
def test_later_tokens_and_chunks_of_steps_make_no_difference(name: str) -> None:
    model = precise(name)
    full = run(model)
    shorter, chunks = run(model, ids=IDS[:6]), run(model, max_memory=0)
    torch.testing.assert_close(shorter.decoder, full.decoder[:3, :6], rtol=0, atol=1e-6)
    torch.testing.assert_close(chunks.decoder, full.decoder, rtol=0, atol=1e-6)


@one_per_family
def test_attention_implementations_agree(name: str) -> None:
    model = tiny_decoder(name)
    model.set_attn_implementation("eager")
    eager = run(model)
    if model._supports_sdpa and name != "gemma2":
        model.set_attn_implementation("sdpa")
        torch.testing.assert_close(run(model).decoder, eager.decoder, rtol=0, atol=1e-5)
    else:
        assert model.config.model_type in ("gemma2", "bloom", "xglm")


def test_soft_caps_that_are_left_out_are_refused_with_the_remedy() -> None:
    """Older releases of transformers choose torch's own attention for Gemma 2, which has none."""
    model = tiny_decoder("gemma2")
    model.config._attn_implementation = "sdpa"
    with pytest.raises(ValueError, match="Gemma2Attention has soft caps.*attn_implementation='eager'"):
        run(model)


@all_decoders
def test_the_model_comes_back_as_it_was_and_computes_the_same_meanwhile(name: str) -> None:
    model = tiny_decoder(name)
    expected = model(input_ids=IDS[None]).logits
    with unchanged(model):
        run(model)
        with patched(model):
            assert is_patched(model)
            torch.testing.assert_close(model(input_ids=IDS[None]).logits, expected, rtol=0, atol=0)


@all_decoders
def test_a_changed_activation_is_noticed(name: str) -> None:
    model = tiny_decoder(name)
    layers = next(module for module in model.modules() if isinstance(module, nn.ModuleList))
    leaves = [m for m in layers[1].modules() if not list(m.children()) and "Dropout" not in type(m).__name__]
    modules = [
        layers[0],
        layers[1],
        model.get_output_embeddings(),
        *(leaf for leaf in leaves if list(leaf.parameters())),
    ]
    assert len(modules) >= 7
    for module in modules:
        handle = module.register_forward_hook(disturb)
        with pytest.raises(UnknownStructure, match="differs from what hf_lrp assumes"):
            run(model)
        handle.remove()
    run(model)


def copied(weights: dict[str, Tensor], model: PreTrainedModel) -> PreTrainedModel:
    """The model with these weights, all of them."""
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and all("rotary" in name for name in missing)
    return model


@pytest.mark.parametrize("rule", [Epsilon(), Gamma()], ids=str)
def test_a_decoder_stack_without_cross_attention_gives_the_same_shares(rule: Rule) -> None:
    """The decoder of M2M100, whose cross-attention adds nothing, and XGLM, which is built alike.

    (With the paper's rule, even a sum with nothing moves relevance away from negative features.)
    """
    ids = torch.tensor([5, 9, 3, 7, 30, 12])
    whole = tiny_model("m2m_100", seed=1, pad_token_id=1, decoder_start_token_id=5)
    sizes = {"d_model": 16, "ffn_dim": whole.config.decoder_ffn_dim, "num_layers": whole.config.decoder_layers}
    heads = dict.fromkeys(("attention_heads", "num_attention_heads"), whole.config.decoder_attention_heads)
    alone = tiny_decoder("xglm", seed=2, pad_token_id=1, activation_function="relu", **sizes, **heads)
    for layer in whole.model.decoder.layers:
        nn.init.zeros_(layer.encoder_attn.out_proj.weight)
        nn.init.zeros_(layer.encoder_attn.out_proj.bias)
    own = {k.removeprefix("model.decoder."): v for k, v in whole.state_dict().items() if "model.decoder." in k}
    weights = {f"model.{name}": tensor for name, tensor in own.items() if "encoder_attn" not in name}
    copied(weights | {"lm_head.weight": whole.lm_head.weight}, alone)
    with patched(whole, rule) as patch:
        source = {"input_ids": torch.tensor([4, 8, 6])}
        expected = propagate(patch, source, ids, lambda logits: logits.argmax(-1), slice(0, len(ids)), 2**40)
    found = run(alone, rule, ids, first=0)
    torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=1e-5)
    assert not expected.source.any()
    torch.testing.assert_close(found.decoder, expected.decoder, rtol=0, atol=1e-5)


ALIKE: list[tuple[str, str, dict[str, Any]]] = [
    ("llama", "mistral", {"sliding_window": None}),
    ("llama", "smollm3", {"no_rope_layers": [1, 1]}),
    ("llama", "gemma", {"head_dim": 4, "hidden_act": "silu", "hidden_activation": "silu"}),
    ("llama", "phi3", {"sliding_window": None}),
]


@pytest.mark.parametrize(("one", "other", "changes"), ALIKE)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_families_agree(one: str, other: str, changes: dict[str, Any], rule: Rule) -> None:
    theta = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    untied = {"tie_word_embeddings": False, "rms_norm_eps": 1e-6}
    first = tiny_decoder(one, dtype=torch.float64, seed=1, **theta, **untied)
    second = tiny_decoder(other, dtype=torch.float64, seed=2, **changes, **theta, **untied)
    weights = first.state_dict()
    if other == "gemma":  # its embeddings are scaled, its norms have gains 1 + weight
        weights = {k: v - 1 if "norm" in k else v / 4 if "embed" in k else v for k, v in weights.items()}
    if other == "phi3":
        for layer in ("model.layers.0", "model.layers.1"):
            for fused, parts in (("self_attn.qkv", "qkv"), ("mlp.gate_up", ("gate", "up"))):
                place = fused.split(".")[0]
                rows = [weights.pop(f"{layer}.{place}.{part}_proj.weight") for part in parts]
                weights[f"{layer}.{fused}_proj.weight"] = torch.cat(rows)
    before = run(second, rule)
    expected, actual = run(first, rule), run(copied(weights, second), rule)
    torch.testing.assert_close(actual.logits, expected.logits, rtol=0, atol=1e-5)
    assert float((actual.decoder - expected.decoder).abs().max()) < 1e-5
    assert float((before.decoder - expected.decoder).abs().max()) > 1e-3


def test_what_has_no_rule_is_refused_with_the_reason() -> None:
    sizes: dict[str, Any] = {"vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 1}
    experts = MixtralForCausalLM(
        MixtralConfig(**sizes, intermediate_size=8, num_attention_heads=2, num_key_value_heads=1, num_local_experts=2)
    )
    with pytest.raises(TypeError, match="MixtralForCausalLM .* is a mixture of experts"), patched(experts):
        pass
    with pytest.raises(TypeError, match="state space"), patched(MambaForCausalLM(MambaConfig(**sizes))):
        pass
