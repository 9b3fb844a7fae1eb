"""Word links on the page: from characters of the linked texts to the parts that the page shows."""

import pytest
from example_contributions import make_contributions
from page_reader import read_page

from hf_lrp.links.alignment import Alignment
from hf_lrp.links.heads import Head, LinkHeads
from hf_lrp.links.texts import Text
from hf_lrp.pages.page_links import part_links
from hf_lrp.results.collection import ContributionsList


def aligned(source, target, strengths):
    sides = (side if isinstance(side, Text) else Text.at_spaces(side) for side in (source, target))
    return Alignment(*sides, strengths, LinkHeads((Head(0, 0),)))


LINKS = aligned("The cat sleeps.", "Le chat dort.", {(0, 0): 0.5, (1, 1): 0.987654, (2, 2): 0.75})


def levels(links, **changes):
    return read_page(make_contributions(**changes).to_html(links=links))["entries"][0]["results"][0]["levels"]


def test_all_parts_of_linked_words_are_linked_at_both_levels():
    found = levels(LINKS)
    texts = {
        name: [[level["source"][i][0], level["target"][j][0], strength] for i, j, strength in level["links"]]
        for name, level in found.items()
    }
    once = [["The", "Le", 0.5], ["cat", "chat", 0.988]]
    assert texts["word"] == [*once, ["sleeps", "dort", 0.75], ["sleeps", ".", 0.75]]
    pieces = [part[0] for part in found["token"]["source"][2:4]]
    assert texts["token"] == once + [[a, b, 0.75] for a in pieces for b in ("dor", "t", ".")]


def test_without_links_nothing_is_said_of_them():
    assert {level["links"] for level in levels(None).values()} == {None}
    assert [level["links"] for level in levels(aligned("The cat sleeps", "Le chat dort", {})).values()] == [[], []]


def test_words_are_found_by_their_characters():
    parts = [["我们", False, False], ["昨天看", False, False], ["<unk>", False, True], ["</s>", True, True]]
    target = [["WE", True, False], ["re", True, False], ["ad", False, False]]
    text = Text("我们昨天看书", ((0, 2), (2, 4), (4, 5), (5, 6)))
    links = aligned(text, "we réad", {(0, 0): 0.9, (1, 1): 0.4, (2, 1): 0.8})
    assert part_links(links, parts, target) == [[0, 0, 0.9], [1, 1, 0.8], [1, 2, 0.8]]


def test_links_of_other_texts_are_refused():
    with pytest.raises(ValueError, match="links are of the source 'A house'.*align the texts"):
        levels(aligned("A house", "Le chat dort.", {}))
    with pytest.raises(ValueError, match="links are of the target"):
        levels(aligned("The cat sleeps.", "Une maison grise", {}))


def test_a_list_has_links_for_each_result(tmp_path):
    results = ContributionsList([make_contributions(), make_contributions(seed=1)])
    results.to_html(tmp_path / "page.html", links=[None, LINKS])
    entries = read_page((tmp_path / "page.html").read_text(encoding="utf-8"))["entries"]
    known = [entry["results"][0]["levels"]["word"]["links"] is not None for entry in entries]
    assert known == [False, True]
    with pytest.raises(ValueError, match="2 results, but links of 1"):
        results.to_html(links=LINKS)


def test_both_results_of_a_comparison_have_the_links():
    c = make_contributions()
    page = read_page(c.compare(make_contributions(seed=1)).to_html(links=LINKS))
    first, second = (result["levels"]["word"]["links"] for result in page["entries"][0]["results"])
    assert first == second and len(first) == 4
