"""What happens in the app, without a browser."""

import html
from dataclasses import astuple

import pytest

from hf_lrp import Comparison, Contributions
from hf_lrp.app.events import BEFORE, NOTHING, Events
from hf_lrp.app.models import EMBEDDED, Models
from hf_lrp.app.questions import Limits, Question

SOURCE = "Where is the station?"


@pytest.fixture(scope="module")
def events() -> Events:
    return Events(Models([None]), Limits())


def test_a_sentence_is_translated_and_explained(events: Events) -> None:
    shown, target, key = events.explain(EMBEDDED, NOTHING, None, *astuple(Question(SOURCE)))
    assert key is not None and isinstance(events.recent.get(key), Contributions)
    assert f"download/{key}/contributions.png" in shown and "station" in html.unescape(shown)
    assert target == "Où est la gare ?"


def test_fields_in_which_nothing_was_ever_written(events: Events) -> None:
    fields = [field or None for field in astuple(Question(SOURCE))]
    assert events.explain(EMBEDDED, NOTHING, None, *fields)[1] == "Où est la gare ?"


def test_an_edited_prefix_beside_the_one_before(events: Events) -> None:
    _, target, key = events.explain(EMBEDDED, BEFORE, None, *astuple(Question(SOURCE)))
    edited = Question(SOURCE, target.replace("gare", "banque"), "reference")
    _, target, both = events.explain(EMBEDDED, BEFORE, key, *astuple(edited))
    view = events.recent.get(both or "")
    assert isinstance(view, Comparison) and target == "Où est la banque ?"
    assert view.first == events.recent.get(key or "") and view.second.prefix == "reference"
    third = events.recent.get(events.explain(EMBEDDED, BEFORE, both, *astuple(Question(SOURCE)))[2] or "")
    assert isinstance(third, Comparison) and third.first == view.second  # what was new before


def test_a_text_that_the_model_does_not_know_is_told_on_the_page(events: Events) -> None:
    with pytest.warns(UserWarning, match="unknown to the tokenizer"):  # which is for the terminal
        shown, _, _ = events.explain(EMBEDDED, NOTHING, None, *astuple(Question("\N{GRINNING FACE}")))
    assert "1 of the 1 tokens of the source are unknown to the tokenizer" in shown


def test_two_models(events: Events) -> None:
    _, _, key = events.explain(EMBEDDED, EMBEDDED, None, *astuple(Question(SOURCE)))
    view = events.recent.get(key or "")
    assert isinstance(view, Comparison) and view.first == view.second


def test_a_comparison_that_was_emptied_is_none(events: Events) -> None:
    _, _, key = events.explain(EMBEDDED, None, None, *astuple(Question(SOURCE)))
    assert isinstance(events.recent.get(key or ""), Contributions)


@pytest.mark.parametrize(
    ("model", "beside", "before", "question", "told"),
    [
        ("/etc", NOTHING, None, Question(SOURCE), "&#x27;/etc&#x27; is not offered here"),
        (EMBEDDED, "<script>", None, Question(SOURCE), "&#x27;&lt;script&gt;&#x27; is not offered here"),
        (EMBEDDED, BEFORE, "0" * 64, Question(SOURCE), "no longer kept"),
        (EMBEDDED, NOTHING, None, Question(SOURCE, word="chat", other="chien"), "it is not in it"),
        (EMBEDDED, NOTHING, None, Question(""), "There is no source"),
        (None, NOTHING, None, Question(SOURCE), "No model is chosen. Choose one of: embedded English-French"),
    ],
)
def test_errors_are_messages(
    events: Events, model: str | None, beside: str, before: str | None, question: Question, told: str
) -> None:
    shown, target, key = events.explain(model, beside, before, *astuple(question))
    assert shown.startswith('<p class="message"') and told in shown and "<script" not in shown
    assert target == question.target and key is None
