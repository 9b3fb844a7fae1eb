"""What the referee's page makes of answers: advice, tables, a figure."""

import re
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import referee_page
from judgement.decide import answer
from judgement.measures import mean_of
from judgement.questions import BASELINE, QUESTIONS
from referee_advice import advise
from referee_figure import draw

QUESTION = QUESTIONS[0]


def made_up(leads: dict[str, float], contestants: list[str], seed: int = 1) -> dict[str, Any]:
    """An answer as it is kept."""
    rng = np.random.default_rng(seed)
    common = rng.gamma(4, 1, 80)
    rows = {name: [{"v": [x]} for x in common + rng.normal(0, 0.3, 80) + lead] for name, lead in leads.items()}
    question = replace(QUESTION, measure=mean_of("v"), further=tuple((t, mean_of("v")) for t, _ in QUESTION.further))
    return asdict(answer(question, rows, contestants, 200))


METHODS = [BASELINE, "erasure", "alti"]
CLEAR = made_up({BASELINE: 0, "erasure": 2, "alti": 0, "nearest": -1}, METHODS)
TIED = made_up({BASELINE: 0, "erasure": 2, "alti": 2, "nearest": -1}, METHODS)
OTHER = made_up({BASELINE: 0, "erasure": 0, "alti": 2, "hf_lrp.align": 3}, METHODS)


LAYERS = {"one": {"attention, layer 1": {"predicts": 0.5, "reads": 0.25}}}


def test_a_winner_is_taken_where_no_model_decides_against_it() -> None:
    found = advise(QUESTION, {"one": CLEAR, "two": TIED})
    assert found.take == ("erasure",)
    assert found.leads[0] == pytest.approx(2, abs=0.2) and found.leads[1] == pytest.approx(0, abs=0.2)


def test_among_equals_all_are_named() -> None:
    assert set(advise(QUESTION, {"one": TIED}).take) == {"erasure", "alti"}
    assert advise(QUESTION, {"one": TIED}).leads[0] == pytest.approx(2, abs=0.2)  # over the best of the others


def test_different_winners_depend_on_the_model() -> None:
    assert advise(QUESTION, {"one": CLEAR, "two": OTHER}).take == ()


def test_lower_is_better_turns_leads() -> None:
    assert advise(replace(QUESTION, higher=False), {"one": CLEAR}).leads[0] < 0


def test_tables_have_every_method_and_model() -> None:
    answers = {"one": {"tokens": CLEAR}, "two": {"tokens": OTHER, "source": TIED}}
    costs = {"one": {"methods": {"erasure": {"seconds": 1.234, "bytes": 3 << 20}}}}
    names = ("advice", "answers", "costs", "layers", "tokens", "further tokens")
    empty = "".join(f"<!-- table {name} -->\nold\n<!-- end -->\n" for name in names)
    page = referee_page.fill(empty, answers, costs, LAYERS)
    assert "old" not in page
    assert re.search(
        rf"\| {re.escape(QUESTION.title)} \| depends on the model: one \*\*erasure\*\*; two \*\*ALTI\+\*\* \|  \|  \| "
        r"`hf_lrp.align`: \+[01]\.\d\d \|",
        page,
    )
    assert re.search(r"\| \*\*erasure\*\*, by [12]\.\d\d \[", page)
    assert "| erasure | 1.23 s, 3 MiB |" in page
    assert "| two | ALTI+ |" in page and "nearest tokens" in page
    assert "| attention, layer 1 | 0.500 | 0.250 |" in page
    assert page == referee_page.fill(page, answers, costs, LAYERS)


def test_what_depends_on_the_model_is_said_by_model() -> None:
    found = {"one": CLEAR, "two": OTHER, "three": TIED}
    page = referee_page.advice_table({name: {"tokens": one} for name, one in found.items()}, {})
    (row,) = (line for line in page.splitlines() if line.startswith(f"| {QUESTION.title}"))
    taken = row.split(" | ")[1]
    assert taken.startswith("depends on the model: one **erasure**; two **ALTI+**; others ")
    assert set(taken.partition("others ")[2].split(", ")) == {"erasure", "ALTI+"}


def test_the_figure_shows_differences_with_their_intervals() -> None:
    figure = draw({"one": {"tokens": CLEAR}, "two": {"tokens": TIED}})
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["ALTI+", "erasure", "nearest tokens"]
    shown = sorted(x for container in ax.containers for x in container.lines[0].get_xdata())
    wanted = sorted(
        one["standings"][name]["difference"][0] for one in (CLEAR, TIED) for name in ("alti", "erasure", "nearest")
    )
    assert shown == pytest.approx(wanted)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]
