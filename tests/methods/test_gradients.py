"""Gradients of all steps together equal those of autograd, one step after the other, on every family."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from left_alone import unchanged
from slow_gradients import slow_gradients
from tiny_models import tiny_model
from tiny_questions import MODELS, model_of, question_of, values_of
from torch import Tensor

from hf_lrp.methods.gradients import GradientNorm, GradientTimesInput


@pytest.mark.parametrize("name", MODELS)
def test_equal_autograd(name: str) -> None:
    model = model_of(name)
    times, norm = values_of(GradientTimesInput(), model), values_of(GradientNorm(), model)
    of_source, of_decoder, source, decoder = slow_gradients(question_of(model), times.explained)
    tolerance = 1e-3 if name == "xglm" else 1e-5  # some models compute norms and softmax in float32
    for found, expected in (
        (times.source, (of_source * source).sum(-1)),
        (times.decoder, (of_decoder * decoder).sum(-1)),
        (norm.source, of_source.square().sum(-1).sqrt()),
        (norm.decoder, of_decoder.square().sum(-1).sqrt()),
    ):
        assert float((found - expected).abs().max() if found.numel() else 0.0) < tolerance * max(
            1.0, float(expected.abs().max() if expected.numel() else 0.0)
        )


@pytest.mark.parametrize("name", ["marian", "t5", "gemma2", "t5gemma"])
def test_differences_and_steps_in_parts(name: str) -> None:
    def pairs(logits: Tensor) -> Tensor:
        return logits.topk(2).indices

    model = model_of(name)
    values = values_of(GradientTimesInput(), model, choose=pairs)
    of_source, of_decoder, source, decoder = slow_gradients(question_of(model), values.explained)
    if source.numel():
        torch.testing.assert_close(values.source, (of_source * source).sum(-1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(values.decoder, (of_decoder * decoder).sum(-1), rtol=1e-5, atol=1e-6)
    for memory in range(14 * 10**6, 30 * 10**6, 2 * 10**4):
        try:
            parts = values_of(GradientTimesInput(), model, choose=pairs, max_memory=memory)
        except ValueError as error:
            assert "Give at least max_memory=" in str(error)  # noqa: PT017
        else:
            break
    torch.testing.assert_close(parts.source, values.source)
    torch.testing.assert_close(parts.decoder, values.decoder)


@pytest.mark.skipif(find_spec("captum") is None, reason="needs captum: pip install captum")
@pytest.mark.parametrize("name", ["bart", "t5", "mbart", "llama", "gpt2", "gemma2"])
def test_equal_captum(name: str) -> None:
    from captum.attr import InputXGradient, Saliency

    model = model_of(name)
    question = question_of(model)
    given = question.given[0]
    steps = range(given.steps.start, given.steps.stop)
    times, norm = values_of(GradientTimesInput(), model), values_of(GradientNorm(), model)

    def logits(step: int, *embedded: Tensor) -> Tensor:
        inputs: dict[str, Any] = {"use_cache": False, "inputs_embeds": embedded[0]}
        if question.source:
            inputs |= {"decoder_inputs_embeds": embedded[1]}
        return model(**inputs).logits[:, step]

    embed = model.get_input_embeddings()
    ids = [question.source["input_ids"], given.ids] if question.source else [given.ids]
    embedded = tuple(embed(each[None]).detach().requires_grad_() for each in ids)
    for row, (step, token) in enumerate(zip(steps, times.explained.tolist(), strict=True)):

        def one(*inputs: Tensor, step: int = step) -> Tensor:
            return logits(step, *inputs)

        products = InputXGradient(one).attribute(embedded, target=token)
        slopes = Saliency(one).attribute(embedded, target=token, abs=False)
        for found, parts in ((times, [p[0].sum(-1) for p in products]), (norm, [g[0].norm(dim=-1) for g in slopes])):
            own = [found.source[row], found.decoder[row]] if question.source else [found.decoder[row]]
            for mine, theirs in zip(own, parts, strict=True):
                torch.testing.assert_close(mine, theirs.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", ["marian", "whisper"])
def test_the_model_comes_back_as_it_was(family: str) -> None:
    model = tiny_model(family)
    with unchanged(model):
        values_of(GradientNorm(), model)
