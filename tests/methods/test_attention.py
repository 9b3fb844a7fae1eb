"""Attention: means of the weights that the models themselves return."""

from typing import Any

import pytest
import torch
from left_alone import unchanged
from tiny_models import tiny_model
from tiny_questions import MODELS, model_of, question_of, values_of
from torch import Tensor
from transformers import PreTrainedModel

from hf_lrp.methods.attention import Attention


def own_weights(model: PreTrainedModel) -> tuple[Tensor, Tensor | None]:
    """What the model returns for `question_of`, [layers, heads, T, keys]: of the decoder, and to the source."""
    question = question_of(model)
    given = question.given[0]
    model.set_attn_implementation("eager")
    options: dict[str, Any] = {"output_attentions": True, "use_cache": False}
    if not question.source:
        found = model(input_ids=given.ids[None], **options)
        return torch.stack([w[0] for w in found.attentions])[:, :, given.steps], None
    source = {name: tensor[None] for name, tensor in question.source.items()}
    found = model(**source, decoder_input_ids=given.ids[None], **options)
    own, cross = (torch.stack([w[0] for w in part]) for part in (found.decoder_attentions, found.cross_attentions))
    return own, cross


@pytest.mark.parametrize("name", [name for name in MODELS if "falcon" not in name])  # which returns them unmasked
def test_means_of_the_models_own_weights(name: str) -> None:
    model = model_of(name)
    own, cross = own_weights(model)
    values, chosen = values_of(Attention(), model), values_of(Attention(heads=[(len(own) - 1, 1), (0, 0)]), model)
    looking = own if cross is None else cross
    some = torch.stack([looking[-1, 1], looking[0, 0]]).mean(0)
    expected = {"all": own.mean((0, 1)), "some": own.mean((0, 1)) if cross is not None else some}
    torch.testing.assert_close(values.decoder, expected["all"], rtol=0, atol=1e-6)
    torch.testing.assert_close(chosen.decoder, expected["some"], rtol=0, atol=1e-6)
    if cross is not None:
        torch.testing.assert_close(values.source, cross.mean((0, 1)), rtol=0, atol=1e-6)
        torch.testing.assert_close(chosen.source, some, rtol=0, atol=1e-6)
    assert values.source.shape[1] == (0 if cross is None else question_of(model).positions)


def test_the_heads_that_make_word_links_are_those_of_the_generation_config() -> None:
    model = tiny_model("marian", dtype=torch.float64)
    with pytest.raises(ValueError, match="names no alignment_heads"):
        values_of(Attention(heads="links"), model)
    model.generation_config.alignment_heads = [[1, 0]]
    links, named = values_of(Attention(heads="links"), model), values_of(Attention(heads=[(1, 0)]), model)
    assert torch.equal(links.source, named.source)
    assert not torch.equal(links.source, values_of(Attention(), model).source)


def test_heads_that_make_word_links_count_by_their_weights_and_only_where_they_predict() -> None:
    model = tiny_model("marian", dtype=torch.float64)
    config: Any = model.generation_config
    config.alignment_heads, config.alignment_weights = [[1, 0], [0, 1]], [3.0, 1.0]
    config.alignment_steps = ["predicts", "predicts"]
    first, second = (values_of(Attention(heads=[pair]), model).source for pair in ((1, 0), (0, 1)))
    torch.testing.assert_close(values_of(Attention(heads="links"), model).source, (3 * first + second) / 4)
    config.alignment_steps = ["predicts", "reads"]
    with pytest.raises(ValueError, match=r"where it is read.*heads=\[\(1, 0\), \(0, 1\)\]"):
        values_of(Attention(heads="links"), model)
    config.alignment_steps, config.alignment_weights = None, [1.0]
    with pytest.raises(ValueError, match="2 alignment_heads, but has 2 alignment_steps and 1 alignment_weights"):
        values_of(Attention(heads="links"), model)


def test_bad_heads_are_refused() -> None:
    for heads, error in (("best", ValueError), ([], ValueError), ([(0, 0), (0, 0)], ValueError), ([3], TypeError)):
        with pytest.raises(error, match="heads"):
            Attention(heads=heads)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no head 2 in layer 0: this model has 2 layers of 2 heads"):
        values_of(Attention(heads=((0, 2),)), tiny_model())


def test_the_model_comes_back_as_it_was_and_too_little_memory_is_refused() -> None:
    model = tiny_model()
    with unchanged(model):
        values_of(Attention(), model)
    with pytest.raises(ValueError, match="Give at least max_memory="):
        values_of(Attention(), model, max_memory=10**6)
