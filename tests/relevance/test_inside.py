"""What goes through the layers: relevance at positions, through heads and blocks, from queries to keys."""

from typing import Any

import pytest
import torch
from slow_decoder import slow_decoder_inside
from slow_propagation import slow_inside
from test_t5gemma import model as t5gemma_model
from tiny_decoders import DECODERS, tiny_decoder
from tiny_models import (
    ALL_FAMILIES,
    VARIANTS,
    decoder_inputs,
    encoder_inputs,
    fill_with_lowest,
    random_ids,
    tiny_model,
    tiny_variant,
)
from torch import Tensor
from transformers import PreTrainedModel, T5GemmaForConditionalGeneration
from transformers.models.fsmt import modeling_fsmt

from hf_lrp import AlphaBeta, Epsilon, patched
from hf_lrp.relevance import backward, compiled
from hf_lrp.relevance.propagation import DecoderInput, Relevance, propagate, propagate_all
from hf_lrp.relevance.rules import Rule
from hf_lrp.relevance.trace import Flow

t5gemma = t5gemma_model
SMALL = {"d_model": 8, "hidden_size": 8, "encoder_ffn_dim": 6, "decoder_ffn_dim": 7, "max_source_positions": 4}
SMALL_T5 = {"d_model": 6, "d_ff": 7, "d_kv": 3}
FIRST = 1  # the first decoder position that is explained
PROMPT, IDS = 4, random_ids(7, seed=3)
PARALLEL = ("gpt_neox", "falcon", "falcon 7b", "cohere", "cohere with norms on queries and keys", "cohere2")
KINDS = ("to_queries", "to_keys", "to_values")


def top1(logits: Tensor) -> Tensor:
    return logits.argmax(-1)


def run(
    model: PreTrainedModel,
    rule: Rule | None = None,
    inside: Any = True,
    decoder: Tensor | None = None,
    max_memory: int = 2**40,
    length: int = 5,
) -> Relevance:
    decoder = decoder_inputs(model) if decoder is None else decoder
    steps = slice(FIRST, len(decoder))
    with patched(model, rule) as patch:
        return propagate(patch, encoder_inputs(model, length), decoder, top1, steps, max_memory, inside)


def run_decoder(model: PreTrainedModel, inside: Any = True, max_memory: int = 2**40) -> Relevance:
    with patched(model) as patch:
        return propagate(patch, {}, IDS, top1, slice(PROMPT - 1, len(IDS)), max_memory, inside)


def flow_of(relevance: Relevance) -> Flow:
    assert relevance.inside is not None
    return relevance.inside


def assert_conserved(relevance: Relevance, parallel: bool = False) -> None:
    """At every border of layers and at every sum inside them, nothing is lost; the borders are the result's.

    parallel: one sum joins attention and feed-forward block.
    """
    flow = flow_of(relevance)
    at = flow["decoder.positions"].sum(-1)
    sent = flow["decoder.sent"].sum(-1) if "decoder.sent" in flow else torch.zeros_like(at[1:])
    gone = torch.cat([sent.flip(0).cumsum(0).flip(0), torch.zeros_like(at[:1])])  # by the layers above a border
    assert_ones(at + gone)
    torch.testing.assert_close(flow["decoder.positions"][0], relevance.decoder, rtol=0, atol=1e-6)
    past, through = (
        {block: flow.get(f"decoder.{block}.{way}") for block in ("self", "cross", "feed_forward")}
        for way in ("past", "through")
    )
    if parallel:
        assert torch.equal(past["self"], past["feed_forward"])
        assert_ones(past["self"] + through["self"] + through["feed_forward"])
    else:
        assert_ones(past["feed_forward"] + through["feed_forward"] + gone[1:])
        assert_ones(past["self"] + through["self"] + gone[:-1])
    if "decoder.sent" in flow:
        assert_ones(past["cross"] + through["cross"] + gone[1:])
        there, left = flow["encoder.positions"].sum(-1), at[0]
        assert_ones(there + left)
        torch.testing.assert_close(flow["encoder.positions"][-1], flow["decoder.sent"].sum(0), rtol=0, atol=1e-6)
        for block in ("self", "feed_forward"):
            assert_ones(flow[f"encoder.{block}.past"] + flow[f"encoder.{block}.through"] + left)
    for name, heads in flow.items():
        if name.endswith(".heads"):
            through_block = flow[name.replace("heads", "through")]
            torch.testing.assert_close(heads.sum((-1, -2)), through_block, rtol=0, atol=1e-6)
            for number, kind in enumerate(KINDS):
                pairs = flow.get(name.replace("heads", kind))
                if pairs is not None:
                    torch.testing.assert_close(pairs.flatten(3).sum(-1), heads[..., number], rtol=0, atol=1e-6)


def assert_ones(shares: Tensor) -> None:
    torch.testing.assert_close(shares, torch.ones_like(shares), rtol=0, atol=1e-5)


def assert_same(actual: Flow, expected: Flow, tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in actual.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")


@pytest.fixture(autouse=True)
def fsmt_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modeling_fsmt, "fill_with_neg_inf", fill_with_lowest)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("rule", [AlphaBeta(), AlphaBeta(0.5, 0.5)], ids=str)
def test_nothing_is_lost_at_any_border(name: str, rule: Rule) -> None:
    assert_conserved(run(tiny_variant(name), rule, "pairs"))


@pytest.mark.parametrize("name", DECODERS)
def test_nothing_is_lost_in_models_that_are_a_decoder_only(name: str) -> None:
    assert_conserved(run_decoder(tiny_decoder(name), "pairs"), parallel=name in PARALLEL)


def test_nothing_is_lost_in_t5gemma(t5gemma: T5GemmaForConditionalGeneration) -> None:
    with patched(t5gemma) as patch:
        source, decoder = {"input_ids": random_ids(6, seed=5)}, random_ids(5, seed=6)
        assert_conserved(propagate(patch, source, decoder, top1, slice(0, 5), 2**40, "pairs"))


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_the_slow_propagation(name: str) -> None:
    sizes = SMALL_T5 if "t5" in name else SMALL
    model = tiny_variant(name, dtype=torch.float64, **sizes)
    decoder = decoder_inputs(model, 4)
    relevance = run(model, inside="pairs", decoder=decoder, length=4)
    explained = torch.cat([torch.zeros(FIRST, dtype=torch.long), relevance.explained])
    *_, slow = slow_inside(model, AlphaBeta(), encoder_inputs(model, 4), decoder, explained, pairs=True)
    assert_same(flow_of(relevance), {key: tensor[:, FIRST:] for key, tensor in slow.items()}, 1e-7)


@pytest.mark.parametrize("name", [name for name in DECODERS if name != "xglm"])
def test_equals_the_slow_propagation_in_models_that_are_a_decoder_only(name: str) -> None:
    model = tiny_decoder(name, dtype=torch.float64)
    relevance = run_decoder(model)
    slow, _ = slow_decoder_inside(model, AlphaBeta(), IDS, relevance.explained, PROMPT - 1)
    tolerance = 1e-5  # many models compute norms and softmax in float32
    assert_same(flow_of(relevance), {f"decoder.{key}": tensor for key, tensor in slow.items()}, tolerance)


def test_equals_the_slow_propagation_with_relevance_of_both_signs() -> None:
    model = tiny_model("pegasus", dtype=torch.float64, **SMALL)
    relevance = run(model, Epsilon(), length=4)
    explained = torch.cat([torch.zeros(FIRST, dtype=torch.long), relevance.explained])
    *_, slow = slow_inside(model, Epsilon(), encoder_inputs(model, 4), decoder_inputs(model), explained)
    assert_same(flow_of(relevance), {key: tensor[:, FIRST:] for key, tensor in slow.items()}, 1e-6)


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_chunks_of_steps_positions_and_the_compiled_part_make_no_difference(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(family)
    whole, chunks = run(model, inside="pairs"), run(model, inside="pairs", max_memory=0)
    assert_same(flow_of(chunks), flow_of(whole), 1e-5)
    monkeypatch.setattr(backward, "CPU_ELEMENTS", 1)
    monkeypatch.setenv(compiled.VARIABLE, "off")
    assert_same(flow_of(run(model, inside="pairs")), flow_of(whole), 1e-5)


def test_chunks_make_no_difference_in_models_that_are_a_decoder_only() -> None:
    model = tiny_decoder("gemma2")
    whole, chunks = run_decoder(model, "pairs"), run_decoder(model, "pairs", 0)
    assert_same(flow_of(chunks), flow_of(whole), 1e-5)


def test_what_is_kept_changes_nothing_else() -> None:
    model = tiny_model("marian")
    plain, kept, pairs = run(model, inside=False), run(model), run(model, inside="pairs")
    assert plain.inside is None
    for name in ("source", "decoder", "logits"):
        assert torch.equal(getattr(plain, name), getattr(kept, name))
        assert torch.equal(getattr(plain, name), getattr(pairs, name))
    assert not any(kind in name for name in flow_of(kept) for kind in KINDS)
    assert_same(flow_of(kept), {name: flow_of(pairs)[name] for name in flow_of(kept)}, 0)


def test_several_decoder_inputs_get_their_own_parts_of_what_went_through_the_encoder() -> None:
    model = tiny_model("marian")
    inputs = [DecoderInput(decoder_inputs(model, n, seed=n), top1, slice(FIRST, n)) for n in (6, 3, 4)]
    with patched(model) as patch:
        together = propagate_all(patch, encoder_inputs(model), inputs, 2**40, inside="pairs")
        alone = [propagate_all(patch, encoder_inputs(model), [one], 2**40, inside="pairs")[0] for one in inputs]
    for one, other in zip(together, alone, strict=True):
        assert_same(flow_of(one), flow_of(other), 1e-6)


@pytest.mark.parametrize("rule", [AlphaBeta(), AlphaBeta(0.5, 0.5)], ids=str)
def test_a_head_without_positive_input_sends_by_weight(rule: Rule) -> None:
    """Values and keys are zero: nothing but attention weights tells where relevance comes from."""
    model: Any = tiny_model("marian")
    with torch.no_grad():
        for layer in model.model.decoder.layers:
            for linear in (layer.self_attn.v_proj, layer.self_attn.k_proj):
                linear.weight.zero_(), linear.bias.zero_()
    relevance = run(model, rule, "pairs")
    assert_conserved(relevance)
