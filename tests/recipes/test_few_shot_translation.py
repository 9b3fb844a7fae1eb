"""The recipe on few-shot translation: its parts by hand, and a run with a tiny model."""

import json
from pathlib import Path
from typing import Any

import few_shot_translation as recipe
import pytest
from tiny_decoders import tiny_decoder
from word_tokenizer import word_tokenizer

NOUNS = ["cat", "dog", "it", "a", "b"]


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments for a run with a tiny decoder on made-up pairs; six of them are unrelated ones."""
    tiny_decoder(max_position_embeddings=256).save_pretrained(tmp_path / "model")
    word_tokenizer().save_pretrained(tmp_path / "model")
    lines = [f"the {a} {b} the {c} {d}\t{d} the {c} {b}" for a in NOUNS for b in NOUNS for c in NOUNS for d in NOUNS]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    hold_out = recipe.hold_out
    monkeypatch.setattr(recipe, "MOST", 6)
    monkeypatch.setattr(recipe, "TRANSLATED", 4)
    monkeypatch.setitem(recipe.WORDS, "europarl", (5, 12))
    monkeypatch.setattr(recipe, "hold_out", lambda pairs: hold_out(pairs, test=40, validation=20))
    files = ["--tatoeba", str(tmp_path / "pairs.tsv")]
    return [str(tmp_path / "model"), *files, "--number", "3", "--output", str(tmp_path / "run")]


def test_the_prompt_and_its_shuffled_examples() -> None:
    examples = [("a", "x"), ("b", "y"), ("c", "z")]
    right, wrong = recipe.few_shot(examples), recipe.few_shot(examples, shuffled=True)
    assert right.parts["examples"] == "English: a\nFrench: x\nEnglish: b\nFrench: y\nEnglish: c\nFrench: z\n"
    assert wrong.parts["examples"] == "English: a\nFrench: y\nEnglish: b\nFrench: z\nEnglish: c\nFrench: x\n"


def test_means_and_differences_are_over_sentences_from_the_second_step_on() -> None:
    def measured(source: list[float]) -> Any:
        written = [0.0, *([0.2] * (len(source) - 1))]
        others = [1 - a - b for a, b in zip(source, written, strict=True)]
        shares = {"source": source, "written": written, "examples": others}
        return recipe.read_row({"shares": shares, "tokens": {"examples": 4, "written": len(source) - 1}})

    found = {
        ("decoder", "tatoeba", "reference", 1): measured([0.9, 0.2, 0.3]),
        ("decoder", "tatoeba", "reference", 2): measured([0.9, 0.3]),
        ("decoder", "tatoeba", "random prefix", 1): measured([0.9, 0.1]),
        ("decoder", "tatoeba", "random prefix", 2): measured([0.9, 0.2]),
    }
    results = recipe.evaluate(found)
    mean = {(row["condition"], row["part"]): row for row in results["means"]}
    assert mean["reference", "source"]["mean"] == pytest.approx((0.25 + 0.3) / 2)
    assert mean["reference", "R(source)"]["mean"] == pytest.approx(((0.5 + 0.6) / 2 + 0.6) / 2)
    assert mean["reference", "examples"]["tokens"] == 4
    change = {row["part"]: row for row in results["differences"]}
    assert change["source"]["mean"] == pytest.approx((-0.15 - 0.1) / 2)
    assert change["source"]["low"] <= change["source"]["mean"] <= change["source"]["high"]


def test_a_smaller_number_is_a_part_of_a_larger_one(options: list[str], tmp_path: Path) -> None:
    more = [*options, "--europarl", str(tmp_path / "pairs.tsv")]
    given = recipe.read_options([*more, "--number", "2", "2"])
    few, many = (recipe.select_sentences(given, {"tatoeba": n[0], "europarl": n[1]}) for n in ((2, 2), (6, 3)))
    assert len(recipe.select_examples(given)) == 5
    assert set(few) <= set(many) and len(many) == 9
    assert [s.corpus[0] for s in many] == list("tettettet")
    assert all(s.source != s.other_source for s in many)


def test_a_run_is_written_goes_on_and_can_be_cut(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    explain, calls = recipe.explain, []

    def limited(*args: Any, **given: Any) -> Any:
        calls.append(args)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return explain(*args, **given)

    monkeypatch.setattr(recipe, "explain", limited)
    with pytest.raises(KeyboardInterrupt):
        recipe.main(options)
    recipe.main(options)
    assert len(calls) == 1 + 3 * 4 + 3 * 2
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["sentences"] == {"tatoeba": 3}
    assert [row["sentences"] for row in results["scores"]] == [4, 4]
    shares = [
        row["mean"]
        for row in results["means"]
        if (row["model"], row["condition"]) == ("decoder", "shuffled examples") and row["part"] in recipe.PARTS
    ]
    assert len(shares) == 6 and sum(shares) == pytest.approx(1, abs=1e-5)
    for name in ("shares", "source"):
        assert (tmp_path / "run" / f"{name}.png").stat().st_size > 5000
    assert "the cat" not in (tmp_path / "run" / "results.json").read_text()
    assert "tatoeba, 3 sentences" in capsys.readouterr().out
    recipe.main([*options, "--number", "2"])  # a part of what was measured
    assert len(calls) == 1 + 3 * 4 + 3 * 2
    assert json.loads((tmp_path / "run" / "results.json").read_text())["sentences"] == {"tatoeba": 2}
    with pytest.raises(ValueError, match="other settings"):
        recipe.main([*options, "--seed", "1"])
