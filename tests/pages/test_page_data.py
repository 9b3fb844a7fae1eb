"""What the page is given to draw."""

import dataclasses

import numpy as np
import pytest
import torch
from example_contributions import make_contributions

from hf_lrp.corpus.calibration import Calibration
from hf_lrp.pages.page_data import UNIT, page_data
from hf_lrp.results.spans import Span


def usual(mean: float = 0.6, deviation: float = 0.05) -> Calibration:
    return Calibration((mean, mean - 0.1), (deviation,) * 2, 20, model="m", weights="w", sources="s", kept=1.0)


def one(c, **options):
    return page_data([c], **options)["entries"][0]["results"][0]


def test_shares_are_those_of_the_result_at_both_levels():
    c = make_contributions()
    levels = one(c)["levels"]
    assert levels.keys() == {"token", "word"}
    for name, expected in (("token", c), ("word", c.merge_subwords())):
        level = levels[name]
        width = len(level["source"])
        for t, row in enumerate(level["shares"]):
            known = row[width:]
            assert np.array(row[:width]) * UNIT == pytest.approx(expected.source[t].numpy(), abs=UNIT)
            assert np.array(known) * UNIT == pytest.approx(expected.target[t, : len(known)].numpy(), abs=UNIT)
            assert not expected.target[t, len(known) :].any()
        assert level["total"] == pytest.approx(expected.source_total.tolist(), abs=1e-5)
        assert level["prefix"] == pytest.approx(expected.target_total.tolist(), abs=1e-5)
    assert [len(row) for row in levels["token"]["shares"]] == [5, 6, 7, 8, 9, 10]
    assert [len(row) for row in levels["word"]["shares"]] == [4, 5, 4 + 3, 7, 8]  # the third word has two pieces


def test_words_read_as_running_text():
    levels = one(make_contributions())["levels"]
    assert levels["token"]["target"][2:] == [
        ["dor", True, False],
        ["t", False, False],
        [".", False, False],
        ["</s>", True, True],
    ]
    assert levels["word"]["target"] == [
        ["Le", True, False],
        ["chat", True, False],
        ["dort", True, False],
        [".", False, False],
        ["</s>", True, True],
    ]


def test_levels_that_are_not_there_are_left_out():
    assert one(make_contributions(("▁a", "▁b"), ("▁c", "▁d")))["levels"].keys() == {"token"}
    assert one(make_contributions()[2:4])["levels"].keys() == {"token"}  # steps may cut words
    assert one(make_contributions().merge_subwords())["levels"].keys() == {"word"}


def test_one_scale_for_all_sentences():
    short, long = (
        make_contributions(),
        make_contributions([f"▁w{i}" for i in range(60)], [f"▁w{i}" for i in range(60)]),
    )
    scale = page_data([short, long])["scale"]
    assert long.color_limit < scale["token"] <= short.color_limit
    assert page_data([short])["scale"]["token"] == pytest.approx(short.color_limit)


def test_what_is_usual_is_given_by_step_and_averaged_over_the_pieces_of_a_word():
    levels = one(make_contributions(), calibration=usual())["levels"]
    assert levels["token"]["usual"] == [[None, None], [0.6, 0.05], *[[0.5, 0.05]] * 4]
    assert levels["word"]["usual"] == [[None, None], [0.6, 0.05], *[[0.5, 0.05]] * 3]
    assert one(make_contributions())["levels"]["token"]["usual"] is None
    assert one(make_contributions().merge_subwords(), calibration=usual())["levels"]["word"]["usual"] is None


def test_both_levels_flag_the_same_words():
    """Where one piece of a word is low and another is not, the word decides."""
    at_odds = flagged = 0
    for seed in range(60):
        c = make_contributions(seed=seed, predict="target")
        levels = one(c, calibration=usual(0.8, 0.05))["levels"]
        words, pieces = levels["word"], levels["token"]
        z = [(total - (0.8 if t == 1 else 0.7)) / 0.05 for t, total in enumerate(c.source_total.tolist())]
        expected = [False, z[1] < -2, (z[2] + z[3]) / 2 < -2, False, False]  # Le chat dort . </s>
        assert words["flagged"] == expected
        assert pieces["flagged"] == [expected[word] for word in c.target_words]
        assert words["telling"][1:] == pieces["telling"][1:]
        assert any(expected) != words["telling"][1].startswith("Nothing stands out")
        at_odds += (z[2] < -2) != (z[3] < -2)
        flagged += any(expected)
    assert at_odds > 5 and 5 < flagged < 55


def test_raw_shares_have_another_whole_than_a_calibration():
    with pytest.raises(ValueError, match="explain with start_token='exclude'"):
        page_data([make_contributions(start_token="keep")], calibration=usual())


def test_contrasts_name_both_words():
    names = ("▁chat vs ▁chien", *make_contributions().predicted_tokens[1:])
    c = dataclasses.replace(
        make_contributions()[1:2],
        predicted_tokens=names[:1],
        predicted_ids=torch.tensor([[101, 7]]),
        predict="contrastive",
    )
    result = one(c)
    assert result["contrast"] and result["levels"]["token"]["explained"] == ["chat vs chien"]
    assert result["levels"]["token"]["contrasted"] is None
    words = dataclasses.replace(c, contrasted=(("chaton", "chien\u202e", "why"),))
    assert one(words)["levels"]["token"]["contrasted"] == [["chaton", "chien\\u202e", "why"]]
    assert result["levels"]["token"]["telling"] is None  # one step has nothing to be compared with


def test_parts_of_a_prompt_are_named():
    shares = torch.rand(6, 2) / 4
    c = make_contributions(spans={"instruction": Span(("▁Trans", "late"), shares)}, start=shares.sum(1))
    for name, level in one(c)["levels"].items():
        (part,) = level["parts"]
        assert part["name"] == "instruction"
        assert part["tokens"] == [["Trans", True, False], ["late", False, False]]
        assert len(part["shares"]) == len(level["steps"]) == {"token": 6, "word": 5}[name]
        assert level["start"] == pytest.approx(part["total"], abs=1e-5)


def test_sounds_are_told_from_texts():
    times = tuple(f"{i / 2:.2f}s" for i in range(5))
    levels = one(make_contributions(times, source_words=(0, 0, 1, 1, 2)))["levels"]
    assert levels["token"]["sound"] and levels["word"]["sound"]
    assert [part[0] for part in levels["word"]["source"]] == ["0–1s", "1–2s", "2–3s"]
    assert not one(make_contributions())["levels"]["token"]["sound"]


def test_two_results_say_where_they_differ_most():
    first, second = make_contributions(), make_contributions(seed=1, prefix="reference")
    entry = page_data([first.compare(second)])["entries"][0]
    assert entry["names"] == ["model", "reference"] and entry["same"]
    row = int((second.source_total - first.source_total).abs().argmax())
    assert entry["telling"]["token"][0] == row
    assert f"{first.source_total[row]:.3f} (model) and {second.source_total[row]:.3f}" in entry["telling"]["token"][1]


def test_two_translations_have_no_differences():
    entry = page_data(
        [make_contributions().compare(make_contributions(("▁The", "▁cat", "▁sleep", "s", "</s>"), ("▁Un",)))]
    )
    assert not entry["entries"][0]["same"] and entry["entries"][0]["telling"] is None


def test_what_is_usual_for_a_model_is_not_shown_for_another():
    first, second = make_contributions(), make_contributions(model="another")
    results = page_data([first.compare(second)], calibration=usual())["entries"][0]["results"]
    assert [result["levels"]["token"]["usual"] is not None for result in results] == [True, False]


def test_models_in_folders_are_called_by_the_folder():
    assert one(make_contributions(model="/home/somebody/models/opus"))["model"] == "opus"
    assert one(make_contributions(model="Helsinki-NLP/opus"))["model"] == "Helsinki-NLP/opus"


def test_negative_shares_are_announced():
    shares = make_contributions().source.clone()
    shares[2, 2] = -0.4
    assert page_data([make_contributions(source=shares)])["signed"]
    assert not page_data([make_contributions()])["signed"]


def test_shares_with_signs_are_told_as_sizes_and_at_each_level_by_its_own_totals():
    c = make_contributions()
    signs = torch.tensor([1.0, -1.0]).repeat(c.source.shape[1])[: c.source.shape[1]]
    signed = dataclasses.replace(c, source=c.source * signs, sums_to_one=False)
    found = one(signed)
    assert found["sizes"] and not one(c)["sizes"]
    word = found["levels"]["word"]
    assert word["total"] == pytest.approx(signed.merge_subwords().source_total.tolist(), abs=1e-4)
    row, sentence, _ = word["telling"]
    assert f"R(source) is lowest at “{{}}”, {word['total'][row]:.2f}," in sentence


def test_a_short_part_of_a_prompt_is_written_as_its_tokenizer_writes():
    """A line break is `Ċ` to a tokenizer of bytes, which only other parts show it to be."""
    parts = {"template": ("Ċ", "French", ":"), "instruction": ("Trans", "late", "Ġthis")}
    c = make_contributions(spans={name: Span(tokens, torch.full((6, 3), 0.01)) for name, tokens in parts.items()})
    template, instruction = one(c)["levels"]["token"]["parts"]
    assert [text for text, *_ in template["tokens"]] == ["\\n", "French", ":"]
    assert [text for text, *_ in instruction["tokens"]] == ["Trans", "late", "this"]
