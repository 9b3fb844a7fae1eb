"""Evaluation of a corpus with models without an encoder: shares of the parts of their prompts."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_decoders import tiny_decoder
from tiny_models import tiny_model
from tiny_tokenizer import tiny_tokenizer
from word_tokenizer import word_tokenizer

from hf_lrp import Prompt, explain
from hf_lrp.corpus import Run, RunError, evaluate
from hf_lrp.corpus.own_translations import OwnTranslations
from hf_lrp.corpus.run_charts import charts_of_run
from hf_lrp.corpus.run_comparison import compare, measure
from hf_lrp.corpus.scoring import score_corpus
from hf_lrp.corpus.summarizing import share_of
from hf_lrp.links.heads import Head, LinkHeads

WORDS = "cat dog the it a b".split()
PROMPT = Prompt("{examples} ; {source} =", {"examples": "a b ; b a"})
PARTS = ["first token", "examples", "template"]
OPTIONS: dict[str, Any] = {"number": 12, "lengths": None, "progress": False, "max_new_tokens": 3, "do_sample": False}


def make_pairs(number: int = 24) -> list[tuple[str, str]]:
    draw = random.Random(0)
    return [tuple(" ".join(draw.choices(WORDS, k=draw.randint(2, 4))) for _ in range(2)) for _ in range(number)]


PAIRS = make_pairs()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "decoder"
    return evaluate(tiny_decoder(), word_tokenizer(), PAIRS, folder, prompt=PROMPT, **OPTIONS)


@pytest.mark.parametrize("prefix", ["reference", "random", "model"])
def test_stored_is_what_explain_gives(run: Run, prefix: str) -> None:
    tokenizer = word_tokenizer()
    for sentence in run.rows(prefix):
        source, _ = PAIRS[sentence.pair]
        assert " ".join(sentence.source_tokens) == source
        written = tokenizer.decode(sentence.target_ids)
        c = explain(tiny_decoder(), tokenizer, source, written, prompt=PROMPT)
        assert list(sentence.spans) == PARTS
        for name, total in sentence.part_totals.items():
            np.testing.assert_allclose(total, c.part_totals[name].double(), rtol=0, atol=1e-6)
        np.testing.assert_allclose(sum(sentence.part_totals.values()), 1, rtol=0, atol=1e-5)
    assert (prefix == "reference") == all(
        " ".join(sentence.target_tokens) == PAIRS[sentence.pair][1] for sentence in run.rows(prefix)
    )


def test_overall_figures_charts_and_comparisons_have_the_parts(run: Run, tmp_path: Path) -> None:
    found = run.metrics["reference"]
    shares = [found[share_of(part)] for part in (*PARTS, "source", "target")]
    assert sum(shares) == pytest.approx(1, abs=1e-5)
    examples = [sentence.spans["examples"][1:].mean() for sentence in run.rows("reference")]
    assert found[share_of("examples")] == pytest.approx(np.mean(examples))
    measured = measure(run, "one")
    chart = charts_of_run(measured)[-1]
    assert chart.stem == "12-parts-of-the-prompt" and len(chart.panels) == 3
    assert [curve.label for curve in chart.panels[0].curves] == [*PARTS, "source", "target"]
    total = np.sum([curve.value for curve in chart.panels[0].curves], axis=0)
    np.testing.assert_allclose(total[np.isfinite(total)], 1, rtol=0, atol=1e-5)
    shorter = Prompt("{examples} {source} =", {"examples": "a b"})
    model = tiny_decoder(seed=1)
    other = evaluate(model, word_tokenizer(), PAIRS, tmp_path / "other", prompt=shorter, **OPTIONS)
    comparison = compare([measured, measure(other, "two")])
    assert any("different prompts" in note for note in comparison.notes)
    compared = {item.quantity for item in comparison.difference_estimates}
    assert {share_of("examples"), share_of("source"), "source_total"} <= compared


def test_the_prompt_is_one_of_the_settings(run: Run, tmp_path: Path) -> None:
    assert run.manifest["prompt"] == {"template": "{examples} ; {source} =", "parts": {"examples": "a b ; b a"}}
    again = evaluate(tiny_decoder(), word_tokenizer(), PAIRS, run.folder, prompt=PROMPT, **OPTIONS)
    assert again.manifest == run.manifest
    with pytest.raises(RunError, match="other settings: prompt is another"):
        evaluate(tiny_decoder(), word_tokenizer(), PAIRS, run.folder, prompt="{source} =", **OPTIONS)
    few: dict[str, Any] = {"number": 2, "lengths": None, "progress": False, "prefixes": ["reference"]}
    default = evaluate(tiny_decoder(), word_tokenizer(), PAIRS, tmp_path / "default", **few)
    assert default.manifest["prompt"]["template"] == "Sentence: {source}\nTranslation:"


def test_pairs_without_room_after_the_prompt_are_left_out(tmp_path: Path) -> None:
    long = Prompt("{examples} {source} =", {"examples": "a " * 55})
    pairs = [("cat dog", "the cat"), ("dog", "the cat " * 5)]  # 64 positions
    few: dict[str, Any] = {"number": 1, "lengths": None, "progress": False, "prefixes": ["reference"]}
    result = evaluate(tiny_decoder(), word_tokenizer(), pairs, tmp_path / "run", prompt=long, **few)
    assert [sentence.pair for sentence in result.rows("reference")] == [0]


def test_prompts_that_cannot_be_used_for_a_corpus(tmp_path: Path) -> None:
    each = Prompt("{hint} {source}", {"hint": ["a"] * len(PAIRS)})
    with pytest.raises(TypeError, match="'hint' of the prompt must be one text for all sentences"):
        evaluate(tiny_decoder(), word_tokenizer(), PAIRS, tmp_path / "run", prompt=each)
    with pytest.raises(ValueError, match="has an encoder for its source"):
        evaluate(tiny_model(), tiny_tokenizer(), PAIRS, tmp_path / "run", prompt=PROMPT)


def test_translations_are_scored(tmp_path: Path) -> None:
    model, tokenizer, out = tiny_decoder(), word_tokenizer(), tmp_path / "scores.jsonl"
    options: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False}
    LinkHeads((Head(0, 0), Head(1, 1))).save(model)  # in a random model, no heads agree
    rows = score_corpus(model, tokenizer, PAIRS, out, prompt=PROMPT, source_share=True, **options)
    c = explain(model, tokenizer, *PAIRS[0], prompt=PROMPT, predict="target")
    assert rows[0]["source_total"] == pytest.approx(c.source_total[1:].mean().item(), abs=1e-6)
    assert rows[0]["log_probability"] == pytest.approx(c.log_probability.mean().item(), abs=1e-4)
    calibration = OwnTranslations.load(tmp_path / "scores.jsonl.calibration.json")
    assert calibration.prompt == PROMPT.settings
    with pytest.raises(ValueError, match="measured with another prompt"):
        score_corpus(model, tokenizer, PAIRS, out, prompt="{source} =", calibration=calibration)
