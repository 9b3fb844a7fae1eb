"""Text that may reach a terminal or a page."""

import pytest

from hf_lrp.data.visible import markup, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\nb\tc\x85d\u2028e", "a\\nb\\tc\\x85d\\u2028e"),
        ("\u202egpj.exe\u202c \u2066x\u2069 \u200f\u061c", "\\u202egpj.exe\\u202c \\u2066x\\u2069 \\u200f\\u061c"),
        ("half \ud83d", "half \\ud83d"),
    ],
)
def test_characters_that_act_are_spelled_out(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize(
    "text", ["Où est l’été ?", "我们 看书", "می\u200cخواهم", "👩\u200d🔬", "e\u0301", "a\u00a0b", "▁"]
)
def test_text_stays_what_it_is(text):
    assert visible(text) == markup(text) == text


def test_markup_is_escaped():
    assert markup('<b title="x">\x00') == "&lt;b title=&quot;x&quot;&gt;\\x00"
