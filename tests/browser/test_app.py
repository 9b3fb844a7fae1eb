"""The app in a browser: sentences, words, prefixes, two models, downloads, errors, and input that would act."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_app import running
from tiny_checkpoint import save_checkpoint

from hf_lrp.app.events import Events
from hf_lrp.app.examples import SENTENCES
from hf_lrp.app.models import EMBEDDED, Models
from hf_lrp.app.questions import Limits

WAIT = 60_000  # milliseconds, where the machine is busy


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("gradio", reason="the app needs gradio: pip install gradio")
    folder = tmp_path_factory.mktemp("app")
    events = Events(Models([None, str(save_checkpoint(folder / "cats-zh-fr"))]), Limits(tokens=60))
    with running(events, folder) as where:
        yield where


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The app, loaded; at the end, no error may have been reported, and nothing asked for elsewhere."""
    context = browser.new_context(viewport={"width": 1100, "height": 1400}, accept_downloads=True)
    context.set_default_timeout(WAIT)
    page, problems = context.new_page(), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: message.type == "error" and problems.append(message.text))
    own = (address, "data:", "about:", "blob:")
    page.on("request", lambda request: request.url.startswith(own) or problems.append(request.url))
    page.goto(address)
    page.locator("#explain").wait_for()
    yield page
    context.close()
    assert not problems


def explain(page: Any, source: str) -> Any:
    """Write a source, explain it, and return the frame of the result."""
    page.locator("#source textarea").fill(source)
    return answered(page, lambda: page.locator("#source textarea").press("Enter"))


def answered(page: Any, act: Any) -> Any:
    """Do something and wait for a new answer; returns its frame."""
    page.evaluate("document.querySelector('#result iframe, #result .message')?.setAttribute('data-old', '')")
    act()
    page.locator("#result iframe:not([data-old]), #result .message:not([data-old])").wait_for()
    return page.frame_locator("#result iframe.contributions")


def written(page: Any) -> str:
    return page.locator("#target textarea").input_value()


def open_more(page: Any) -> None:
    page.get_by_role("button", name=re.compile("why this word")).click()


def compare_with(page: Any, label: str) -> None:
    open_more(page)
    page.get_by_label("Compare with").click()
    page.get_by_role("option", name=label).click()


def test_translate_and_choose_words_by_mouse_and_keyboard(page: Any) -> None:
    frame = explain(page, "Where is the station?")
    assert written(page) == "Où est la gare ?"
    assert frame.locator("[aria-label=Source]").inner_text().startswith("Where is the station?")
    words = frame.locator("[aria-label=Translation] .token")
    words.nth(0).focus()
    words.nth(0).press("Home")
    frame.locator(".token.chosen", has_text="Où").wait_for()
    words.nth(0).press("ArrowRight")
    frame.locator(".token.chosen", has_text="est").wait_for()
    page.locator("#result iframe").scroll_into_view_if_needed()
    frame.locator("[aria-label=Source] .token", has_text="station").click()
    frame.locator(".facts", has_text="station went to").wait_for()


def test_the_prefix_can_be_switched_and_edited(page: Any) -> None:
    explain(page, "Where is the station?")
    page.locator("#target textarea").fill("Où est la banque ?")
    frame = answered(page, lambda: page.locator("#target textarea").press("Enter"))
    assert page.get_by_label("the target below").is_checked() and written(page) == "Où est la banque ?"
    assert frame.locator("[aria-label=Target]").inner_text().startswith("Où est la banque ?")
    page.get_by_label("an unrelated sentence").check()
    page.locator("#unrelated textarea").fill("Il pleut.")
    frame = answered(page, lambda: page.locator("#explain").click())
    assert frame.locator("[aria-label='Unrelated prefix']").inner_text().startswith("Il pleut.")
    assert written(page) == "Il pleut."
    page.get_by_label("its own translation").check()
    answered(page, lambda: page.locator("#explain").click())
    assert written(page) == "Où est la gare ?" and not page.locator("#unrelated").is_visible()


def test_beside_the_result_before(page: Any) -> None:
    explain(page, "Where is the station?")
    compare_with(page, "the result before")
    page.locator("#target textarea").fill("Où est la banque ?")
    frame = answered(page, lambda: page.locator("#target textarea").press("Enter"))
    assert "gare" in frame.locator("[aria-label=Translation]").inner_text()
    assert "banque" in frame.locator("[aria-label=Target]").inner_text()


def test_two_models(page: Any) -> None:
    compare_with(page, "cats-zh-fr")
    frame = explain(page, "the cat")
    body = frame.locator("body")
    body.get_by_text(EMBEDDED).first.wait_for()
    body.get_by_text("cats-zh-fr").first.wait_for()


def test_why_this_word(page: Any) -> None:
    explain(page, "Where is the station?")
    open_more(page)
    page.locator("#word").get_by_role("textbox").fill("gare")
    page.locator("#other").get_by_role("textbox").fill("banque")
    frame = answered(page, lambda: page.locator("#other").get_by_role("textbox").press("Enter"))
    frame.get_by_text("Why gare and not").first.wait_for()


@pytest.mark.parametrize("kind", ["html", "png", "json"])
def test_downloads(page: Any, kind: str, tmp_path: Path) -> None:
    explain(page, "Where is the station?")
    link = page.locator(f"#result #{kind}")
    link.focus()
    with page.expect_download() as download:
        link.press("Enter")
    assert download.value.suggested_filename == f"contributions.{kind}"
    content = Path(download.value.path()).read_bytes()
    if kind == "json":
        assert json.loads(content)["model"] == EMBEDDED
    else:
        assert content.startswith(b"\x89PNG" if kind == "png" else b"<!DOCTYPE html>")


def test_errors_are_messages(page: Any) -> None:
    explain(page, "Where is the station?")
    explain(page, "the " * 70)
    assert page.get_by_role("alert").inner_text() == "The source has 70 tokens; this app takes up to 60. Shorten it."
    assert page.locator("#result iframe").count() == 0


@pytest.mark.parametrize(
    "acting", ["<script>{}</script>", "<img src=x onerror={}>", "</iframe><script>{}</script>", "${{{}}}"]
)
def test_scripts_in_the_input_do_nothing(page: Any, acting: str) -> None:
    attack = acting.format("parent.attacked=top.attacked=attacked=1")
    frame = explain(page, f"Hello {attack}")
    text = frame.locator("[aria-label=Source]").inner_text()
    assert "Hello" in text
    open_more(page)
    page.locator("#word").get_by_role("textbox").fill(attack)
    page.locator("#other").get_by_role("textbox").fill("b")
    answered(page, lambda: page.locator("#explain").click())
    assert attack in page.get_by_role("alert").inner_text()
    assert page.evaluate("window.attacked === undefined")
    assert page.locator("#result script, #result img, #result svg").count() == 0


def test_a_model_has_examples_in_its_language_to_press(page: Any) -> None:
    examples = page.locator("#examples button")
    frame = answered(page, lambda: examples.nth(1).click())
    assert frame.locator("[aria-label=Source]").inner_text().startswith(SENTENCES["en"][1])
    page.locator("#source textarea").fill(SENTENCES["en"][0])
    page.get_by_label("Model", exact=True).click()
    page.get_by_role("option", name="cats-zh-fr").click()
    examples.get_by_text(SENTENCES["zh"][2]).wait_for()
    assert page.locator("#source textarea").input_value() == SENTENCES["zh"][0]
    page.locator("#source textarea").fill("the cat")
    page.get_by_label("Model", exact=True).click()
    page.get_by_role("option", name=EMBEDDED).click()
    examples.get_by_text(SENTENCES["en"][2]).wait_for()
    assert page.locator("#source textarea").input_value() == "the cat"  # what a visitor wrote stays


@pytest.mark.parametrize("size", [(1400, 900), (390, 844)], ids=str)
def test_the_answer_is_in_view_and_whole(page: Any, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    frame = explain(page, "Where is the station?")
    page.wait_for_function(
        "() => { const box = document.querySelector('#result').getBoundingClientRect(); "
        "return box.top >= 0 && box.top < 0.3 * innerHeight; }"
    )
    frame.locator("canvas").first.wait_for()
    inside = page.locator("#result iframe").element_handle().content_frame()
    inside.wait_for_function("document.documentElement.scrollHeight <= innerHeight")  # it does not scroll in itself
    assert page.evaluate("document.documentElement.scrollWidth") == size[0]


def test_a_link_shows_what_its_sender_saw(page: Any, address: str) -> None:
    explain(page, "Where is the station?")
    page.locator("#target textarea").fill("Où est la banque ?")
    frame = answered(page, lambda: page.locator("#target textarea").press("Enter"))
    frame.locator("[aria-label=Target] .token", has_text="banque").click()
    page.wait_for_function("new URLSearchParams(location.hash.slice(1)).get('view')?.startsWith('t=4')")
    link = page.url
    assert link.startswith(f"{address}/#") and "prefix=reference" in link
    page.goto("about:blank")
    page.goto(link)
    seen = page.frame_locator("#result iframe.contributions")
    seen.locator(".token.chosen", has_text="banque").wait_for()
    assert written(page) == "Où est la banque ?" and page.get_by_label("the target below").is_checked()
    assert page.url == link


def test_a_busy_server_is_said_and_asked_again(browser: Any, address: str) -> None:
    page = browser.new_context().new_page()
    refused = []

    def refuse_twice(route: Any) -> None:
        refused.append(route.request.url)
        route.fulfill(status=503, json={"detail": "full"}) if len(refused) <= 2 else route.continue_()

    page.route("**/queue/join*", refuse_twice)
    page.goto(address)
    page.locator("#explain").click()
    page.locator("#busy", has_text="asked again in").wait_for(timeout=WAIT)
    page.locator("#result iframe").wait_for(timeout=WAIT)
    assert len(refused) == 3 and page.locator("#busy").count() == 0
    page.context.close()


class Slow(Events):
    """Answers long questions when it is told to."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def explain(self, model: str | None, beside: str | None, before: str | None, *fields: str | None) -> Any:
        if len(fields[0] or "") > 400:
            self.begun.set()
            assert self.go_on.wait(60)
        return super().explain(model, beside, before, *fields)


def test_a_short_question_does_not_wait_for_a_long_one(browser: Any, tmp_path: Path) -> None:
    events = Slow(Models([None]), Limits())
    with running(events, tmp_path) as address:
        first, second = (browser.new_context().new_page() for _ in range(2))
        for page in (first, second):
            page.goto(address)
            page.locator("#explain").wait_for(timeout=WAIT)
        first.locator("#source textarea").fill("the cat sleeps. " * 30)
        first.locator("#explain").click()
        assert events.begun.wait(60)
        second.locator("#explain").click()
        second.locator("#result iframe").wait_for(timeout=WAIT)
        assert first.locator("#result iframe, #result .message").count() == 0
        events.go_on.set()
        first.locator("#result iframe, #result .message").wait_for(timeout=WAIT)
        for page in (first, second):
            page.context.close()
