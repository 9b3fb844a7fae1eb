"""Grouping of sub-word pieces into words, and their labels."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_lrp.models.words import (
    Marking,
    detect_marking,
    display_tokens,
    group_words,
    join_predicted,
    join_words,
    plain_tokens,
    running_text,
)

SPECIAL = {"</s>", "<s>", "<unk>", "<pad>", "[CLS]", "[SEP]", "__fr__"}


def words_of(text: str) -> list[str]:
    """Group the pieces of a sentence, separated by blanks, and join them again with `|` between words."""
    tokens = text.split(" ")
    words = group_words(tokens, [token in SPECIAL for token in tokens])
    return list(join_words(tokens, words, detect_marking(tokens)))


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ("▁The ▁un believ able ▁cat . </s>", ["The", "unbelievable", "cat", ".", "</s>"]),
        ("The Ġun believ able Ġcat .", ["The", "unbelievable", "cat", "."]),
        ("the un ##believ ##able cat .", ["the", "unbelievable", "cat", "."]),
        ("the un@@ believ@@ able cat .", ["the", "unbelievable", "cat", "."]),
        ("the</w> un believ able</w> cat</w> .</w>", ["the", "unbelievable", "cat", "."]),
    ],
)
def test_every_marking_gives_the_same_words(pieces, expected):
    assert words_of(pieces) == expected


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ("▁I ▁don ' t ▁know", ["I", "don't", "know"]),
        ("▁I ▁don \u2019 t", ["I", "don\u2019t"]),
        ("▁un ▁porte - mon naie ,", ["un", "porte-monnaie", ","]),
        ("▁l ' homme", ["l'homme"]),
        ("▁3 . 5 ▁% .", ["3.5", "%", "."]),
        ("▁fin . ▁5", ["fin", ".", "5"]),
        ("▁( yes ) ...", ["(", "yes", ")", "..."]),
        ("▁« ▁oui ▁» ▁- ▁non", ["«", "oui", "»", "-", "non"]),
        ("▁كيف ▁حال ك ؟", ["كيف", "حالك", "؟"]),
    ],
)
def test_apostrophes_and_hyphens_stay_and_punctuation_stands_alone(pieces, expected):
    assert words_of(pieces) == expected


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ("▁我们 昨天 看书 。 </s>", ["我们", "昨天", "看书", "。", "</s>"]),
        ("▁ 我们 GP U 好", ["我们", "GPU", "好"]),
        ("▁きょう は カメラ ー", ["きょう", "は", "カメラ", "ー"]),
        ("▁ฉัน รัก ▁you", ["ฉัน", "รัก", "you"]),
        ("▁나는 ▁학교 에", ["나는", "학교에"]),
    ],
)
def test_scripts_without_spaces_give_one_word_per_piece(pieces, expected):
    assert words_of(pieces) == expected


def test_special_tokens_are_words_of_their_own():
    assert words_of("__fr__ ▁Bon jour </s>") == ["__fr__", "Bonjour", "</s>"]
    assert group_words(["a", "<unk>", "▁b"], [False, True, False]) == (0, 1, 2)
    assert group_words(["▁a", "<unk>", "b"], [False, True, False]) == (0, 1, 2)


def test_a_lone_marker_belongs_to_the_word_after_it():
    assert group_words(["▁", "Hello", "▁", "</s>"], [False, False, False, True]) == (0, 0, 1, 2)
    assert words_of("▁a ▁ . ▁ ▁b") == ["a", ".", "▁", "b"]


@pytest.mark.parametrize("tokens", [["h", "e", "l", "l", "o"], ["17", "4", "0"]])
def test_without_markers_each_token_is_a_word(tokens):
    assert group_words(tokens, [False] * len(tokens)) == tuple(range(len(tokens)))


def test_no_tokens_and_a_wrong_number_of_flags():
    assert group_words([], []) == ()
    with pytest.raises(ValueError, match="2 tokens but 1 flags"):
        group_words(["a", "b"], [False])


pieces = st.lists(
    st.tuples(
        st.sampled_from(["▁", "", "Ġ", "##"]),
        st.text(min_size=0, max_size=4),
        st.sampled_from(["", "@@", "</w>"]),
    ),
    min_size=1,
)


@given(pieces, st.randoms())
def test_words_start_at_zero_and_grow_by_at_most_one(parts, random):
    tokens = ["".join(part) for part in parts]
    words = group_words(tokens, [random.random() < 0.2 for _ in tokens])
    assert words[0] == 0
    assert all(b - a in (0, 1) for a, b in pairwise(words))
    assert len(join_words(tokens, words, detect_marking(tokens))) == words[-1] + 1
    assert len(display_tokens(tokens)) == len(tokens)


@pytest.mark.parametrize(
    ("predicted", "expected"),
    [
        ("▁gar age ▁est", ("garage", "est")),
        ("▁gar es ▁est", ("gares", "est")),
        ("▁gare que ▁a", ("gare / que", "a")),
        ("▁gar ▁est </s>", ("gar est", "</s>")),
    ],
)
def test_predictions_of_a_word_are_glued_only_where_they_follow_each_other(predicted, expected):
    written = ["▁gar", "age", "▁est"]
    assert join_predicted(predicted.split(), written, (0, 0, 1), Marking.SENTENCEPIECE) == expected


def test_labels_show_where_words_start():
    assert display_tokens(["▁Hel", "lo", "<0x0A>", "</s>"]) == ("▁Hel", "lo", "<0x0A>", "</s>")
    assert display_tokens(["Hel", "lo", "Ġcaf", "Ã©", "ĠâĢĻ", "ł"]) == (
        "Hel",
        "lo",
        "▁caf",
        "é",
        "▁\u2019",
        "ł",
    )
    assert display_tokens(["Hel", "lo</w>"]) == ("Hel", "lo▁")
    assert display_tokens(["Hel@@", "lo"]) == ("Hel@@", "lo")
    assert display_tokens(["a\nb", "", "\t"]) == ("a\\nb", "∅", "\\t")


def test_bytes_of_a_word_are_decoded_together():
    tokens = ["ĠE", "Ã", "©"]
    assert join_words(tokens, (0, 0, 0), Marking.BYTE_LEVEL) == ("Eé",)


@pytest.mark.parametrize(
    ("tokens", "labels"),
    [
        (["▁The", "▁un", "believ", "▁", "</s>"], ["The", "un", "believ", "␣", "</s>"]),
        (["The", "Ġcat", "Ã©", "Ġ"], ["The", "cat", "é", "␣"]),
        (["un", "##lock"], ["un", "lock"]),
        (["un@@", "lock"], ["un", "lock"]),
        (["un", "lock</w>"], ["un", "lock"]),
        (["▁a", "▁bank vs ▁sh"], ["a", "bank vs sh"]),
        (["▁a", "\u202e", "", "<0x0A>"], ["a", "\\u202e", "∅", "<0x0A>"]),
    ],
)
def test_pictures_show_text_without_marks(tokens, labels):
    assert plain_tokens(tokens) == tuple(labels)


def read(tokens, *others) -> str:
    return "".join((" " if spaced else "") + text for text, spaced in running_text(tokens, others)).strip()


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (("▁Hel", "lo", ",", "▁you", "</s>"), "Hello, you </s>"),
        (("Hel", "lo</w>", "you</w>"), "Hello you"),
        (("Hel@@", "lo", "you"), "Hello you"),
        (("Hel", "##lo", "you"), "Hello you"),
        (("ĠGr", "Ã¼", "ÃŁe", "Ġan"), "Grüße an"),
        (("▁我们在", "看", "书", "。"), "我们在看书。"),
        (("Hello", ",", "you", "!"), "Hello, you!"),  # words, which have no markers
        (("我们", "看", "书"), "我们看书"),
        (("<s>", "w", "o", "r", "d", "</s>"), "<s> word </s>"),
        (("__en__", "▁Hello"), "__en__ Hello"),
    ],
)
def test_tokens_read_as_running_text(tokens, text):
    assert read(tokens) == text


def test_other_tokens_tell_the_markers():
    assert read(("lo",), "▁Hel") == "lo" and running_text(("▁",), ("▁a",)) == (("", True),)
