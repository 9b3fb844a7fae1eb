"""Token ids, limits and sizes, as a model's configs say them."""

from types import SimpleNamespace

import pytest
from tiny_models import tiny_model

from hf_lrp.models.configs import (
    end_tokens,
    position_limit,
    require_end_tokens,
    require_start_token,
    start_token,
    vocabulary_sizes,
)


@pytest.fixture
def model():
    return tiny_model("marian")


def test_generation_config_decides_before_the_config(model):
    model.config.decoder_start_token_id, model.generation_config.decoder_start_token_id = 5, 6
    model.config.eos_token_id, model.generation_config.eos_token_id = 7, [8, 9]
    assert start_token(model) == 6 and end_tokens(model) == [8, 9]
    model.generation_config.decoder_start_token_id = model.generation_config.eos_token_id = None
    assert start_token(model) == 5 and end_tokens(model) == [7]


def test_what_no_config_says_is_unknown():
    said = SimpleNamespace(decoder_start_token_id=None, eos_token_id=None)
    model = SimpleNamespace(config=said, generation_config=said)
    assert start_token(model) is None and end_tokens(model) == []
    with pytest.raises(ValueError, match="decoder_start_token_id is not set.* Set it to the token"):
        require_start_token(model)
    with pytest.raises(ValueError, match="eos_token_id is not set"):
        require_end_tokens(model)


def test_limits_and_sizes(model):
    assert position_limit(model) == model.config.max_position_embeddings
    assert vocabulary_sizes(model) == {"source": model.config.vocab_size, "target": model.config.vocab_size}
    assert position_limit(tiny_model("t5")) is None
