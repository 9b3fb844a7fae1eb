"""Masked heads: what is masked is what the structure calls a head, and the model is as before afterwards."""

from typing import Any

import pytest
import torch
from left_alone import unchanged
from tiny_decoders import tiny_decoder
from tiny_models import decoder_inputs, encoder_inputs, random_ids, tiny_model
from torch import Tensor

from hf_lrp.models.exchange import read_plain_network
from hf_lrp.models.head_masking import HeadPlace, attention_kinds, heads_masked


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            return model(
                input_ids=encoder_inputs(model)["input_ids"][None], decoder_input_ids=decoder_inputs(model)[None]
            ).logits
        return model(input_ids=random_ids(1, 5)).logits


@pytest.mark.parametrize("family", ["marian", "t5", "m2m_100"])
@pytest.mark.parametrize("kind", ["encoder", "self", "cross"])
def test_a_masked_head_is_one_whose_columns_of_the_output_projection_are_zero(family: str, kind: str) -> None:
    model: Any = tiny_model(family)
    network = read_plain_network(model)
    before = logits(model)
    with unchanged(model), heads_masked(network, [HeadPlace(kind, 1, 0)]):
        masked = logits(model)
    torch.testing.assert_close(logits(model), before, rtol=0, atol=0)
    block = attention_kinds(network)[kind][1]
    with torch.no_grad():
        weight = block.out.module.weight
        weight[:, : weight.shape[1] // block.q.heads] = 0.0
    torch.testing.assert_close(masked, logits(model), rtol=0, atol=1e-6)
    assert not torch.allclose(masked, before, atol=1e-4)


def test_models_without_an_encoder_have_one_kind() -> None:
    model = tiny_decoder("gpt2")
    network = read_plain_network(model)
    assert list(attention_kinds(network)) == ["self"]
    before = logits(model)
    with heads_masked(network, [HeadPlace("self", 0, 1), HeadPlace("self", 0, 2)]):
        assert not torch.allclose(logits(model), before, atol=1e-4)
    with (
        pytest.raises(ValueError, match=r"no head \('cross', 0, 0\): kinds are self"),
        heads_masked(network, [HeadPlace("cross", 0, 0)]),
    ):
        pass
    with pytest.raises(ValueError, match="no head"), heads_masked(network, [HeadPlace("self", 0, 4)]):
        pass


def test_the_model_is_as_before_after_an_error() -> None:
    model = tiny_model("marian")
    before = logits(model)
    with pytest.raises(KeyError), heads_masked(read_plain_network(model), [HeadPlace("cross", 0, 0)]):
        raise KeyError
    assert torch.equal(logits(model), before)
