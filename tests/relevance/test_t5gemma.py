"""T5Gemma: an encoder-decoder with rotary positions, grouped queries, norms around blocks, windows and soft caps."""

import pytest
import torch
from slow_t5gemma import slow_t5gemma
from test_blocks import double
from tiny_models import random_ids
from tiny_t5gemma import tiny_t5gemma
from transformers import T5GemmaForConditionalGeneration

from hf_lrp import AlphaBeta, Epsilon, explain, patched
from hf_lrp.models.recording import UnknownStructure
from hf_lrp.relevance.propagation import Relevance, propagate
from hf_lrp.relevance.rules import Rule

SOURCE, DECODER = random_ids(6, seed=5), random_ids(5, seed=6)


@pytest.fixture
def model() -> T5GemmaForConditionalGeneration:
    return tiny_t5gemma()


def run(
    model: T5GemmaForConditionalGeneration, decoder: torch.Tensor = DECODER, rule: Rule | None = None
) -> Relevance:
    with patched(model, rule) as patch:
        source, steps = {"input_ids": SOURCE}, slice(0, len(decoder))
        return propagate(patch, source, decoder, lambda logits: logits.argmax(-1), steps, 2**40)


def test_shares_sum_to_one_and_are_causal(model: T5GemmaForConditionalGeneration) -> None:
    relevance, shorter = run(model), run(model, DECODER[:3])
    total = relevance.source.sum(1) + relevance.decoder.sum(1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-5)
    assert bool((relevance.source > 0).any()) and not relevance.decoder.triu(1).any()
    torch.testing.assert_close(shorter.source, relevance.source[:3], rtol=0, atol=1e-5)


@pytest.mark.parametrize("rule", [AlphaBeta(), AlphaBeta(0.5, 0.5), Epsilon()], ids=str)
def test_equals_the_slow_propagation(model: T5GemmaForConditionalGeneration, rule: Rule) -> None:
    model = model.double()
    relevance = run(model, rule=rule)
    source, decoder, logits = slow_t5gemma(model, rule, SOURCE, DECODER, relevance.explained)
    own = model(input_ids=SOURCE[None], decoder_input_ids=DECODER[None]).logits[0]
    torch.testing.assert_close(logits, own, rtol=0, atol=1e-4)  # transformers computes norms in float32
    scale = max(1.0, float(source.abs().max()), float(decoder.abs().max()))
    assert float((relevance.source - source).abs().max()) < 1e-5 * scale
    assert float((relevance.decoder - decoder).abs().max()) < 1e-5 * scale


def test_a_changed_activation_is_noticed(model: T5GemmaForConditionalGeneration) -> None:
    for name in ("self_attn.q_proj", "cross_attn.k_proj", "post_cross_attn_layernorm", "mlp.down_proj"):
        handle = model.get_submodule(f"model.decoder.layers.0.{name}").register_forward_hook(double)
        with pytest.raises(UnknownStructure):
            run(model)
        handle.remove()


def test_it_is_explained(model: T5GemmaForConditionalGeneration) -> None:
    model.generation_config.decoder_start_token_id = 2
    result = explain(model, None, SOURCE, DECODER)
    assert result.conservation_error <= 1e-5
    torch.testing.assert_close(result.source_total + result.target_total, torch.ones(5), rtol=0, atol=1e-5)
