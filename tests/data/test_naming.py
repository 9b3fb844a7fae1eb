"""What readers call a model."""

import pytest

from hf_lrp.data.naming import short_name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Helsinki-NLP/opus-mt-en-de", "Helsinki-NLP/opus-mt-en-de"),
        ("tatoeba-en-fr", "tatoeba-en-fr"),
        ("/home/somebody/models/opus-mt-en-de", "opus-mt-en-de"),
        ("/home/somebody/models/opus-mt-en-de/", "opus-mt-en-de"),
        ("./small", "small"),
        ("../runs/base", "base"),
        ("~/models/m", "m"),
        ("C:\\models\\base", "base"),
        ("runs/base/checkpoint-100", "base/checkpoint-100"),
        ("./checkpoint-100", "checkpoint-100"),
        ("MarianMTModel", "MarianMTModel"),
        ("/", "/"),
    ],
)
def test_names(model, name):
    assert short_name(model) == name
