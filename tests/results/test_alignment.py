"""Word alignment: links from contributions, files of links, and error rates."""

import math
from pathlib import Path

import pytest
import torch
from example_contributions import make_contributions

from hf_lrp import Contributions, explain
from hf_lrp.models.loading import load_checkpoint
from hf_lrp.models.words import group_at_spaces, lacks_spaces
from hf_lrp.results.alignment import alignment_error_rate, read_links, score_alignments, write_links

HAND_ALIGNED = Path(__file__).parent / "hand_aligned.tsv"


def contributions_of(source: list[list[float]], source_tokens: list[str], target_tokens: list[str]) -> Contributions:
    shares = torch.tensor(source)
    target = torch.zeros(len(shares), len(shares))
    return make_contributions(source_tokens, target_tokens, source=shares, target=target, predict="target")


# ---- links


def test_links_of_a_hand_computed_example():
    # `!` has the largest share at each step; relative to the column means .2, .3 and .5 it stands out at no step but
    # the third. </s> stands out at the second, and is no word.
    c = contributions_of(
        [[0.3, 0.1, 0.5, 0.1], [0.1, 0.2, 0.5, 0.2], [0.2, 0.0, 0.7, 0.1], [0.2, 0.1, 0.5, 0.2]],
        ["▁a", "▁b", "!", "</s>"],
        ["▁x", "▁y", "▁z", "</s>"],
    )
    # columns: a mean .2, b mean .1, ! mean .55 -> x: 1.5 1 .91; y: .5 2 .91; z: 1 0 1.27
    assert c.alignment() == {(0, 0), (1, 1), (1, 2)}  # `b!` is one word


def test_links_agree_with_a_slow_version():
    c = make_contributions(seed=3, predict="target")
    source, steps = c.source.tolist(), range(len(c.target_tokens))
    words = {"source": [0, 1, 2, 2, None], "target": [0, 1, 2, 2, 2, None]}
    links = set()
    for t in steps:
        best, best_value = None, -1.0
        for i, word in enumerate(words["source"]):
            mean = sum(source[u][i] / sum(source[u]) for u in steps) / len(steps)
            value = source[t][i] / sum(source[t]) / mean
            if word is not None and value > best_value:
                best, best_value = word, value
        if words["target"][t] is not None:
            links.add((best, words["target"][t]))
    assert c.alignment() == links


def test_a_source_token_without_any_share_is_not_linked():
    c = contributions_of([[0.0, 1.0], [0.0, 1.0]], ["▁a", "▁b"], ["▁x", "</s>"])
    assert c.alignment() == {(1, 0)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"predicted_ids": torch.arange(6)}, "predict='target'"),
        ({"predicted_ids": torch.ones(6, 2, dtype=torch.long)}, "predict='target'"),
        ({"source_tokens": tuple("01234")}, "give explain\\(\\) a tokenizer"),
    ],
)
def test_contributions_that_say_nothing_of_the_target_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make_contributions(**changes).alignment()


def test_merged_words_are_numbered_as_merged():
    c = contributions_of(
        [[0.3, 0.1, 0.5, 0.1], [0.1, 0.2, 0.5, 0.2], [0.2, 0.0, 0.7, 0.1], [0.2, 0.1, 0.5, 0.2]],
        ["▁a", "▁b", "!", "</s>"],
        ["▁x", "▁y", "▁z", "</s>"],
    )
    assert c.merge_subwords().source_tokens == ("a", "b", "!", "</s>")
    assert c.merge_subwords().alignment() == {(0, 0), (1, 1), (2, 2)}  # `!` is a word of its own


def test_text_without_spaces_is_aligned_by_pieces_and_says_so():
    tokens = ["▁我们", "昨天", "看", "GP", "U", "。", "</s>"]
    target = ["▁x", "▁y", "▁z", "▁v", "</s>"]
    shares = [[0.9 if i == j else 0.02 for i in range(7)] for j in (0, 1, 2, 4, 5)]
    c = contributions_of(shares, tokens, target)
    with pytest.warns(UserWarning, match="the source has no spaces between its words, so alignment"):
        assert c.alignment() == {(0, 0), (1, 1), (2, 2), (3, 3)}  # `GP` and `U` are one word
    assert c.merge_subwords().alignment() == {(0, 0), (1, 1), (2, 2), (3, 3)}


@pytest.mark.parametrize(
    "tokens", [["▁我们", "▁昨", "天", "▁看", "书", "。"], ["▁a", "▁b", "c"], ["▁我们"], ["▁나는", "▁학교", "에"]]
)
def test_text_with_spaces_is_not_cut_into_pieces(tokens):
    assert not lacks_spaces(tokens, [False] * len(tokens))


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["▁The", "▁U", ".", "S", ".", "▁army", "</s>"], "The U.S. army"),
        (["▁我们", "▁在", "看", "▁", "。", "</s>"], "我们 在看 。"),
        (["eng_Latn", "▁Good", "▁mor", "ning", "</s>"], "Good morning"),
        (["__en__", "▁", "<unk>", "ing", "▁<", "b", ">", "</s>"], "?ing <b>"),
        (["<s>", "The", "Ġend", ".", "</s>"], "The end."),
        (["a</w>", "lo", "ng</w>", "day</w>", "</s>"], "a long day"),
        (["lo@@", "ng", "day"], "long day"),
        (["[CLS]", "hel", "##lo", "you", "[SEP]"], "hello you"),
    ],
)
def test_words_are_what_spaces_part(tokens, text):
    c = contributions_of([[1 / len(tokens)] * len(tokens)] * 2, tokens, ["▁x", "</s>"])
    special = [token in ("</s>", "<s>", "eng_Latn", "__en__", "[CLS]", "[SEP]") for token in tokens]
    words = group_at_spaces(tokens, special)
    assert max(word for word in words if word is not None) + 1 == len(text.split())
    assert [word is None for word in words] == special
    assert c.alignment() == {(0, 0)}  # all are equal: the first of the text, never a special token


# ---- files


def test_pharaoh_links_are_read_and_written(tmp_path):
    path = tmp_path / "gold.txt"
    path.write_text("0-0 1?2 2p1\n\n3-1\n")
    gold = read_links(path)
    assert gold.sure == [{(0, 0)}, set(), {(3, 1)}]
    assert gold.possible == [{(0, 0), (1, 2), (2, 1)}, set(), {(3, 1)}]
    write_links(path, gold.possible)
    assert path.read_text() == "0-0 1-2 2-1\n\n3-1\n"


def test_words_may_count_from_one(tmp_path):
    path = tmp_path / "gold.txt"
    path.write_text("1-1 2-3\n")
    assert read_links(path, first=1).sure == [{(0, 0), (1, 2)}]
    path.write_text("1-1\n1-0\n")
    with pytest.raises(ValueError, match="line 2: '1-0', but words are said to count from 1"):
        read_links(path, first=1)


@pytest.mark.parametrize("link", ["1", "a-b", "1:2", "1-2-3", "-1-2", "1-"])
def test_a_damaged_link_is_named_with_its_line(tmp_path, link):
    path = tmp_path / "gold.txt"
    path.write_text(f"0-0\n0-0 {link}\n")
    with pytest.raises(ValueError, match=f"line 2: '{link}' is not a link"):
        read_links(path)


# ---- error rates


def test_scores_of_a_hand_computed_example():
    predicted = [{(0, 0), (1, 1), (2, 1)}, {(0, 0)}]
    sure = [{(0, 0), (2, 2)}, {(0, 0), (1, 1)}]
    possible = [{(1, 1)}, {(0, 0), (1, 1)}]  # sure links count as possible, given or not
    # A = 4, S = 4, A and S = 1 + 1, A and P = 2 + 1
    scores = score_alignments(predicted, sure, possible)
    assert scores.error_rate == pytest.approx(1 - (2 + 3) / 8)
    assert scores.precision == pytest.approx(3 / 4)
    assert scores.recall == pytest.approx(2 / 4)
    assert alignment_error_rate(predicted, sure) == pytest.approx(1 - (2 + 2) / 8)


def test_error_rate_is_zero_between_sure_and_possible_links():
    sure, possible = [{(0, 0)}], [{(0, 0), (1, 0)}]
    assert alignment_error_rate(sure, sure, possible) == alignment_error_rate(possible, sure, possible) == 0
    assert alignment_error_rate([{(5, 5)}], sure, possible) == 1


def test_scores_without_predictions():
    scores = score_alignments([set()], [{(0, 0)}])
    assert scores.error_rate == 1 and scores.recall == 0 and math.isnan(scores.precision)
    with pytest.raises(ValueError, match="nothing to score"):
        score_alignments([set()], [set()])


def test_numbers_of_sentences_must_agree():
    with pytest.raises(ValueError, match="2 predicted, 1 sure, 1 possible"):
        score_alignments([set(), set()], [{(0, 0)}])


# ---- a real model


def diagonal(source: str, target: str) -> set[tuple[int, int]]:
    """Links along the diagonal, one per target word."""
    last_source, last_target = len(source.split()) - 1, len(target.split()) - 1
    return {(round(t * last_source / max(last_target, 1)), t) for t in range(last_target + 1)}


@pytest.mark.parametrize(
    ("number", "limit"), [(4, 0.2), pytest.param(24, 0.1, marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_the_embedded_model_aligns_better_than_the_diagonal(tmp_path, number, limit):
    # The normalisation was chosen on the first 24 sentences; these are from the other 24.
    rows = [line.split("\t") for line in HAND_ALIGNED.read_text().splitlines()][24 : 24 + number]
    (tmp_path / "gold.txt").write_text("".join(f"{row[2]}\n" for row in rows))
    gold = read_links(tmp_path / "gold.txt")
    model, tokenizer = load_checkpoint(None)
    results = explain(model, tokenizer, [row[0] for row in rows], [row[1] for row in rows], predict="target")
    predicted = [result.alignment() for result in results]
    for (source, target, _), links in zip(rows, predicted, strict=True):
        assert {link[1] for link in links} == set(range(len(target.split())))
        assert {link[0] for link in links} <= set(range(len(source.split())))
    baseline = alignment_error_rate([diagonal(row[0], row[1]) for row in rows], *gold)
    assert alignment_error_rate(predicted, *gold) < limit < baseline
