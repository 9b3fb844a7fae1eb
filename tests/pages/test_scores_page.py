"""The page of scores: numbers, flags on both sides, nothing that acts."""

import re
from typing import Any

from hf_lrp.pages import scores
from hf_lrp.pages.scores import render_scores


def word(text: str, start: int, flagged: bool = False, value: float = 0.1) -> dict[str, Any]:
    return {"text": text, "span": (start, start + len(text)), "value": value, "rank": 0.004, "flagged": flagged}


def row(coverage: float = 0.5, source_total: float | None = None, **changes: Any) -> dict[str, Any]:
    plain = {
        "source": "the <b>cat</b> sleeps",
        "translation": "le chat dort",
        "coverage": coverage,
        "coverage_rank": 0.25,
        "log_probability": -1.25,
        "log_probability_rank": 0.5,
        "source_total": source_total,
        "source_words": [word("the", 0), word("<b>cat</b>", 4, flagged=True), word("sleeps", 15)],
        "target_words": [word("le", 0), word("chat", 3), word("dort", 8, flagged=True, value=-7.5)],
    }
    return plain | changes


def render(*rows: dict[str, Any], measures: tuple[str, str] = ("coverage", "log-probability")) -> str:
    return render_scores(rows, 48, (0.02, 0.005), measures)


def test_flagged_words_are_underlined_in_both_texts() -> None:
    text = render(row())
    marks = re.findall(r'<mark title="([^"]*)">([^<]*)</mark>', text)
    assert [marked for _, marked in marks] == ["&lt;b&gt;cat&lt;/b&gt;", "dort"]
    assert marks[0][0].startswith("the link heads nowhere look at it: 0.10; 0.4 % of the words")
    assert marks[1][0].startswith("its log-probability is -7.50; ")
    assert re.search(r'dir="auto">the <mark[^>]*>.*</mark> sleeps</p>', text)
    assert "coverage 0.500" in text and "(25 %)" in text and "log-probability -1.250" in text
    assert (
        "1 pairs, compared with 48 translations" in text
        and "rarer than 2 % of its words" in text
        and "rarer than 0.5 %:" in text
    )


def test_reasons_follow_the_measures() -> None:
    text = render(row(), measures=("erasure", "ratio"))
    assert "falls by 0.10" in text and "-7.50 above its mean with other sources" in text


def test_the_least_covered_come_first_and_only_so_many(monkeypatch: Any) -> None:
    monkeypatch.setattr(scores, "MOST_ON_PAGE", 2)
    text = render(row(0.6), row(0.2), row(0.4))
    assert re.findall(r'data-number="(\d)"', text) == ["2", "3"]
    assert "the 2 with the lowest coverage" in text


def test_the_source_share_is_shown_where_it_is_known() -> None:
    assert "R(source)" not in render(row())
    text = render(row(source_total=0.75), row())
    assert "R(source) 0.750" in text and "R(source) –" in text


def test_a_word_without_a_place_is_left_alone() -> None:
    lost = word("cat", 0, flagged=True) | {"span": None}
    assert "<mark" not in render(row(source_words=[lost], target_words=[]))
