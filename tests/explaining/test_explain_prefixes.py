"""explain_prefixes(): what explain() gives for each prefix type, from one pass of the encoder."""

import pytest
import torch
from tiny_models import ALL_FAMILIES, decoder_inputs, encoder_inputs, fill_with_lowest, random_ids, tiny_model
from tiny_tokenizer import tiny_tokenizer
from transformers import MarianModel
from transformers.models.fsmt import modeling_fsmt

from hf_lrp import AlphaBeta, Contributions, Epsilon, explain, explain_prefixes, patched
from hf_lrp.models.recording import UnknownStructure
from hf_lrp.relevance.backward import Backward
from hf_lrp.relevance.propagation import DecoderInput, propagate, propagate_all

SOURCES = ["the cat sees", "a big blue street"]
REFERENCES = ["he eats", "they was in a big house"]
UNRELATED = ["it is not a dog", "we"]
TARGETS = {"reference": REFERENCES, "model": None, "random": UNRELATED}
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-12}
# post-norm, pre-norm and T5
KINDS = ("marian", "mbart", "t5")

kinds = pytest.mark.parametrize("family", KINDS)
dtypes = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture(autouse=True)
def fsmt_in_float64(monkeypatch):
    monkeypatch.setattr(modeling_fsmt, "fill_with_neg_inf", fill_with_lowest)


def top1(logits):
    return logits.argmax(-1)


def explain_separately(model, tokenizer, rule=None, **options) -> list[dict[str, Contributions]]:
    rule = rule or AlphaBeta()
    results = {
        "reference": explain(model, tokenizer, SOURCES, REFERENCES, rule=rule),
        "model": explain(model, tokenizer, SOURCES, rule=rule, **options),
        "random": explain(model, tokenizer, SOURCES, UNRELATED, rule=rule),
    }
    return [{name: results[name][number] for name in results} for number in range(len(SOURCES))]


def assert_same(actual: Contributions, expected: Contributions, tolerance: float) -> None:
    for name in ("source", "target", "start", "logits", "log_probability"):
        torch.testing.assert_close(getattr(actual, name), getattr(expected, name), rtol=0, atol=tolerance)
    for name in ("source_ids", "target_ids", "predicted_ids"):
        assert torch.equal(getattr(actual, name), getattr(expected, name))
    for name in ("source_tokens", "target_tokens", "predicted_tokens", "start_tokens", "method", "predict", "dtype"):
        assert getattr(actual, name) == getattr(expected, name)
    assert actual.conservation_error <= (1e-5 if tolerance > 1e-9 else 1e-12)


@kinds
@dtypes
@pytest.mark.parametrize("single_steps", [False, True], ids=["all steps", "single steps"])
def test_equals_separate_calls(family, dtype, single_steps, tokenizer, monkeypatch):
    model = tiny_model(family, dtype=dtype)
    expected = explain_separately(model, tokenizer, max_new_tokens=4)
    if single_steps:
        monkeypatch.setattr("hf_lrp.relevance.propagation.steps_per_chunk", lambda *_: 1)
    results = list(explain_prefixes(model, tokenizer, SOURCES, TARGETS, max_new_tokens=4))
    assert len(results) == len(SOURCES)
    for together, alone in zip(results, expected, strict=True):
        assert list(together) == ["reference", "model", "random"]
        for name, c in together.items():
            assert_same(c, alone[name], TOLERANCES[dtype])
            assert c.prefix == name


@pytest.mark.parametrize("rule", [AlphaBeta(0.5, 0.5), Epsilon()], ids=str)
def test_other_rules_equal_separate_calls(rule, tokenizer):
    model = tiny_model(dtype=torch.float64)
    results = explain_prefixes(model, tokenizer, SOURCES, TARGETS, rule=rule, max_new_tokens=4)
    expected = explain_separately(model, tokenizer, rule, max_new_tokens=4)
    for together, alone in zip(results, expected, strict=True):
        for name, c in together.items():
            assert_same(c, alone[name], 1e-11)


@pytest.mark.parametrize(
    ("family", "steps"), [*((family, 7) for family in ALL_FAMILIES), *(("marian", steps) for steps in (1, 4, 100))]
)
def test_every_family_shares_the_encoder(family, steps, monkeypatch):
    """Decoder inputs of different lengths, of which some steps are explained, in chunks of several sizes."""
    model = tiny_model(family, dtype=torch.float64)
    lengths = {6: slice(0, 6), 3: slice(1, 3), 7: slice(2, 7), 1: slice(0, 1)}
    given = [DecoderInput(decoder_inputs(model, n, seed=n), top1, steps) for n, steps in lengths.items()]
    source = encoder_inputs(model)
    with patched(model) as patch:
        alone = [propagate(patch, source, *each, 2**40) for each in given]
        monkeypatch.setattr("hf_lrp.relevance.propagation.steps_per_chunk", lambda *_: steps)
        together = propagate_all(patch, source, given, 2**40)
    for actual, expected in zip(together, alone, strict=True):
        for name in ("source", "decoder", "logits", "log_probability"):
            torch.testing.assert_close(getattr(actual, name), getattr(expected, name), rtol=0, atol=1e-12)
        assert torch.equal(actual.explained, expected.explained)


@pytest.mark.parametrize(
    ("capacity", "sent"), [(100, [8]), (5, [5, 3]), (4, [2, 3, 3]), (2, [2, 2, 1, 2, 1]), (1, [1] * 8)]
)
def test_the_encoder_is_passed_once_forward_and_as_seldom_as_fits_backward(capacity, sent, monkeypatch):
    model = tiny_model()
    given = [DecoderInput(decoder_inputs(model, n, seed=n), top1, slice(0, n)) for n in (2, 3, 3)]
    monkeypatch.setattr("hf_lrp.relevance.propagation.steps_per_chunk", lambda *_: capacity)
    stack, passes, steps = model.get_encoder(), [], []
    stack.register_forward_hook(lambda *_: passes.append(1))
    with patched(model) as patch:
        go_back = Backward.stack

        def noted(self, stack, relevance, window):
            if stack is patch.network.encoder:
                steps.append(relevance.shape[1])
            return go_back(self, stack, relevance, window)

        monkeypatch.setattr(Backward, "stack", noted)
        propagate_all(patch, encoder_inputs(model), given, 2**40)
    assert passes == [1]
    assert steps == sent


def test_results_come_one_by_one_and_the_model_is_not_patched_between(tokenizer):
    model = tiny_model()
    kinds = [type(module) for module in model.modules()]
    passes: list[int] = []
    model.get_encoder().register_forward_hook(lambda *_: passes.append(1))
    results = explain_prefixes(model, tokenizer, SOURCES, {"reference": REFERENCES, "random": UNRELATED})
    assert not passes
    first = next(results)
    assert [type(module) for module in model.modules()] == kinds
    assert len(passes) == 1
    assert set(first) == {"reference", "random"}
    assert len(list(results)) == 1
    assert len(passes) == 2


def test_the_models_own_targets_may_be_given(tokenizer):
    model = tiny_model()
    generated = list(explain_prefixes(model, tokenizer, SOURCES, {"model": None}, max_new_tokens=5))
    ids = [each["model"].target_ids for each in generated]
    given = list(explain_prefixes(model, tokenizer, SOURCES, {"model": ids}))
    assert given == generated
    assert {each["model"].prefix for each in given} == {"model"}


def test_ids_and_a_single_source(tokenizer):
    model = tiny_model()
    source, target = random_ids(4), random_ids(3, seed=1)
    [result] = explain_prefixes(model, None, source, {"reference": target})
    assert result == {"reference": explain(model, None, source, target)}


def test_half_precision_is_propagated_in_float32(tokenizer):
    with pytest.warns(UserWarning, match="propagated in float32") as warned:
        results = explain_prefixes(tiny_model(dtype=torch.bfloat16), tokenizer, SOURCES, TARGETS, max_new_tokens=3)
    assert warned[0].filename == __file__
    for c in next(results).values():
        assert c.dtype == "float32"
        assert c.conservation_error <= 1e-5


def test_a_decoder_that_sees_another_encoder_output_is_refused():
    model = tiny_model()
    given = [DecoderInput(decoder_inputs(model, n), top1, slice(0, n)) for n in (3, 4)]
    calls: list[int] = []

    def change(module, args, kwargs):
        calls.append(1)
        if len(calls) == 2:
            kwargs["encoder_hidden_states"] = kwargs["encoder_hidden_states"] * 2
        return args, kwargs

    model.get_decoder().register_forward_pre_hook(change, with_kwargs=True)
    with patched(model) as patch, pytest.raises(UnknownStructure, match="input of the keys"):
        propagate_all(patch, encoder_inputs(model), given, 2**40)


BAD_INPUT = {
    "nothing": (dict(targets={}), ValueError, "targets must give the targets of each prefix type"),
    "a list": (dict(targets=REFERENCES), ValueError, "targets must give the targets of each prefix type"),
    "unknown type": (dict(targets={"gold": REFERENCES}), ValueError, "prefix must be one of"),
    "no reference": (dict(targets={"reference": None}), ValueError, r"targets\['reference'\] is None, but only"),
    "no random": (dict(targets={"model": None, "random": None}), ValueError, r"targets\['random'\] is None"),
    "count": (dict(targets={"random": UNRELATED[:1]}), ValueError, "a list of 2 sources but a list of 1 target:"),
    "empty target": (dict(targets={"reference": ["a", " "]}), ValueError, "target 1 is empty"),
    "empty source": (dict(sources=["a", ""], targets={"model": None}), ValueError, "source 1 is empty"),
    "no rule": (dict(targets={"model": None}, rule="lrp"), TypeError, "rule must be a rule"),
    "batch size": (dict(targets={"model": None}, batch_size=0), ValueError, "batch_size must be at least 1"),
    "memory": (dict(targets={"model": None}, max_memory=0), ValueError, "max_memory must be positive"),
    "typo": (dict(targets={"reference": REFERENCES}, progres=True), TypeError, "Unknown arguments: progres"),
    "options": (dict(targets={"model": REFERENCES}, num_beams=2), TypeError, "Unknown arguments: num_beams"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_named_before_anything_is_computed(tokenizer, name):
    arguments, error, message = BAD_INPUT[name]
    with pytest.raises(error, match=message):
        explain_prefixes(tiny_model(), tokenizer, **({"sources": SOURCES} | arguments))


def test_models_are_checked_before_anything_is_computed(tokenizer):
    with pytest.raises(ValueError, match=r"Call model.eval\(\) first"):
        explain_prefixes(tiny_model().train(), tokenizer, SOURCES, TARGETS)
    with pytest.raises(TypeError, match="MarianModel has no output layer"):
        explain_prefixes(MarianModel(tiny_model().config).eval(), tokenizer, SOURCES, TARGETS)
