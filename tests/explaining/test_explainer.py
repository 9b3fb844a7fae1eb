"""A model that is read once is explained as if it were read every time."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from left_alone import unchanged
from tiny_models import random_ids, tiny_model
from tiny_tokenizer import tiny_tokenizer
from torch import nn

from hf_lrp import Contributions, ContributionsList, Explainer, explain, explain_prefixes
from hf_lrp.explaining import explainer as explainer_module
from hf_lrp.kinds.encoder_decoder import Encoded, EncoderDecoder
from hf_lrp.kinds.kind import Asked
from hf_lrp.kinds.table import KINDS
from hf_lrp.methods.lrp import LRP
from hf_lrp.methods.method import Question
from hf_lrp.models import exchange
from hf_lrp.models.families import Family
from hf_lrp.models.passes import Relevance

SOURCES, TARGETS = ["the cat sees the dog", "he eats"], ["she is not in the house", "a dog"]


def assert_same(actual: Contributions, expected: Contributions) -> None:
    for name in ("source", "target", "start", "logits", "log_probability"):
        assert torch.equal(getattr(actual, name), getattr(expected, name)), name
    assert actual.predicted_tokens == expected.predicted_tokens and actual.notes == expected.notes


def test_it_gives_what_explain_gives(model: Any) -> None:
    tokenizer = tiny_tokenizer()
    explainer = Explainer(model, tokenizer)
    with unchanged(model):
        for options in ({}, {"predict": "target", "start_token": "keep"}, {"source_tokens": False}):
            for source, target in zip(SOURCES, TARGETS, strict=True):
                expected = explain(model, tokenizer, source, target, **options)
                assert_same(explainer.explain(source, target, **options), expected)
        many = explainer.explain(SOURCES, TARGETS)
        assert isinstance(many, ContributionsList)
        pairs = zip(
            explainer.explain_prefixes(SOURCES, {"reference": TARGETS}),
            explain_prefixes(model, tokenizer, SOURCES, {"reference": TARGETS}),
            many,
            strict=True,
        )
        for own, given, one in pairs:
            assert_same(own["reference"], given["reference"])
            assert_same(own["reference"], one)


@dataclass(frozen=True)
class Counting(LRP):
    """Notes how many decoder inputs each question has."""

    asked: Any = None

    def explain(self, question: Question) -> list[Relevance]:
        self.asked.append(len(question.given))
        return super().explain(question)


def test_candidates_of_one_source_share_the_encoder(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that follow each other, and no more than go together; others stand alone, as all do that keep much."""
    one, other = random_ids(6, seed=1), random_ids(6, seed=2)
    sources = [one, one, other, one, one, one]
    targets = [random_ids(2 + n, seed=10 + n) for n in range(6)]
    singles = [explain(model, None, s, t) for s, t in zip(sources, targets, strict=True)]
    monkeypatch.setattr(explainer_module, "MOST_TOGETHER", 2)
    asked: list[int] = []
    for found, single in zip(
        explain(model, None, sources, targets, method=Counting(asked=asked)), singles, strict=True
    ):
        for name in ("source", "target", "start", "logits", "log_probability"):
            torch.testing.assert_close(getattr(found, name), getattr(single, name), rtol=1e-6, atol=1e-6)
        assert torch.equal(found.target_ids, single.target_ids)
    assert asked == [2, 1, 2, 1]
    explain(model, None, sources, targets, method=Counting(asked=asked), inside=True)
    assert asked[4:] == [1] * 6


def test_the_model_is_read_again_only_where_it_was_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, read, own = tiny_model(), [], exchange.read_network
    monkeypatch.setattr(exchange, "read_network", lambda model: read.append(1) or own(model))
    explainer, source, target = Explainer(model), random_ids(4, seed=1), random_ids(3, seed=2)
    for _ in range(3):
        before = explainer.explain(source, target)
    assert len(read) == 1
    layer = model.model.encoder.layers[0]
    layer.fc1 = nn.Linear(layer.fc1.in_features, layer.fc1.out_features).eval()
    changed = explainer.explain(source, target)
    assert len(read) == 2 and not torch.equal(changed.source, before.source)
    assert_same(changed, explain(model, None, source, target))
    layer.fc1.weight = nn.Parameter(layer.fc1.weight * 2)
    assert_same(explainer.explain(source, target), explain(model, None, source, target))
    layer.fc1.weight.data *= 2
    assert_same(explainer.explain(source, target), explain(model, None, source, target))


def test_what_is_wrong_at_the_moment_is_refused() -> None:
    model = tiny_model()
    explainer = Explainer(model)
    explainer.explain(random_ids(4), random_ids(3))
    model.train()
    with pytest.raises(ValueError, match="training mode"):
        explainer.explain(random_ids(4), random_ids(3))
    model.eval().model.encoder.layers[0].fc1.weight.data[0] = torch.nan
    with pytest.raises(ValueError, match="contain NaN"):
        explainer.explain(random_ids(4), random_ids(3))


@dataclass(frozen=True)
class LoudTexts(Encoded):
    """Sources that were written in capitals."""


class Loud(EncoderDecoder):
    """A kind of model that reads capitals as small letters."""

    def includes(self, family: Family) -> bool:
        return family.source == "input_ids" and family.encoder is not None

    def read(self, asked: Asked) -> LoudTexts:
        read = super().read(replace(asked, source=asked.source.lower()))
        return LoudTexts(read.sources, read.prompts)


def test_a_kind_of_model_is_one_class_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = tiny_model(), tiny_tokenizer()
    expected = explain(model, tokenizer, SOURCES[0], TARGETS[0])
    monkeypatch.setattr("hf_lrp.kinds.table.KINDS", [Loud(), *KINDS])
    assert_same(explain(model, tokenizer, SOURCES[0].upper(), TARGETS[0]), expected)
