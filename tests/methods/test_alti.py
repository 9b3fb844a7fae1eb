"""ALTI+ equals a slow version of its formulas on every family, and its rows sum to 1."""

import pytest
import torch
from left_alone import unchanged
from slow_alti import slow_alti
from tiny_models import tiny_model
from tiny_questions import MODELS, model_of, question_of, values_of
from torch import Tensor

from hf_lrp.methods.alti import ALTI


@pytest.mark.parametrize("name", MODELS)
def test_equals_the_slow_version(name: str) -> None:
    model = model_of(name)
    values, question = values_of(ALTI(), model), question_of(model)
    source, decoder = slow_alti(question)
    torch.testing.assert_close(values.source.double(), source, rtol=0, atol=1e-5)  # some models norm in float32
    torch.testing.assert_close(values.decoder.double(), decoder, rtol=0, atol=1e-5)
    total = values.source.sum(1) + values.decoder.sum(1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-6)
    assert bool((values.source >= 0).all()) and bool((values.decoder >= 0).all())
    assert not values.decoder.triu(question.given[0].steps.start + 1).any()


@pytest.mark.parametrize("name", ["marian", "pegasus", "t5", "gemma2", "t5gemma"])
def test_a_layer_alone_equals_the_slow_version(name: str) -> None:
    model = model_of(name)
    question = question_of(model)
    layers = [values_of(ALTI(layer=number), model) for number in range(len(question.network.decoder.layers))]
    for number, values in enumerate(layers):
        source, decoder = slow_alti(question, number)
        torch.testing.assert_close(values.source.double(), source, rtol=0, atol=1e-5)
        torch.testing.assert_close(values.decoder.double(), decoder, rtol=0, atol=1e-5)
    assert not torch.equal(layers[0].decoder, layers[-1].decoder)
    with pytest.raises(ValueError, match="There is no layer 2: the decoder has 2, counted from 0"):
        values_of(ALTI(layer=2), model)


@pytest.mark.parametrize("name", ["marian", "pegasus", "gemma2"])
def test_rows_of_vectors_in_parts_that_fit_make_no_difference(name: str) -> None:
    model = model_of(name)
    whole = values_of(ALTI(), model)
    for memory in range(14 * 10**6, 20 * 10**6, 10**5):
        try:
            parts = values_of(ALTI(), model, max_memory=memory)
        except ValueError as error:
            assert "Give at least max_memory=" in str(error)  # noqa: PT017
        else:
            break
    torch.testing.assert_close(parts.source, whole.source)
    torch.testing.assert_close(parts.decoder, whole.decoder)


def test_what_is_explained_makes_no_difference() -> None:
    def pairs(logits: Tensor) -> Tensor:
        return logits.topk(2).indices

    model = tiny_model()
    assert torch.equal(values_of(ALTI(), model, choose=pairs).source, values_of(ALTI(), model).source)


def test_the_model_comes_back_as_it_was() -> None:
    model = tiny_model("pegasus")
    with unchanged(model):
        values_of(ALTI(), model)
