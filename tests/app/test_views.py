"""What is shown and downloaded."""

import html
import json
import re

import pytest
from example_contributions import ENGLISH, FRENCH, make_contributions

from hf_lrp import Comparison, ContributionsList
from hf_lrp.app.views import FILES, Recent, frame, links, make_file, message, results_of, side_by_side


def test_a_frame_holds_the_page_and_keeps_it_apart() -> None:
    contributions = make_contributions(("▁<script>alert(1)</script>", '▁"', "</s>"))
    found = re.fullmatch(r'<iframe [^<>]*sandbox="allow-scripts" srcdoc="([^"<>]*)"></iframe>', frame(contributions))
    assert found and html.unescape(found[1]) == contributions.to_html()


def test_messages_do_nothing() -> None:
    assert message("<b>\u202e&") == '<p class="message" role="alert">&lt;b&gt;\\u202e&amp;</p>'


def test_two_results_are_compared_as_far_as_they_can_be() -> None:
    first, second = make_contributions(), make_contributions(seed=1, model="other")
    by_token = side_by_side(first, second)
    assert isinstance(by_token, Comparison) and by_token.first is first and by_token.second is second
    by_word = side_by_side(first, make_contributions(("▁The", "▁c", "at", "▁sleeps", "</s>"), model="other"))
    assert isinstance(by_word, Comparison) and by_word.first.source_tokens == ("The", "cat", "sleeps", "</s>")
    apart = side_by_side(first, make_contributions(("en", *ENGLISH), model="other"))
    assert isinstance(apart, ContributionsList) and len(apart) == 2
    for view in (by_token, by_word, apart):
        assert len(results_of(view)) == 2 and results_of(view)[1].model == "other"
        assert "<iframe" in frame(view)


def test_files_are_those_that_links_lead_to() -> None:
    recent, view = Recent(), make_contributions()
    key = recent.put(view)
    names = re.findall(rf'href="download/{key}/([^"]*)" download', links(key))
    assert names == list(FILES)
    page, picture, numbers = (recent.file(key, name) for name in names)
    assert page.decode() == view.to_html()
    assert picture.startswith(b"\x89PNG") and recent.file(key, "contributions.png") is picture
    assert json.loads(numbers) == view.to_dict()
    both = json.loads(make_file(side_by_side(view, make_contributions(seed=1)), "contributions.json"))
    assert both == [view.to_dict(), make_contributions(seed=1).to_dict()]
    for name in ("../../secret", "contributions.txt", ""):
        with pytest.raises(ValueError, match="There is no file"):
            recent.file(key, name)


def test_only_the_latest_are_kept() -> None:
    recent = Recent(kept=2)
    keys = [recent.put(make_contributions(ENGLISH, FRENCH, seed=seed)) for seed in range(3)]
    assert len(set(keys)) == 3 and all(len(key) == 64 for key in keys)
    assert recent.get(keys[2]) == make_contributions(seed=2) and recent.get(keys[1]) == make_contributions(seed=1)
    with pytest.raises(ValueError, match="no longer kept"):
        recent.file(keys[0], "contributions.json")
