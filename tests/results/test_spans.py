"""Parts of prompts in tables, lists and comparisons."""

import math
from typing import Any

import numpy as np
import pytest
import rich
import torch
from tiny_decoders import tiny_decoder
from tiny_models import tiny_model
from word_tokenizer import word_tokenizer

from hf_lrp import Contributions, ContributionsList, Prompt, Span, explain

NAMES = ["first token", "instruction", "examples", "template", "source", "target"]


def results(start_token: Any = "exclude") -> ContributionsList:
    prompt = Prompt("{instruction} : {examples} ; {source} =", {"instruction": "write it", "examples": "a b ; b a"})
    sentences = ["cat dog", "dog"], ["dog the cat", "it the"]
    found = explain(tiny_decoder(), word_tokenizer(), *sentences, prompt=prompt, start_token=start_token)
    assert isinstance(found, ContributionsList)
    return found


@pytest.mark.parametrize("start_token", ["exclude", "keep"])
def test_raw_shares_of_all_parts_sum_to_one(start_token: str) -> None:
    c, kept = results(start_token)[0], results("keep")[0]
    assert list(c.part_totals) == NAMES
    torch.testing.assert_close(sum(c.part_totals.values()), torch.ones(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(c.part_totals["source"], kept.source_total, rtol=0, atol=1e-6)
    torch.testing.assert_close(c.part_totals["target"], kept.target_total, rtol=0, atol=1e-6)


def test_with_an_encoder_the_parts_are_start_source_and_target() -> None:
    c = explain(tiny_model(), None, torch.tensor([3, 4, 1]), torch.tensor([5, 6, 1]))
    assert isinstance(c, Contributions)
    assert list(c.part_totals) == ["start", "source", "target"]
    torch.testing.assert_close(sum(c.part_totals.values()), torch.ones(3), rtol=0, atol=1e-5)
    assert "raw shares" not in str(c)


def test_the_table_shows_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    c = results()[0]
    *_, title, first, _, last = str(c).splitlines()
    assert title.split("  ")[0] == "raw shares" and all(name in title for name in NAMES)
    shares = [float(text[:-1]) / 100 for text in last.split()[2:]]
    assert shares == pytest.approx([total[2].item() for total in c.part_totals.values()], abs=0.006)
    assert max(map(len, str(c).splitlines())) <= 80 and first.split()[0] == "1"
    rich.print(c.table())
    assert title in capsys.readouterr().out


def test_many_parts_take_several_tables() -> None:
    names = [f"document number {n}" for n in range(9)]
    prompt = Prompt(" ; ".join(f"{{{name}}}" for name in names) + " {source} =", dict.fromkeys(names, "a b"))
    c = explain(tiny_decoder(), word_tokenizer(), "cat", "dog the", prompt=prompt)
    lines = str(c).splitlines()
    titles = [line for line in lines if line.startswith("raw shares")]
    assert len(titles) == 3 and max(map(len, lines)) <= 80
    assert sum(title.count("document numb…") for title in titles) == 9 and titles[-1].endswith("target")


def test_lists_have_a_column_and_a_mean_for_each_part() -> None:
    found = results()
    table = found.to_pandas()
    assert list(table.columns[-4:]) == NAMES[:4]
    assert table["examples"][1] == pytest.approx(found[0].spans["examples"].total[1].item())
    mean = found.mean()
    assert list(mean.parts) == NAMES == list(mean.overall_parts)
    totals = [c.part_totals["examples"].double().numpy() for c in found]
    assert mean.parts["examples"].value[:2] == pytest.approx(np.mean([t[:2] for t in totals], 0))
    assert mean.overall_parts["examples"].value == pytest.approx(np.mean([t[1:].mean() for t in totals]))
    assert "raw examples_low" in mean.to_pandas().columns
    other = explain(tiny_decoder(), word_tokenizer(), "cat", "dog", prompt="{source} =")
    assert isinstance(other, Contributions)
    together = ContributionsList([found[0], other])
    assert list(together.mean().parts) == ["template", "source", "target"]
    assert math.isnan(together.to_pandas()["examples"].iloc[-1])


def test_comparisons_have_the_parts_that_both_have() -> None:
    prompt = Prompt("{instruction} : {source} =", {"instruction": "write it"})
    other = explain(tiny_decoder(), word_tokenizer(), "cat dog", "dog the cat", prompt=prompt)
    assert isinstance(other, Contributions)
    table = results()[0].compare(other).to_pandas()
    difference = other.spans["instruction"].total - results()[0].spans["instruction"].total
    assert table["raw instruction_difference"].tolist() == pytest.approx(difference.tolist(), abs=1e-6)
    assert "raw examples_first" not in table.columns and "raw source_first" in table.columns


def test_spans_that_do_not_fit_are_refused() -> None:
    c = results()[0]
    with pytest.raises(ValueError, match="must have shares"):
        Contributions(**{**vars(c), "spans": {"examples": Span(("a",), torch.ones(2, 1))}})
