"""A page of many sentences in a browser."""

import pytest
from example_contributions import make_contributions
from example_run import write_run

from hf_lrp.corpus.report import render_report
from hf_lrp.corpus.run_comparison import compare, measure
from hf_lrp.pages.page import render_page
from hf_lrp.results.collection import ContributionsList

ANIMALS = ("cat", "dog", "bird", "horse", "fish")


@pytest.fixture(scope="module")
def results() -> ContributionsList:
    return ContributionsList(
        make_contributions(("▁The", f"▁{ANIMALS[n % 5]}", "▁sleep", "s", "</s>"), ("▁Phrase", f"▁{n}", "</s>"), seed=n)
        for n in range(1000)
    )


@pytest.fixture(scope="module")
def text(results) -> str:
    return results.to_html()


def numbers(page) -> list[int]:
    return page.evaluate("[...document.querySelectorAll('.row .number')].map(e => Number(e.textContent) - 1)")


def test_the_lowest_source_comes_first(open_page, results, text):
    page = open_page(text)
    means = [c.mean()["source_total"] for c in results]
    assert numbers(page) == sorted(range(1000), key=lambda n: (round(means[n], 5), n))
    page.get_by_label("Order").select_option("as given")
    assert numbers(page) == list(range(1000))
    page.get_by_label("Order").select_option("highest R(source) first")
    assert numbers(page)[0] == max(range(1000), key=lambda n: round(means[n], 5))


def test_search(open_page, text):
    page = open_page(text)
    page.get_by_label("Search sentences").fill("HORSE")
    assert sorted(numbers(page)) == list(range(3, 1000, 5))
    assert page.locator(".count").inner_text() == "200 of 1000"
    page.get_by_label("Search sentences").fill("phrase 77")
    assert sorted(numbers(page)) == [77, *range(770, 780)]
    page.get_by_label("Search sentences").fill("nothing like it")
    assert numbers(page) == []


def test_one_sentence_is_open_at_a_time(open_page, text):
    page = open_page(text)
    assert page.locator(".entry").count() == 0  # only what is open is drawn
    page.locator(".row").nth(0).click()
    assert page.locator(".entry").count() == 1
    page.locator(".row").nth(2).click()
    assert page.locator(".entry").count() == 1
    assert page.locator(".row").nth(2).get_attribute("aria-expanded") == "true"
    assert page.locator("canvas").count() == 1
    page.locator(".row").nth(2).click()
    assert page.locator(".entry").count() == 0


def test_a_link_opens_a_sentence_and_a_word(open_page, text):
    page = open_page(text)
    page.get_by_label("Search sentences").fill("phrase 512")
    page.locator(".row").click()
    page.locator("[aria-label=Translation] .token").nth(1).click()
    again = open_page(text, page.evaluate("location.hash"))
    assert again.locator(".token.chosen").inner_text() == "512"
    assert again.locator(".row[aria-expanded=true]").is_visible()
    box = again.locator(".row[aria-expanded=true]").bounding_box()
    assert 0 <= box["y"] < 800


def test_the_keyboard_opens_sentences(open_page, text):
    page = open_page(text)
    page.locator(".row").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator(".row").nth(1).get_attribute("aria-expanded") == "true"


def test_a_phone(open_page, text):
    page = open_page(text, viewport={"width": 360, "height": 640}, has_touch=True, is_mobile=True)
    page.locator(".row").first.tap()
    page.locator("[aria-label=Translation] .token").first.tap()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_page_of_nothing(open_page):
    assert open_page(render_page([])).locator(".entry, .row").count() == 0


def test_reports_open_their_examples(open_page, tmp_path):
    runs = [measure(write_run(tmp_path / name, seed=seed), name) for name, seed in (("a", 0), ("b", 1))]
    page = open_page(render_report(compare(runs), []))
    page.locator(".row").nth(1).click()
    assert page.locator(".entry .token.chosen").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= 1100
