"""What visitors may ask."""

import dataclasses

import pytest

from hf_lrp.app.questions import Limits, Question, check, check_length

LIMITS = Limits(tokens=5, characters=30)


def test_what_is_complete_is_taken() -> None:
    check(Question("the cat"), LIMITS)
    check(Question("the cat", "le chat", "reference"), LIMITS)
    check(Question("the cat", prefix="random", unrelated="\n le chien \n"), LIMITS)
    check(Question("the cat", word="chat", other="chien"), LIMITS)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"source": " \n"}, "There is no source"),
        ({"prefix": "reference"}, "There is no target"),
        ({"prefix": "random", "unrelated": " \n "}, "There is no unrelated sentence"),
        ({"prefix": "other"}, "must be one of reference, model, random"),
        ({"word": "chat"}, "needs two words"),
        ({"other": "chat"}, "needs two words"),
        ({"source": ["the", "cat"]}, "source must be a text"),
        ({"source": "half of a smile: \ud83d"}, "The source has characters that are not valid text"),
    ],
)
def test_what_cannot_be_answered_is_refused(changes: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        check(dataclasses.replace(Question("the cat"), **changes), LIMITS)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Question)])
def test_every_text_is_limited(field: str) -> None:
    with pytest.raises(ValueError, match=f"The {field.replace('_', ' ')} has 31 characters; this app takes up to 30"):
        check(dataclasses.replace(Question("the cat"), **{field: "a" * 31}), LIMITS)


def test_lengths_are_limited() -> None:
    check_length(5, 5, "source")
    with pytest.raises(ValueError, match="The source has 6 tokens; this app takes up to 5"):
        check_length(6, 5, "source")


def test_texts_of_fields_become_what_explain_takes() -> None:
    question = Question("the cat", unrelated="a b\n\n c \n", word=" chat", other="chien ")
    assert question.pool == ["a b", "c"] and question.contrast == {"chat": "chien"}
    assert Question("the cat").contrast is None
