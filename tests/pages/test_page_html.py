"""The page and the notebook fragment: self-contained, and nothing runs that is not its own."""

import html
import re

from example_contributions import make_contributions
from page_reader import Page, explorer_json, hash_of, read_page

from hf_lrp.pages.page import render_page
from hf_lrp.results.used_method import UsedMethod

HOSTILE = (
    "<script>alert(1)</script>",
    '"onmouseover="alert(1)',
    "&amp;",
    "'",
    "</td>",
    "</style>",
    "<!--",
    "</script>",
    "]]>",
)


def test_texts_of_users_stay_data():
    c = make_contributions(HOSTILE, HOSTILE, model="<b>m", method=UsedMethod("<i>"), notes=("<u>",))
    pages = [c.to_html(), render_page([c], title="<s>t"), c.compare(c).to_html()]
    frame = Page(c._repr_html_())
    assert [tag for tag, *_ in frame.elements] == ["iframe", "script"]
    pages.append(str(frame.all("iframe")[0][0]["srcdoc"]))
    for text in pages:
        page = Page(text)
        assert not {"b", "i", "u", "s", "td"}.intersection(tag for tag, *_ in page.elements)
        assert not any(name.startswith("on") for _, attributes, _ in page.elements for name in attributes)
        assert [attributes.get("type") for attributes, _ in page.all("script")] == ["application/json", None]
        assert not set("<>&").intersection(explorer_json(text))
        level = read_page(text)["entries"][0]["results"][0]["levels"]["token"]
        assert tuple(part[0] for part in level["source"]) == HOSTILE


def test_only_the_pages_own_script_and_styles_are_allowed():
    text = make_contributions().to_html()
    page = Page(text)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert page.policy == {
        "default-src": "'none'",
        "style-src": hash_of(style),
        "script-src": hash_of(script),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert not any("style" in attributes for _, attributes, _ in page.elements)  # the policy would drop them


def test_nothing_is_loaded_from_elsewhere():
    text = make_contributions().to_html()
    assert text.startswith("<!DOCTYPE html>")
    for way_out in ("https://", "src=", "url(", "@import", "<link", "fetch(", "XMLHttpRequest", "eval(", "innerHTML"):
        assert way_out not in text
    assert set(re.findall(r"http://[\w./]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_one_page_for_many_and_for_none():
    page = render_page([make_contributions(), make_contributions(seed=1)], title="Two & more")
    assert len(read_page(page)["entries"]) == 2
    assert page.count("Two &amp; more") == 2
    assert read_page(render_page([]))["entries"] == []


def test_a_notebook_gets_the_same_page_in_a_sandboxed_frame():
    c = make_contributions()
    ((attributes, _),) = Page(c._repr_html_()).all("iframe")
    assert attributes["srcdoc"] == c.to_html()
    assert "allow-same-origin" not in str(attributes["sandbox"])
    assert " id=" not in html.unescape(c._repr_html_())  # several fit on one page


def test_no_control_or_direction_character_reaches_the_page():
    evil = "a\x1b[2Jb\u202ec\nd"
    changes = dict(model=evil, method=UsedMethod(evil), notes=(evil,), dtype=evil, start_tokens=(evil,))
    page = make_contributions((evil, "</s>"), (evil, "</s>"), **changes).to_html()
    assert not {"\x1b", "\u202e"} & set(page)
    assert "\\u202e" not in explorer_json(page).replace("\\\\u202e", "")  # nor as an escape that JSON reads back
    assert read_page(page)["entries"][0]["results"][0]["model"] == "a\\x1b[2Jb\\u202ec\\nd"
