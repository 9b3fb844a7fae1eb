"""The page of one or two results in a browser: what is chosen, how, and what is then shown."""

import dataclasses

import pytest
import torch
from example_contributions import ENGLISH, FRENCH, make_contributions

from hf_lrp.corpus.calibration import Calibration
from hf_lrp.links.alignment import Alignment
from hf_lrp.links.heads import Head, LinkHeads
from hf_lrp.links.texts import Text
from hf_lrp.results.spans import Span

TOUCH = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}


def target(page, number: int):
    return page.locator("[aria-label=Translation] .token").nth(number)


def source(page, number: int):
    return page.locator("[aria-label=Source] .token").nth(number)


def chosen(page) -> list[str]:
    return page.locator(".token.chosen").all_inner_texts()


def pieces(page) -> None:
    page.get_by_role("button", name="pieces").click()


def opacity(token) -> float:
    """How strongly a token is tinted."""
    color = token.evaluate("element => getComputedStyle(element).backgroundColor")
    numbers = color[color.index("(") + 1 : -1].replace("/", ",").split(",")
    return float(numbers[3]) if len(numbers) > 3 else 1.0


class TestChoosing:
    def test_texts_are_running_texts(self, open_page):
        page = open_page(make_contributions().to_html())
        assert page.locator("[aria-label=Source]").inner_text() == "The cat sleeps </s>"
        assert page.locator("[aria-label=Translation]").inner_text() == "Le chat dort. </s>"
        assert "▁" not in page.locator("body").inner_text()

    def test_a_target_word_shows_what_it_was_made_from(self, open_page):
        c = make_contributions()
        page = open_page(c.to_html())
        pieces(page)
        target(page, 2).click()
        assert chosen(page) == ["dor"]
        facts = page.locator(".facts").inner_text()
        assert facts.startswith("dor was made from")
        for name, share in (("source", c.source_total[2]), ("prefix", c.target_total[2])):
            assert f"{name} {share:.3f}" in facts
        assert f"the start token's share, {c.start[2]:.3f}, is left out" in facts
        largest = int(c.source[2].argmax())
        tints = [opacity(source(page, i)) for i in range(5)]
        assert tints.index(max(tints)) == largest
        assert opacity(target(page, 0)) > 0 and opacity(target(page, 4)) == 0  # not yet written
        widths = [box.bounding_box()["width"] for box in page.locator(".bar i").all()]
        assert widths[0] / sum(widths) == pytest.approx(float(c.source_total[2]), abs=0.01)

    def test_a_words_own_share_is_that_of_its_earlier_pieces(self, open_page):
        page = open_page(make_contributions().to_html())
        target(page, 2).click()  # a word of two pieces
        own = make_contributions().merge_subwords().target[2, 2]
        assert target(page, 2).get_attribute("title") == f"beginning of dort → dort: {own:.3f}"

    def test_a_chosen_word_marks_its_linked_words(self, open_page):
        texts = Text.at_spaces("The cat sleeps."), Text.at_spaces("Le chat dort.")
        page = open_page(
            make_contributions().to_html(links=Alignment(*texts, {(2, 2): 0.75}, LinkHeads((Head(0, 0),))))
        )
        target(page, 2).click()
        assert page.locator(".token.linked").all_inner_texts() == ["sleeps"]
        assert page.locator(".facts .links").inner_text() == "linked with sleeps 0.75"
        source(page, 2).click()
        assert page.locator(".token.linked").all_inner_texts() == ["dort", "."]
        assert page.locator(".facts .links").inner_text() == "linked with dort 0.75, . 0.75"
        source(page, 0).click()
        assert page.locator(".token.linked").count() == 0
        assert page.locator(".facts .links").inner_text() == "linked with no word"

    def test_without_links_nothing_is_said_of_them(self, open_page):
        page = open_page(make_contributions().to_html())
        target(page, 2).click()
        assert page.locator(".links, .linked").count() == 0

    def test_a_source_word_shows_where_it_went(self, open_page):
        c = make_contributions()
        page = open_page(c.to_html())
        pieces(page)
        source(page, 1).click()
        assert chosen(page) == ["cat"]
        assert page.locator(".facts").inner_text().startswith("cat went to")
        tints = [opacity(target(page, t)) for t in range(6)]
        assert tints.index(max(tints)) == int(c.source[:, 1].argmax())

    def test_arrow_keys_move(self, open_page):
        page = open_page(make_contributions().to_html())
        target(page, 0).click()
        page.keyboard.press("ArrowRight")
        assert chosen(page) == ["chat"]
        page.keyboard.press("End")
        page.keyboard.press("ArrowLeft")
        assert chosen(page) == ["."]
        assert page.evaluate("document.activeElement.textContent") == "."
        source(page, 0).click()
        page.keyboard.press("ArrowRight")
        assert chosen(page) == ["cat"]

    def test_words_are_reached_with_the_tab_key(self, open_page):
        page = open_page(make_contributions().to_html())
        roles = []
        for _ in range(8):
            page.keyboard.press("Tab")
            roles.append(
                page.evaluate("document.activeElement.getAttribute('role') || document.activeElement.tagName")
            )
        assert roles.count("option") == 2  # one stop for each text

    def test_touch(self, open_page):
        page = open_page(make_contributions().to_html(), **TOUCH)
        target(page, 1).tap()
        assert chosen(page) == ["chat"]
        source(page, 2).tap()
        assert chosen(page) == ["sleeps"]
        page.locator("canvas").tap(position={"x": 200, "y": 120})
        assert "→" in page.locator(".readout").inner_text()  # a share, without hovering

    def test_the_curve_and_the_telling_word_lead_to_words(self, open_page):
        page = open_page(make_contributions().to_html())
        first = chosen(page)
        box = page.locator(".curve").bounding_box()
        page.mouse.click(box["x"] + 60, box["y"] + 40)
        assert chosen(page) == ["Le"]
        page.locator(".telling-word").click()
        assert chosen(page) == first

    def test_the_heat_map_says_shares(self, open_page):
        c = make_contributions()
        page = open_page(c.to_html())
        pieces(page)
        target(page, 0).click()
        page.locator("canvas").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        assert page.locator(".readout").inner_text() == f"cat → chat: {c.source[1, 1]:.3f}"
        assert chosen(page) == ["chat"]


class TestLevels:
    def test_what_is_chosen_stays_near(self, open_page):
        page = open_page(make_contributions().to_html())
        target(page, 3).click()
        pieces(page)
        assert chosen(page) == ["."]
        page.get_by_role("button", name="words").click()
        assert chosen(page) == ["."]
        assert page.get_by_role("button", name="words").get_attribute("aria-pressed") == "true"

    def test_one_level_has_no_switch(self, open_page):
        page = open_page(make_contributions(("▁a", "▁b"), ("▁c", "▁d")).to_html())
        assert page.get_by_role("button", name="pieces").count() == 0


class TestAddress:
    def test_a_link_shows_what_its_sender_saw(self, open_page):
        text = make_contributions().to_html()
        page = open_page(text)
        pieces(page)
        target(page, 3).click()
        address = page.evaluate("location.hash")
        assert chosen(open_page(text, address)) == ["t"] == chosen(page)
        source(page, 2).click()
        assert chosen(open_page(text, page.evaluate("location.hash"))) == ["sleep"]

    def test_a_changed_address_is_followed(self, open_page):
        page = open_page(make_contributions().to_html())
        page.evaluate("location.hash = '#t=1&l=token'")
        page.wait_for_function("document.querySelector('.token.chosen').textContent === 'Le'")
        assert page.get_by_role("button", name="pieces").get_attribute("aria-pressed") == "true"

    @pytest.mark.parametrize("address", ["#t=99", "#t=-1&x=0&l=letters", "#s=5", "#t=<script>", "#%E0%A4%A"])
    def test_an_address_of_nothing_begins_as_usual(self, open_page, address):
        text = make_contributions().to_html()
        assert chosen(open_page(text, address)) == chosen(open_page(text))


class TestMarks:
    def test_other_tokens_than_the_written_ones(self, open_page):
        ids = torch.arange(6) + 100
        ids[2] = 7
        c = make_contributions(predicted_ids=ids, predicted_tokens=(*FRENCH[:2], "▁man", *FRENCH[3:]))
        page = open_page(c.to_html())
        pieces(page)
        assert page.locator(".token.other").all_inner_texts() == ["dor"]
        target(page, 2).click()
        assert page.locator(".lead").inner_text() == "man (explained; written is dor) was made from"

    def test_contrasts_name_both_words(self, open_page):
        c = dataclasses.replace(
            make_contributions()[1:2],
            predicted_tokens=("▁chat vs ▁chien",),
            predicted_ids=torch.tensor([[101, 7]]),
            predict="contrastive",
        )
        page = open_page(c.to_html())
        assert page.locator(".lead").inner_text() == "Why chat and not chien: what speaks for the first"
        assert page.locator(".token.other").count() == 0

    def test_contrasted_words_are_named_whole(self, open_page):
        c = dataclasses.replace(
            make_contributions()[1:2],
            predicted_tokens=("▁chat vs ▁chien",),
            predicted_ids=torch.tensor([[101, 7]]),
            predict="contrastive",
            contrasted=(("chaton", "chien", "“chat” decides"),),
        )
        page = open_page(c.to_html())
        assert page.locator(".lead").inner_text() == "Why chaton and not chien: what speaks for the first"
        assert page.locator(".compared").inner_text() == "“chat” decides."
        assert page.locator(".token.other").count() == 0

    def test_what_is_usual(self, open_page):
        usual = Calibration((0.9,), (0.05,), 20, model="m", weights="w", sources="s", kept=1.0)
        page = open_page(make_contributions().to_html(calibration=usual))
        assert page.locator("polygon.usual").count() == 1
        assert page.locator("circle.unusual").count() >= 1
        assert "± 0.05 as usual" in page.locator(".telling").inner_text()

    def test_parts_of_a_prompt(self, open_page):
        long, short = torch.rand(6, 40) / 80, torch.rand(6, 2) / 8
        spans = {
            "examples": Span([f"▁e{i}" for i in range(40)], long),
            "instruction": Span(("▁Trans", "late"), short),
        }
        c = make_contributions(spans=spans, start=long.sum(1) + short.sum(1))
        page = open_page(c.to_html())
        legend = page.locator(".legend").inner_text()
        assert "examples" in legend and "instruction" in legend and "start" not in legend
        assert page.get_by_text("Translate").is_visible() and not page.get_by_text("e39").is_visible()
        page.locator("summary", has_text="examples").click()
        assert page.get_by_text("e39").is_visible()

    def test_sounds(self, open_page):
        times = tuple(f"{i / 50:.2f}s" for i in range(150))
        c = make_contributions(times, source_words=tuple(i // 50 for i in range(150)))
        page = open_page(c.to_html())
        assert page.locator("[aria-label=Source] .token").all_inner_texts() == ["0–1s", "1–2s", "2–3s"]
        pieces(page)
        source(page, 140).click()
        assert page.locator(".lead").inner_text() == "2.80s went to"


class TestPairs:
    def test_the_same_target_side_by_side(self, open_page):
        first, second = make_contributions(), make_contributions(seed=1, prefix="reference")
        page = open_page(first.compare(second).to_html())
        page.locator(".result").first.locator("[role=listbox]").nth(1).locator(".token").nth(1).click()
        assert chosen(page) == ["chat", "chat"]
        tops = [box.bounding_box()["y"] for box in page.locator(".result .facts").all()]
        assert tops[0] == tops[1]
        assert page.locator(".differences .chip").count() > 0
        assert page.locator("canvas").count() == 3

    def test_two_translations(self, open_page):
        other = make_contributions(ENGLISH, ("▁Un", "▁chat", "▁dor", "t", "</s>"), seed=1)
        text = make_contributions().compare(other).to_html()
        page = open_page(text)
        page.locator(".result").nth(0).locator("[role=listbox]").nth(1).locator(".token").nth(2).click()
        page.locator(".result").nth(1).locator("[role=listbox]").nth(1).locator(".token").nth(0).click()
        assert chosen(page) == ["dort", "Un"]
        assert chosen(open_page(text, page.evaluate("location.hash"))) == ["dort", "Un"]
        assert page.locator(".differences").count() == 0


class TestScripts:
    def test_right_to_left(self, open_page):
        arabic = ("▁كيف", "▁حال", "ك", "▁اليوم", "</s>")
        page = open_page(make_contributions(("▁How", "▁are", "▁you", "</s>"), arabic).to_html())
        assert page.locator("[aria-label=Translation]").get_attribute("dir") == "rtl"
        assert page.locator("[aria-label=Source]").get_attribute("dir") == "ltr"
        assert page.locator("[aria-label=Translation] .special").get_attribute("dir") == "ltr"
        target(page, 0).click()
        page.keyboard.press("ArrowLeft")  # where the text goes on
        assert chosen(page) == ["حالك"]

    def test_chinese_has_no_spaces(self, open_page):
        page = open_page(make_contributions(("▁我们在", "看", "书", "。", "</s>")).to_html())
        assert page.locator("[aria-label=Source]").inner_text() == "我们在看书。 </s>"


@pytest.mark.parametrize("width", [360, 1100])
@pytest.mark.parametrize("length", [5, 80])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_fits_the_window(open_page, width, length, scheme):
    tokens = ["▁" + "Donaudampfschifffahrt" * 4, *[f"▁word{i}" for i in range(length - 2)], "</s>"]
    c = make_contributions(tokens, tokens, model="a/" + "long" * 30)
    page = open_page(c.to_html(), viewport={"width": width, "height": 640}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    box = page.locator("canvas").bounding_box()
    assert box["width"] <= width and box["height"] <= 640
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(253, 253, 252)"
    assert dark == (scheme == "dark")
