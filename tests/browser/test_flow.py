"""The page of the way through the layers in a browser: what is chosen, and what is then shown."""

import pytest

from hf_lrp import explain, load
from hf_lrp.pages.flow import render_flow


@pytest.fixture(scope="module")
def flow() -> tuple:
    result = explain(*load(), "The big dog eats an apple.", "Le grand chien mange une pomme.", inside="pairs")
    return result.merge_subwords(), render_flow(result)


def circles(page, row: int, side: str) -> list[float]:
    """The radii of a row of dots, rows from the top."""
    dots = page.locator(f"section.{side} circle")
    radii = [float(dot.get_attribute("r")) for dot in dots.all()]
    places = [float(dot.get_attribute("cy")) for dot in dots.all()]
    wanted = sorted(set(places))[row]
    return [radius for radius, place in zip(radii, places, strict=True) if place == wanted]


def test_a_chosen_word_shows_its_way(open_page, flow):
    words, text = flow
    page = open_page(text)
    page.get_by_role("button", name="chien").click()
    assert page.url.endswith("#step=3")
    telling = page.locator(".telling").inner_text()
    sent = words.inside["decoder.sent"][2].sum(-1)
    assert f"{100 * float(sent.sum()):.0f} % goes to the source" in telling
    assert f"from decoder layer {int(sent.argmax()) + 1}" in telling
    lowest = circles(page, -1, "encoder")
    assert lowest.index(max(lowest)) == int(words.source[2].argmax())
    assert page.locator("section.decoder line:not(.rule)").count() > 3
    assert circles(page, -1, "decoder")[3:] == [0] * 5  # not yet written
    assert page.locator("section.heads svg").count() == 3


def test_a_chosen_source_word_shows_where_it_matters(open_page, flow):
    words, text = flow
    page = open_page(text, "#step=3")
    page.get_by_role("button", name="source word dog").focus()
    page.keyboard.press("Enter")
    share = float(words.inside["encoder.positions"][2, 0, 2])
    assert f"“dog”: {100 * share:.0f} % of this prediction" in page.locator(".telling").inner_text()
    widths = [bar.bounding_box()["width"] for bar in page.locator(".words i").all()][1:]
    assert widths.index(max(widths)) == 2
    page.get_by_role("button", name="source word dog").click(position={"x": 4, "y": 4})
    assert not any(bar.bounding_box()["width"] for bar in page.locator(".words i").all())


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_narrow_and_wide_windows(open_page, flow, width, scheme):
    page = open_page(flow[1], viewport={"width": width, "height": 800}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    encoder, decoder = (page.locator(f"section.{side}").bounding_box() for side in ("encoder", "decoder"))
    assert (encoder["y"] == decoder["y"]) == (width == 1400)
    if width == 390:
        assert decoder["y"] < encoder["y"]
