"""Settings and fixtures of all tests."""

import pytest
from hypothesis import settings
from tiny_models import FAMILIES, tiny_model
from transformers import PreTrainedModel

settings.register_profile("hf_lrp", deadline=None, derandomize=True, database=None)
settings.load_profile("hf_lrp")


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    """A tiny model of each family, post-norm and pre-norm, in float32."""
    return tiny_model(request.param)
