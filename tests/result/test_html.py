"""The page and the notebook fragment."""

from html.parser import HTMLParser

import pytest
from example_contributions import make_contributions

from hf_lrp.result.html import render_page

VOID = {"meta", "br", "link", "img"}


class Page(HTMLParser):
    """Checks that elements are nested correctly, and collects cells and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"}.intersection(self.open):
            self.texts.append(data)

    def all(self, tag: str, kind: str = "") -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag and kind in (attrs.get("class") or "")]


def test_the_page_shows_every_share():
    contributions = make_contributions()
    page = Page(contributions.to_html())
    titles = [cell["title"] for cell in page.all("td") if "--a" in (cell.get("style") or "")]
    assert len(titles) == 6 * 5 + 6 * 5 / 2
    assert f"\u2068▁cat\u2069 → \u2068▁dor\u2069: {contributions.source[2, 1]:.4f}" in titles
    assert f"\u2068▁chat\u2069 → \u2068▁dor\u2069: {contributions.target[2, 1]:.4f}" in titles
    bars = page.all("td", "total")
    assert bars[2]["title"].startswith(f"R(source) {contributions.source_total[2]:.4f}, R(target)")
    assert [cell["colspan"] for cell in page.all("td", "later")] == ["6", "5", "4", "3", "2", "1"]


def test_the_page_says_what_was_done():
    text = " ".join(Page(make_contributions().to_html()).texts)
    for part in (
        "made-up/en-fr: mean R(source) from step 2 on 0.",
        "rule: AlphaBeta(alpha=1.0, beta=0.0)",
        "prefix: model",
        "conservation error: 3e-07",
        "note: float16 weights were propagated in float32",
    ):
        assert part in text


def test_rows_have_as_many_columns_as_the_header():
    for contributions in (make_contributions(), make_contributions().merge_subwords()):
        rows = contributions.to_html().split("<tr>")[1:]
        counts = set()
        for row in rows:
            cells = [attrs for tag, attrs in Page("<tr>" + row.split("</tr>")[0] + "</tr>").elements if tag != "tr"]
            cells = [attrs for attrs in cells if "colspan" in attrs or attrs.keys() & {"class", "title"}]
            counts.add(sum(int(attrs.get("colspan") or 1) for attrs in cells if attrs.get("class") != "bar"))
        assert len(counts) == 1


HOSTILE = ("<script>alert(1)</script>", '"onmouseover="alert(1)', "&amp;", "'", "</td>", "</style>")


def test_tokens_are_escaped():
    contributions = make_contributions(HOSTILE, HOSTILE, model="<b>m", rule="<i>", notes=("<u>",))
    for text in (
        contributions.to_html(),
        contributions._repr_html_(),
        render_page([contributions], title="<s>t"),
    ):
        page = Page(text)
        assert not {"script", "b", "u", "s"}.intersection(tag for tag, _ in page.elements)
        assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
        for token in HOSTILE:
            assert token in page.texts
            assert any(token in (cell.get("title") or "") for cell in page.all("td"))


def test_nothing_is_loaded_from_elsewhere():
    text = make_contributions().to_html()
    assert text.startswith("<!DOCTYPE html>")
    assert "default-src 'none'" in text
    for way_out in ("http://", "https://", "src=", "url(", "@import", "<link", "<script"):
        assert way_out not in text
    assert "prefers-color-scheme: dark" in text


def test_right_to_left_tokens_take_their_own_direction():
    page = Page(make_contributions(("▁كيف", "</s>"), ("▁how", "</s>")).to_html())
    assert all(span["dir"] == "auto" for tag, span in page.elements if tag == "span" and "class" not in span)
    assert all(name["dir"] == "auto" for name in page.all("th", "token") if "title" in name)


@pytest.mark.parametrize(("length", "kind"), [(5, "roomy"), (60, "dense")])
def test_cells_hold_numbers_where_there_is_room(length, kind):
    tokens = [f"▁w{i}" for i in range(length)]
    page = Page(make_contributions(tokens, tokens).to_html())
    assert page.all("table")[0]["class"] == kind
    numbers = [text for text in page.texts if text.startswith(".")]
    assert bool(numbers) == (kind == "roomy")


def test_negative_shares_have_their_own_colour():
    shares = make_contributions().source.clone()
    shares[2, 2] = -0.4
    page = Page(make_contributions(source=shares).to_html())
    assert len(page.all("td", "negative")) == 1
    assert "-.40" in page.texts


def test_one_page_for_many_and_for_none():
    page = Page(render_page([make_contributions(), make_contributions(seed=1)], title="Two & more"))
    assert len(page.all("section")) == 2
    assert page.texts.count("Two & more") == 2
    assert "<h1>" in render_page([])


def test_a_notebook_gets_a_fragment_with_its_styles():
    fragment = make_contributions()._repr_html_()
    assert fragment.startswith("<style>")
    assert "<html" not in fragment
    assert "--jp-layout-color0" in fragment
    Page(fragment)


def test_no_control_or_direction_character_reaches_the_page():
    evil = "a\x1b[2Jb\u202ec\nd"
    changes = dict(model=evil, rule=evil, notes=(evil,), dtype=evil, start_tokens=(evil,))
    page = make_contributions((evil, "</s>"), (evil, "</s>"), **changes).to_html()
    assert not {"\x1b", "\u202e"} & set(page)
    assert page.count("a\\x1b[2Jb\\u202ec\\nd") > 6
