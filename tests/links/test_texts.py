"""Words and pieces in texts: which characters a token stands for, and which share of it is a word's."""

import pytest
import tiny_tokenizer
import torch
from tiny_models import tiny_model

from hf_lrp.links.texts import Text, membership, piece_spans, read_texts, words_of_pieces
from hf_lrp.models.loading import load
from hf_lrp.models.vocabulary import Vocabulary


class Pieces:
    """A vocabulary whose ids are the places of these tokens; `<unk>` and `</s>` are special."""

    def __init__(self, *tokens: str) -> None:
        self._tokens, self.tokenizer = tokens, self
        self.unk_token_id = tokens.index("<unk>") if "<unk>" in tokens else None

    def tokens(self, ids: torch.Tensor, side: str) -> tuple[str, ...]:
        return tuple(self._tokens[i] for i in ids.tolist())

    def is_special(self, ids: torch.Tensor) -> list[bool]:
        return [self._tokens[i] in ("<unk>", "</s>") for i in ids.tolist()]

    def spans(self, text: str) -> list[str | None]:
        found = piece_spans(text, torch.arange(len(self._tokens)), "source", self)  # type: ignore[arg-type]
        return [None if span is None else text[span[0] : span[1]] for span in found]


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("A red car.", ["▁A", "▁re", "d", "▁car", ".", "</s>"], ["A", "re", "d", "car", ".", None]),
        ("我们昨天看书。", ["▁我们", "昨天", "看", "书", "。"], ["我们", "昨天", "看", "书", "。"]),
        ("see ＡＢ!", ["▁see", "▁ab", "!"], ["see", "ＡＢ", "!"]),  # folded by the tokenizer
        ("Ärger naïve", ["▁arger", "▁na", "ive"], ["Ärger", "na", "ïve"]),
        ("the ☃ sees", ["▁the", "▁", "<unk>", "▁sees"], ["the", "☃", "☃", "sees"]),
        ("a ☃☂ b", ["▁a", "<unk>", "▁b", "</s>"], ["a", "☃☂", "b", None]),
        ("the end", ["the</w>", "e", "nd</w>"], ["the", "e", "nd"]),
        ("the end", ["the", "en@@", "d"], ["the", "en", "d"]),
        ("it's “so”", ["▁it", "'", "s", '▁"', "so", '"'], ["it", "'", "s", "“", "so", "”"]),  # quotes were exchanged
    ],
)
def test_pieces_are_found_in_the_text(text: str, tokens: list[str], expected: list[str | None]) -> None:
    assert Pieces(*tokens).spans(text) == expected


def test_real_pieces_are_those_of_the_text() -> None:
    model, tokenizer = load()
    text = "She  bought (yesterday) a red car, didn't she?"
    vocabulary = Vocabulary(model, tokenizer)
    ids = torch.tensor(vocabulary.encode([text], "source")[0])
    spans = piece_spans(text, ids, "source", vocabulary)
    shown = [text[slice(*span)] for span in spans[:-1] if span is not None]
    assert shown == "She bought ( ( y esterday ) a red car , didn ' t she ?".split()
    assert spans[-1] is None


def test_a_piece_across_words_is_shared_out_by_its_characters() -> None:
    text = Text("我们昨天看", ((0, 2), (2, 4), (4, 5)))
    shares = membership(text, [(0, 1), (1, 4), (4, 5), None])
    expected = [[1, 1 / 3, 0, 0], [0, 2 / 3, 0, 0], [0, 0, 1, 0]]
    torch.testing.assert_close(shares, torch.tensor(expected))


def test_spaces_belong_to_no_word() -> None:
    text = Text.at_spaces("a  b")
    assert text.spans == ((0, 1), (3, 4)) and text.words == ("a", "b")
    assert membership(text, [(0, 4)])[:, 0].tolist() == [0.5, 0.5]


def test_lists_of_words_get_spaces() -> None:
    assert Text.of_words(["我们", "看", "价格"]).text == "我们 看 价格"
    assert Text.of_words(["a", "cat", "."]).words == ("a", "cat", ".")
    given = read_texts([["a", "cat"], "a cat", Text("a cat", ((2, 5),))], "source")
    assert [text.words for text in given if isinstance(text, Text)] == [("a", "cat"), ("a", "cat"), ("cat",)]


def test_a_text_without_spaces_gets_its_words_from_the_tokenizer() -> None:
    assert read_texts(["我们昨天看书。"], "source") == ["我们昨天看书。"]
    assert isinstance(read_texts(["我们 昨天 看 书 。"], "source")[0], Text)
    spans = [None, (0, 2), (2, 4), (4, 6), (6, 7), None]
    assert words_of_pieces("我们昨 天书", spans[:4]).words == ("我们", "昨", "天书")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("a cat", TypeError, "must be a list of texts"),
        ([3], TypeError, "source 0 must be a text, a list of words or a Text"),
        ([["a", 3]], TypeError, "source 0 must be"),
        (["a", " "], ValueError, "source 1 has no words"),
        ([[]], ValueError, "source 0 has no words"),
        ([["a", ""]], ValueError, "is empty"),
    ],
)
def test_what_has_no_words_is_refused(given: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_texts(given, "source")


@pytest.mark.parametrize("spans", [((0, 9),), ((2, 2),), ((0, 2), (1, 3)), ((2, 3), (0, 1))])
def test_words_must_be_parts_of_the_text_in_order(spans: tuple) -> None:
    with pytest.raises(ValueError, match="not part of a text|in order"):
        Text("a cat", spans)


@pytest.mark.parametrize("name", ["bart", "mbart50", "nllb", "t5", "seamless"])
def test_pieces_of_every_kind_of_tokenizer_make_up_the_text(name: str) -> None:
    tokenizer = getattr(tiny_tokenizer, name)()
    text = "the cat sees a big dog"
    vocabulary = Vocabulary(tiny_model("bart", vocab_size=len(tokenizer) + 40), tokenizer)
    ids = torch.tensor(vocabulary.encode([text], "source")[0])
    shares = membership(Text.at_spaces(text), piece_spans(text, ids, "source", vocabulary))
    assert shares.sum(1).min() > 0.99  # each word has a piece of its own
    assert set(shares.sum(0).round(decimals=3).tolist()) <= {0.0, 1.0}
