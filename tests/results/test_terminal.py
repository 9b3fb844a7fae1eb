"""The tables for the terminal."""

import io
import time

import pytest
import torch
from example_contributions import make_contributions
from rich.cells import cell_len
from rich.console import Console

from hf_lrp.results.used_method import UsedMethod

CHINESE = ("▁", "我们", "看", "书", "。", "</s>")


def rendered(contributions, width: int, **options) -> str:
    console = Console(file=io.StringIO(), width=width, **options)
    console.print(contributions.table())
    return console.file.getvalue()


def test_the_table_reads_like_this():
    contributions = make_contributions(("▁The", "▁cat", "</s>"), ("▁Le", "▁chat", "</s>"))
    lines = str(contributions).splitlines()
    assert lines[0].startswith("made-up/en-fr: 3 source tokens, 3 steps, mean R(source) from step 2 on 0.")
    assert "conservation error 3e-07" in str(contributions)
    assert "note: float16 weights were propagated in float32" in lines
    assert lines[-4].split() == [
        "step",
        "predicted",
        "p",
        "R(src)",
        "R(tgt)",
        "top",
        "source",
        "top",
        "prefix",
    ]
    step, predicted, probability, source, target, *top = lines[-2].split()
    assert (step, predicted, target) == ("2", "▁chat", f"{contributions.target_total[1]:.3f}")
    assert probability == f"{contributions.probability[1]:.2f}"
    assert source == f"{contributions.source_total[1]:.3f}"
    largest = contributions.source_tokens[contributions.source[1].argmax()]
    assert top[0] == largest
    assert "▁Le" in top


@pytest.mark.parametrize("length", [1, 5, 60])
@pytest.mark.parametrize("tokens", [["▁word"], list(CHINESE), ["▁" + "long" * 20], ["[bold]", "▁e\u0301"]])
def test_lines_fit_into_80_columns(length, tokens):
    tokens = (tokens * length)[:length]
    contributions = make_contributions(tokens, tokens)
    lines = str(contributions).splitlines()
    assert len(lines) < length + 8
    assert all(cell_len(line) <= 80 for line in lines)
    for width in (80, 200):
        assert all(cell_len(line) <= width for line in rendered(contributions, width).splitlines())


def test_columns_stay_aligned_with_wide_characters():
    lines = str(make_contributions(CHINESE, CHINESE)).splitlines()[-6:]
    assert len({cell_len(line[: line.index(".")]) for line in lines}) == 1


def test_repeated_tokens_are_told_apart():
    text = str(make_contributions(("▁the", "▁cat", "▁the"), ("▁le", "</s>")))
    assert "▁the#1" in text
    assert "▁the#3" in text
    assert "▁cat#" not in text


def test_a_wide_console_shows_more_inputs():
    tokens = [f"▁w{i}" for i in range(30)]
    contributions = make_contributions(tokens, tokens)
    assert rendered(contributions, 200).count("%") > rendered(contributions, 80).count("%")


def test_strong_and_negative_shares_are_coloured():
    shares = make_contributions().source.clone()
    shares[2, 1:3] = torch.tensor([0.8, -0.9])
    text = rendered(make_contributions(source=shares), 80, force_terminal=True, color_system="standard")
    assert "\x1b[1;37;44m▁cat 80%" in text
    assert "\x1b[37;41m▁sleep -90%" in text


def test_markup_in_tokens_is_shown_as_it_is():
    assert "[red]" in rendered(make_contributions(("[red]", "[/]")), 80)


def test_source_and_prefix_stay_apart_where_the_source_fills_its_columns():
    tokens = [f"▁word{i}" for i in range(9)]
    for width in range(60, 90):
        rows = rendered(make_contributions(tokens, tokens), width).splitlines()[-9:]
        assert all(row.count(" | ") == 1 for row in rows)


@pytest.mark.parametrize("width", [1, 20, 40, 60])
def test_shares_that_leave_no_room_for_their_token(width):
    shares = make_contributions().source.clone() * 1e24
    text = rendered(make_contributions(source=shares), width)
    assert len(text.splitlines()) >= 6


def test_a_very_long_token_is_cut_at_once():
    tokens = ("▁" + "long" * 50_000, "</s>")
    started = time.process_time()
    assert "▁longlonglong…" in str(make_contributions(tokens, tokens))
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("token", "shown"), [("▁abcdefghijklm", "▁abcdefghijklm"), ("▁abcdefghijklmn", "▁abcdefghijkl…")]
)
def test_labels_are_cut_where_they_do_not_fit(token, shown):
    assert f" {shown} " in str(make_contributions((token, "</s>"), (token, "</s>")))


def test_no_control_or_direction_character_reaches_the_terminal():
    evil = "a\x1b[2Jb\u202ec\nd"
    changes = dict(model=evil, method=UsedMethod(evil), notes=(evil,), dtype=evil, start_tokens=(evil,))
    contributions = make_contributions((evil, "</s>"), (evil, "</s>"), **changes)
    for text in (str(contributions), rendered(contributions, 300)):
        assert not {"\x1b", "\u202e"} & set(text)
        assert "a\\x1b[2Jb\\u202ec\\nd" in text
