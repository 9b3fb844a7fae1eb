"""Every method through `explain`: shares, raw values, words, prefixes, and refusals."""

from typing import Any

import pytest
import torch
from tiny_decoders import tiny_decoder
from tiny_models import random_ids, tiny_model
from tiny_tokenizer import tiny_tokenizer
from word_tokenizer import word_tokenizer

from hf_lrp import AlphaBeta, Contributions, Epsilon, Prompt, explain, explain_prefixes
from hf_lrp.methods import ALTI, LRP, Attention, AttnLRP, Erasure, GradientNorm, GradientTimesInput, Method

METHODS: list[Method] = [LRP(), ALTI(), AttnLRP(), GradientNorm(), GradientTimesInput(), Attention(), Erasure()]
all_methods = pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
PROMPT = Prompt("{example} write : {source} =", {"example": "a cat a dog"})


def of_encoder_decoder(method: Method, **options: Any) -> Contributions:
    return explain(tiny_model(), tiny_tokenizer(), "the cat sees", "he dog sees", method=method, **options)


def of_decoder(method: Method, **options: Any) -> Contributions:
    model = tiny_decoder("llama", seed=1)
    return explain(model, word_tokenizer(), "the cat", "a dog a", prompt=PROMPT, method=method, **options)


both_kinds = pytest.mark.parametrize("run", [of_encoder_decoder, of_decoder])


@all_methods
@both_kinds
@pytest.mark.parametrize("start_token", ["exclude", "keep"])
def test_shares_sum_to_one_and_raw_values_are_the_methods_own(run: Any, method: Method, start_token: str) -> None:
    c = run(method, start_token=start_token)
    start = c.start if start_token == "keep" else torch.zeros(len(c))
    sizes = (lambda shares: shares) if c.sums_to_one else torch.abs
    total = sizes(c.source).sum(1) + sizes(c.target).sum(1) + sizes(start)
    torch.testing.assert_close(total, torch.ones(len(c)), rtol=0, atol=1e-5)
    assert c.method.name == type(method).__name__ and c.sums_to_one is method.sums_to_one
    assert method.conserves == (c.conservation_error < 1e-5)
    kept = run(method, start_token="keep")
    for own, expected in zip(c.raw, kept.raw, strict=True):
        parts = zip(own.values(), expected.values(), strict=True) if isinstance(own, dict) else [(own, expected)]
        for one, other in parts:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    if not method.conserves:
        assert any("divided by each step's" in note for note in c.notes)
    if c.spans:
        raw = c.raw
        torch.testing.assert_close(sum(part.sum(1) for part in raw.spans.values()), raw.start, rtol=1e-4, atol=1e-6)


@all_methods
def test_words_and_pages_take_every_method(method: Method) -> None:
    c = of_encoder_decoder(method)
    assert c.merge_subwords().level == "word"
    assert type(method).__name__ in c.to_html()
    assert Contributions(**{name: getattr(c, name) for name in c.__dataclass_fields__}) == c


@all_methods
def test_several_prefixes_give_what_separate_calls_give(method: Method) -> None:
    model, sources = tiny_model(), [random_ids(4, seed=1), random_ids(3, seed=2)]
    targets = {"reference": [random_ids(3, seed=3), random_ids(4, seed=1)], "random": random_ids(2, 3, seed=5)}
    found = list(explain_prefixes(model, None, sources, targets, method=method))
    alone = explain(model, None, sources, targets["reference"], method=method)
    for together, single in zip(found, alone, strict=True):
        torch.testing.assert_close(together["reference"].source, single.source, rtol=0, atol=1e-5)
        torch.testing.assert_close(together["reference"].target, single.target, rtol=0, atol=1e-5)
        assert together["random"].method == single.method


@all_methods
def test_contrasts_at_one_word_have_that_step_alone(method: Method) -> None:
    c = of_encoder_decoder(method, predict={"dog": "cat"})
    assert c.steps == (2,) and c.source.shape == (1, len(c.source_tokens))


@pytest.mark.parametrize("unit", ["word", "part"])
def test_erasure_of_words_and_of_named_parts_of_a_prompt(unit: str) -> None:
    c = of_decoder(Erasure(unit=unit), start_token="keep")  # type: ignore[arg-type]
    raw = c.raw
    if unit == "part":
        for part in (raw.spans["example"], raw.source):
            assert bool((part == part[:, :1]).all()) and bool((part != 0).any())
    assert c.method.settings["unit"] == unit


def test_a_rule_is_short_for_lrp_with_it() -> None:
    c, same = (
        of_encoder_decoder(LRP(Epsilon())),
        explain(tiny_model(), tiny_tokenizer(), "the cat sees", "he dog sees", rule=Epsilon()),
    )
    assert c == same and str(c.method) == "LRP(rule=Epsilon(eps=1e-06))"


def test_what_is_no_method_is_refused() -> None:
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"method": "alti"}, TypeError, "method must be a method such as"),
        ({"method": LRP}, TypeError, "method must be a method such as"),
        ({"method": AlphaBeta()}, TypeError, "pass rule=AlphaBeta"),
        ({"method": LRP(), "rule": AlphaBeta()}, ValueError, "method and rule are both given"),
        ({"rule": "epsilon"}, TypeError, "rule must be a rule such as"),
        ({"method": Attention(), "source_tokens": False}, ValueError, "saves time with LRP only"),
    ]
    for options, error, message in cases:
        with pytest.raises(error, match=message):
            explain(tiny_model(), tiny_tokenizer(), "the cat", "he dog", **options)
