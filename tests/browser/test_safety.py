"""What stands in sentences never runs, and the page's policy lets nothing else run either."""

from example_contributions import make_contributions

from hf_lrp.results.collection import ContributionsList
from hf_lrp.results.used_method import UsedMethod

HOSTILE = (
    "<script>window.ran=1</script>",
    "</script><script>window.ran=1</script>",
    "<img/src=x/onerror=window.ran=1>",
    "<!--<script>",
)


def test_scripts_in_sentences_are_texts(open_page):
    c = make_contributions(
        HOSTILE, HOSTILE, model=HOSTILE[2], method=UsedMethod(HOSTILE[2], {"rule": HOSTILE[2]}), notes=HOSTILE
    )
    for text in (c.to_html(), c.compare(c).to_html(), ContributionsList([c, c]).to_html()):
        page = open_page(text, "#s=1")
        assert page.evaluate("window.ran") is None
        assert page.locator("[aria-label=Source] .token").first.inner_text() == HOSTILE[0]
        assert page.locator("img").count() == 0


def test_the_policy_blocks_other_scripts_and_styles(open_page):
    text = make_contributions().to_html()
    more = "<script>window.ran=1</script><p id='p' style='color:red' onclick='window.ran=2'>x</p></body>"
    page = open_page(text.replace("</body>", more), allow_errors=True)
    page.locator("#p").click()
    assert page.evaluate("window.ran") is None
    assert page.evaluate("getComputedStyle(document.querySelector('#p')).color") != "rgb(255, 0, 0)"
    assert page.locator(".token.chosen").count() == 1  # the page itself works


def test_notebooks_hold_several_pages(open_page):
    fragment = make_contributions()._repr_html_()
    page = open_page(f"<!DOCTYPE html><body>{fragment}{fragment}</body>")
    first, second = (page.frame_locator("iframe").nth(i) for i in (0, 1))
    first.locator("[aria-label=Translation] .token").nth(0).click()
    second.locator("[aria-label=Translation] .token").nth(1).click()
    assert first.locator(".token.chosen").inner_text() == "Le"
    assert second.locator(".token.chosen").inner_text() == "chat"
    assert page.evaluate("location.hash") == ""


def test_a_frame_grows_with_its_page_and_hears_nothing_else(open_page):
    fragment = make_contributions()._repr_html_()
    page = open_page(f"<!DOCTYPE html><body>{fragment}{fragment}</body>", viewport={"width": 500, "height": 600})
    frames = page.locator("iframe").element_handles()
    for frame in frames:
        frame.evaluate("frame => frame.style.height = '80px'")
        inside = frame.content_frame()
        inside.locator(".token").first.click()  # which it tells
        inside.wait_for_function("document.documentElement.scrollHeight <= innerHeight")
    assert abs(frames[0].bounding_box()["height"] - frames[1].bounding_box()["height"]) < 30
    page.evaluate("postMessage({ hfLrp: { height: 5000 } }, '*')")  # not from a frame
    page.wait_for_timeout(100)
    assert max(frame.bounding_box()["height"] for frame in frames) < 3000
