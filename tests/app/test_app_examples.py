"""Examples in the languages that models' names tell."""

import pytest

from hf_lrp.app.examples import SENTENCES, examples_for, languages_of
from hf_lrp.app.models import EMBEDDED


@pytest.mark.parametrize(
    ("label", "languages"),
    [
        (EMBEDDED, ("en", "fr")),
        ("opus-mt-zh-en", ("zh", "en")),
        ("Helsinki-NLP/opus-mt-en-de", ("en", "de")),
        ("opus-mt-tc-big-eng-ron", ("en", "ro")),
        ("facebook/nllb-200-distilled-600M", ("en", "fr")),
        ("opus-mt-xx-de", ("en", "de")),
    ],
)
def test_languages_of_labels(label: str, languages: tuple[str, str]) -> None:
    assert languages_of(label) == languages
    assert examples_for(label).sources == SENTENCES[languages[0]]
    assert examples_for(label).unrelated.splitlines() == list(SENTENCES[languages[1]][1:])
