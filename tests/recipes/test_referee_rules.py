"""The referee's verdicts on made-up findings for which the truth is known."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from judgement.decide import Answer, answer, holm, p_value
from judgement.measures import alignment_error_rate, area_under_curve, mean_of, rank_correlation, ranks
from judgement.questions import BASELINE, QUESTIONS
from judgement.synthetic import CASES, error_rates
from scipy import stats

QUESTION = QUESTIONS[0]


@pytest.mark.slow
def test_planted_winners_are_found_and_none_among_equals() -> None:
    for kind, cases in error_rates(sets=40).items():
        assert cases["equals"]["planted wins"] + cases["equals"]["another wins"] <= 2, kind
        assert cases["half the minimum"]["planted wins"] <= 2, kind
        assert all(counts["another wins"] <= 1 for counts in cases.values()), kind
        assert sum(counts["an equal differs"] for counts in cases.values()) <= 14, kind  # of 160, at a level of 5 %
        assert cases["four times the minimum"]["planted wins"] >= 36, kind
        assert list(cases) == list(CASES)


def made_up(leads: dict[str, float], sentences: int = 80) -> dict[str, list[dict[str, list[float]]]]:
    rng = np.random.default_rng(1)
    common = rng.gamma(4, 1, sentences)
    return {
        name: [{"value": [x]} for x in common + rng.normal(0, 0.3, sentences) + lead] for name, lead in leads.items()
    }


def ask(leads: dict[str, float], contestants: list[str] | None = None, sentences: int = 80) -> Answer:
    question = replace(QUESTION, measure=mean_of("value"), further=(("again", mean_of("value")),))
    return answer(question, made_up(leads, sentences), contestants or list(leads), 400)


def test_one_that_is_ahead_wins_and_one_that_is_behind_is_worse() -> None:
    found = ask({BASELINE: 0, "ahead": 1, "behind": -1, "same": 0})
    assert (found.winner, found.first, found.rivals) == ("ahead", "ahead", ())
    assert {name: one.against for name, one in found.standings.items()} == {
        "ahead": "better",
        BASELINE: None,
        "same": "alike",
        "behind": "worse",
    }
    assert found.ahead.low > 0.5
    assert found.standings["ahead"].further == (found.standings["ahead"].figure,)
    assert found.sentences == 40


def test_the_paper_s_method_can_win() -> None:
    found = ask({BASELINE: 1, "other": 0, "another": 0})
    assert found.winner == BASELINE
    assert {one.against for one in found.standings.values()} == {None, "worse"}


def test_a_lead_below_the_minimum_wins_nothing_however_sure_it_is() -> None:
    found = ask({BASELINE: 0, "ahead": 0.2}, sentences=2000)
    assert found.winner is None and found.rivals == (BASELINE,)
    assert found.standings["ahead"].p < 0.01 and found.standings["ahead"].against in ("alike", "open")


def test_few_sentences_decide_no_winner() -> None:
    assert ask({BASELINE: 0, "ahead": 5}, sentences=38).winner is None


def test_those_that_only_stand_in_the_table_neither_win_nor_count_as_tests() -> None:
    found = ask({BASELINE: 0, "ahead": 1, "oracle": 9}, [BASELINE, "ahead"])
    assert found.winner == "ahead" and list(found.standings) == ["oracle", "ahead", BASELINE]
    assert found.standings["oracle"].against is None
    assert list(found.beside) == ["oracle"] and 7.5 < found.beside["oracle"].low < found.beside["oracle"].high < 8.5


def test_different_numbers_of_sentences_are_refused() -> None:
    rows = made_up({BASELINE: 0, "other": 0})
    with pytest.raises(ValueError, match="different numbers of sentences"):
        answer(QUESTION, rows | {"other": rows["other"][:-1]}, list(rows))


def test_p_values_are_two_sided_and_never_zero() -> None:
    assert p_value(np.ones(399)) == 2 / 400
    assert p_value(np.array([-1.0, 1.0] * 200)) == 1.0
    assert p_value(-np.ones(399)) == 2 / 400


def test_holm_multiplies_the_smallest_by_their_number_and_never_decreases() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})


# ---- measures


def test_ranks_and_correlations_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(6, size=40), rng.integers(6, size=40)
    assert (ranks(x) == stats.rankdata(x)).all()
    labels = [0] * 25 + [1] * 15
    rows = [{"x": x[:10], "y": y[:10], "c": labels[:10]}, {"x": x[10:], "y": y[10:], "c": labels[10:]}]
    wanted = (25 * stats.spearmanr(x[:25], y[:25])[0] + 15 * stats.spearmanr(x[25:], y[25:])[0]) / 40
    assert rank_correlation("x", "y", "c")(rows)(np.array([0, 1])) == pytest.approx(wanted)


def test_area_under_curve_counts_pairs() -> None:
    rng = np.random.default_rng(0)
    score, label = rng.integers(5, size=30), rng.random(30) < 0.4
    pairs = list(itertools.product(score[label], score[~label]))
    wanted = np.mean([float(a > b) + 0.5 * (a == b) for a, b in pairs])
    assert area_under_curve("s", "l")([{"s": score, "l": label}])(np.array([0])) == pytest.approx(wanted)


def test_alignment_errors_are_of_all_links_together() -> None:
    rows = [
        {"in_sure": [2], "in_possible": [3], "links": [4], "sure": [2]},
        {"in_sure": [0], "in_possible": [0], "links": [1], "sure": [3]},
    ]
    assert alignment_error_rate()(rows)(np.array([0, 1])) == pytest.approx(1 - 5 / 10)
    named = [{f"reads {name}": counts for name, counts in row.items()} for row in rows]
    assert alignment_error_rate("reads ")(named)(np.array([0, 0])) == pytest.approx(1 - 10 / 12)
