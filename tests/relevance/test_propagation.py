"""Contributions of whole models: against the released code's figures, and against a slow propagation."""

import threading
from collections.abc import Callable
from dataclasses import fields

import pytest
import torch
from slow_propagation import slow_propagate
from tiny_models import ALL_FAMILIES, FAMILIES, GOLDEN, encoder_inputs, load_golden, random_ids, tiny_model
from torch import Tensor
from transformers import PreTrainedModel

from hf_lrp.relevance import backward, compiled, operations, propagation, rules
from hf_lrp.relevance.operations import attention_core, by_token
from hf_lrp.relevance.patching import patched
from hf_lrp.relevance.propagation import Relevance, propagate
from hf_lrp.relevance.rules import AlphaBeta, Epsilon, Gamma, Rule

UNLIMITED = 2**40
START = torch.tensor([39])
SOURCE, DECODER = random_ids(5, seed=3), torch.cat([START, random_ids(5, seed=4)])
RULES = (AlphaBeta(), AlphaBeta(0.5, 0.5), AlphaBeta(2, -1), Epsilon(), Gamma())

all_rules = pytest.mark.parametrize("rule", RULES, ids=str)


def top1(logits: Tensor) -> Tensor:
    return logits.argmax(-1)


def run(
    model: PreTrainedModel,
    rule: Rule | None = None,
    source: Tensor = SOURCE,
    decoder: Tensor = DECODER,
    choose: Callable[[Tensor], Tensor] = top1,
    steps: slice | None = None,
    max_memory: int = UNLIMITED,
) -> Relevance:
    with patched(model, rule) as patch:
        return propagate(patch, {"input_ids": source}, decoder, choose, steps or slice(0, len(decoder)), max_memory)


def assert_close(actual: Relevance, expected: Relevance, tolerance: float) -> None:
    for name in ("source", "decoder", "logits", "log_probability", "explained"):
        torch.testing.assert_close(getattr(actual, name), getattr(expected, name), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize(
    ("rule", "setting", "tolerance"),
    [(AlphaBeta(1, 0), "a1_b0_eps1e-12", 2e-6), (AlphaBeta(0.5, 0.5), "a0.5_b0.5_eps1e-12", 1e-5)],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_golden_contributions(name: str, rule: Rule, setting: str, tolerance: float, dtype: torch.dtype) -> None:
    golden = load_golden(name, dtype)
    logits = golden.model(input_ids=golden.source_ids[None], decoder_input_ids=golden.decoder_ids[None]).logits[0]
    assert float((logits.detach() - golden.logits).abs().max()) < 1e-5
    relevance = run(golden.model, rule, golden.source_ids, golden.decoder_ids)
    tolerance = tolerance if dtype == torch.float64 else 1e-5
    assert relevance.source.dtype == dtype
    assert float((relevance.source - golden.source[setting]).abs().max()) < tolerance
    assert float((relevance.decoder - golden.decoder[setting]).abs().max()) < tolerance


@pytest.mark.parametrize("family", FAMILIES)
@all_rules
def test_equals_the_slow_propagation(family: str, rule: Rule) -> None:
    model = tiny_model(family, dtype=torch.float64, d_model=8, encoder_ffn_dim=10, decoder_ffn_dim=10)
    source, decoder = SOURCE[:4], DECODER[:3]
    relevance = run(model, rule, source, decoder)
    slow_source, slow_decoder = slow_propagate(model, rule, source, decoder, relevance.explained)
    magnitude = float(torch.cat([slow_source, slow_decoder], 1).abs().max())
    assert float((relevance.source - slow_source).abs().max()) < 1e-7 * magnitude
    assert float((relevance.decoder - slow_decoder).abs().max()) < 1e-7 * magnitude


@pytest.mark.parametrize("rule", [AlphaBeta(), Epsilon()], ids=str)
def test_a_pair_of_ids_explains_the_difference_of_their_logits(rule: Rule) -> None:
    model = tiny_model(dtype=torch.float64, d_model=8, encoder_ffn_dim=10, decoder_ffn_dim=10)
    source, decoder = SOURCE[:4], DECODER[:3]
    pairs = torch.tensor([[5, 6], [7, 5], [30, 2]])
    relevance = run(model, rule, source, decoder, lambda _: pairs)
    slow_source, slow_decoder = slow_propagate(model, rule, source, decoder, pairs)
    torch.testing.assert_close(relevance.source, slow_source, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(relevance.decoder, slow_decoder, rtol=1e-7, atol=1e-7)
    logits = model(input_ids=source[None], decoder_input_ids=decoder[None]).logits[0].detach()
    rows = torch.arange(3)
    torch.testing.assert_close(relevance.logits, logits[rows, pairs[:, 0]] - logits[rows, pairs[:, 1]])
    torch.testing.assert_close(relevance.log_probability, logits.log_softmax(-1)[rows, pairs[:, 0]])
    assert torch.equal(relevance.explained, pairs)


@pytest.mark.parametrize("choose", [top1, lambda logits: torch.full((len(logits),), 7)], ids=["top1", "given"])
def test_reports_logits_and_probabilities_of_what_it_explains(
    model: PreTrainedModel, choose: Callable[[Tensor], Tensor]
) -> None:
    relevance = run(model, choose=choose, steps=slice(1, 4))
    logits = model(input_ids=SOURCE[None], decoder_input_ids=DECODER[None]).logits[0, 1:4].detach()
    ids = choose(logits)
    assert torch.equal(relevance.explained, ids)
    torch.testing.assert_close(relevance.logits, logits.gather(1, ids[:, None])[:, 0])
    torch.testing.assert_close(relevance.log_probability, logits.log_softmax(-1).gather(1, ids[:, None])[:, 0])


@all_rules
def test_rows_sum_to_one_and_the_decoder_is_causal(model: PreTrainedModel, rule: Rule) -> None:
    relevance = run(model.double(), rule)
    assert relevance.source.shape == (6, 5) and relevance.decoder.shape == (6, 6)
    total = relevance.source.sum(1) + relevance.decoder.sum(1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-8)
    assert not relevance.decoder.triu(1).any()
    if rule.keeps_sign:
        assert bool((relevance.source > 0).all()) and bool((relevance.decoder >= 0).all())


@all_rules
@pytest.mark.parametrize("steps", [slice(0, 6), slice(2, 5)], ids=str)
def test_without_source_tokens_the_source_has_its_total(model: PreTrainedModel, rule: Rule, steps: slice) -> None:
    whole = run(model.double(), rule, steps=steps)
    with patched(model, rule) as patch:
        memory = 2 * propagation.bytes_per_step(patch.network, len(SOURCE), len(DECODER), 8)
        given = [propagation.DecoderInput(DECODER, top1, steps)]
        (alone,) = propagation.propagate_all(patch, {"input_ids": SOURCE}, given, memory, source_tokens=False)
    assert alone.source.shape == (steps.stop - steps.start, 1)
    total = whole.source.sum(1, keepdim=True)
    torch.testing.assert_close(alone.source, total, rtol=1e-9, atol=1e-9 * float(total.abs().max()))
    torch.testing.assert_close(alone.decoder, whole.decoder)


def test_float32_conserves_relevance(model: PreTrainedModel) -> None:
    relevance = run(model)
    total = relevance.source.sum(1) + relevance.decoder.sum(1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=2e-6)


def test_later_decoder_inputs_make_no_difference(model: PreTrainedModel) -> None:
    changed = DECODER.clone()
    changed[3:] = random_ids(3, seed=9)
    full, other = run(model.double()), run(model, decoder=changed)
    torch.testing.assert_close(other.source[:3], full.source[:3])
    torch.testing.assert_close(other.decoder[:3], full.decoder[:3])
    assert not torch.allclose(other.source[4:], full.source[4:])


@all_rules
def test_chunks_of_steps_make_no_difference(
    model: PreTrainedModel, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(model.double(), rule)
    assert_close(run(model, rule, max_memory=1), whole, 1e-8)
    with patched(model) as patch:
        four = 4 * propagation.bytes_per_step(patch.network, len(SOURCE), len(DECODER), 8)
    assert_close(run(model, rule, max_memory=four), whole, 1e-8)
    monkeypatch.setattr(
        "hf_lrp.relevance.operations.by_token.CPU_BLOCK", 256
    )  # so that every token is a block of its own
    assert_close(run(model, rule, max_memory=four), whole, 1e-8)


@all_rules
def test_positions_that_go_in_turns_make_no_difference(
    model: PreTrainedModel, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Feed-forward blocks, of which only some positions are taken at a time."""
    whole = run(model.double(), rule)
    for elements in (1, 100):
        monkeypatch.setattr(backward, "CPU_ELEMENTS", elements)
        assert_close(run(model, rule), whole, 1e-8)


@all_rules
def test_what_a_gpu_is_given_gives_the_same(
    model: PreTrainedModel, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes of blocks for GPUs, and no look at intermediate results, on the CPU."""
    whole = run(model.double(), rule)
    monkeypatch.setenv(compiled.VARIABLE, "off")
    monkeypatch.setattr(by_token, "CPU_BLOCK", by_token.GPU_BLOCK)
    monkeypatch.setattr(attention_core, "ATTENTION_BLOCK", attention_core.GPU_BLOCK)
    monkeypatch.setattr(attention_core, "HEAD_BLOCK", attention_core.GPU_BLOCK)
    monkeypatch.setattr(backward, "CPU_ELEMENTS", backward.GPU_ELEMENTS)
    for module in (rules, attention_core):
        monkeypatch.setattr(module, "may_hold", lambda condition: True)
    assert_close(run(model, rule), whole, 1e-8)
    assert_close(run(model.float(), rule), whole_in_float32(whole), 1e-4)


def whole_in_float32(relevance: Relevance) -> Relevance:
    parts = {f.name: getattr(relevance, f.name) for f in fields(relevance)}
    return Relevance(
        **{
            name: part.float() if isinstance(part, Tensor) and part.is_floating_point() else part
            for name, part in parts.items()
        }
    )


def test_checks_are_looked_at_once(model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is not waited for at every check: the encoder's outcomes are read together, then the decoder's."""
    reads: list[int] = []
    tolist = Tensor.tolist
    monkeypatch.setattr(Tensor, "tolist", lambda self: (reads.append(self.numel()), tolist(self))[1])
    run(model)
    assert len(reads) == 2 and min(reads) > 5


def test_less_memory_means_smaller_chunks(model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    with patched(model) as patch:
        one = propagation.bytes_per_step(patch.network, 5, 6, 4)
    sizes: list[int] = []
    logit = operations.logit

    def noted(rule: Rule, x: Tensor, *rest: Tensor) -> Tensor:
        sizes.append(len(x))
        return logit(rule, x, *rest)

    monkeypatch.setattr(operations, "logit", noted)
    for memory in (0, 2 * one, 4 * one, UNLIMITED):
        run(model, max_memory=memory)
    assert sizes == [1] * 6 + [2] * 3 + [4, 2] + [6]


@pytest.mark.parametrize("steps", [slice(0, 1), slice(2, 5), slice(5, 6)], ids=str)
def test_some_steps_are_rows_of_all_steps(model: PreTrainedModel, steps: slice) -> None:
    part, whole = run(model.double(), steps=steps), run(model)
    torch.testing.assert_close(part.source, whole.source[steps])
    torch.testing.assert_close(part.decoder, whole.decoder[steps])


def test_one_source_token_and_one_step(model: PreTrainedModel) -> None:
    relevance = run(model, source=SOURCE[:1], decoder=START)
    torch.testing.assert_close(relevance.source + relevance.decoder, torch.ones(1, 1))


@pytest.mark.parametrize("block", [1, 500])
def test_heads_in_pieces_make_no_difference(
    model: PreTrainedModel, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(model.double())
    monkeypatch.setattr("hf_lrp.relevance.operations.attention_core.HEAD_BLOCK", block)
    assert_close(run(model), whole, 1e-10)


def test_attention_implementations_agree(model: PreTrainedModel) -> None:
    results = []
    for attention in ("eager", "sdpa"):
        model.double().set_attn_implementation(attention)
        results.append(run(model))
    assert_close(results[1], results[0], 1e-9)


@pytest.mark.parametrize("activation", ["gelu", "swish"])
def test_other_activations_are_passed_unchanged(activation: str) -> None:
    model = tiny_model(dtype=torch.float64, activation_function=activation, d_model=8)
    relevance = run(model, source=SOURCE[:3], decoder=DECODER[:2])
    slow_source, slow_decoder = slow_propagate(model, AlphaBeta(), SOURCE[:3], DECODER[:2], relevance.explained)
    torch.testing.assert_close(relevance.source, slow_source)
    torch.testing.assert_close(relevance.decoder, slow_decoder)


def test_autocast_outside_makes_no_difference(model: PreTrainedModel) -> None:
    expected = run(model)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(run(model), expected, 1e-6)


def test_results_carry_no_graph_and_parameters_no_gradient(model: PreTrainedModel) -> None:
    relevance = run(model)
    assert not any(
        getattr(relevance, name).requires_grad for name in ("source", "decoder", "logits", "log_probability")
    )
    assert all(parameter.grad is None for parameter in model.parameters())


def test_threads_do_not_see_each_other(model: PreTrainedModel) -> None:
    model.double()
    sources = [random_ids(length, seed=length) for length in (2, 3, 4)]
    expected = [run(model, source=source) for source in sources]
    barrier, results = threading.Barrier(3), {}

    def work(index: int) -> None:
        barrier.wait()
        results[index] = [run(model, source=sources[index]) for _ in range(3)]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in range(3):
        for result in results[index]:
            assert_close(result, expected[index], 1e-9)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_broken_weights_are_named(model: PreTrainedModel, value: float) -> None:
    model.model.decoder.layers[1].fc1.weight.data[0, 0] = value
    with pytest.raises(
        ValueError, match=r"the weights model\.decoder\.layers\.1\.fc1\.weight contain NaN or infinity"
    ):
        run(model)


def test_logits_may_overflow_with_finite_weights(model: PreTrainedModel) -> None:
    model.lm_head.weight.data.fill_(3e38)
    with pytest.raises(ValueError, match=r"logits that are not finite \(its weights are finite\)"):
        run(model)


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_a_padding_token_in_the_prefix_is_a_token_like_others(family: str) -> None:
    model = tiny_model(family)
    decoder = torch.tensor([model.config.pad_token_id, 5, 6])
    with patched(model) as patch:
        relevance = propagate(patch, encoder_inputs(model), decoder, top1, slice(0, 3), UNLIMITED)
    assert relevance.decoder[2, 0] > 0
    torch.testing.assert_close(relevance.source.sum(1) + relevance.decoder.sum(1), torch.ones(3), rtol=0, atol=1e-5)


def test_log_probabilities_of_hardly_possible_and_of_almost_certain_tokens(model: PreTrainedModel) -> None:
    with torch.no_grad():
        model.get_submodule("lm_head").weight.mul_(300)
    logits = model.double()(input_ids=SOURCE[None], decoder_input_ids=DECODER[None]).logits[0].detach()
    least, most = (run(model.float(), choose=choose) for choose in (lambda x: x.argmin(-1), top1))
    expected = logits.log_softmax(-1)
    assert expected.amin() < -300 and expected.amax() > -1e-6
    torch.testing.assert_close(least.log_probability, expected.amin(-1).float(), rtol=1e-4, atol=0)
    torch.testing.assert_close(most.log_probability, expected.amax(-1).float(), rtol=1e-2, atol=1e-7)
