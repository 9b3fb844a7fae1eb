"""`hf-lrp score`: what it writes, how it goes on after an interruption, and how it fails."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from tiny_checkpoint import save_checkpoint

from hf_lrp import explain
from hf_lrp.commands.cli import main
from hf_lrp.corpus import scoring
from hf_lrp.corpus.calibration import Calibration
from hf_lrp.corpus.own_translations import OwnTranslations
from hf_lrp.corpus.scoring import score_pairs
from hf_lrp.data.locks import one_writer
from hf_lrp.links.heads import Head, LinkHeads
from hf_lrp.links.weights import HeadReader
from hf_lrp.models.loading import load_checkpoint

WORDS = ["cat", "dog", "house", "street", "big", "small"]
PAIRS = [(f"the {a} is in the {b}", f"a {b} and {a} eats") for a in WORDS[:4] for b in WORDS[3:]]

SCORE_PAIRS = scoring.score_pairs


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    folder = save_checkpoint(tmp_path_factory.mktemp("tiny"))
    loaded, _ = load_checkpoint(str(folder))
    LinkHeads((Head(0, 1, "reads"), Head(1, 0, "predicts"))).save(loaded)  # in a random model, no heads agree
    loaded.generation_config.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def data(tmp_path) -> str:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    return str(path)


@pytest.fixture(scope="module")
def scored(model, tmp_path_factory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("scored")
    (folder / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    arguments = ["--data", str(folder / "pairs.tsv"), "--out", str(folder / "scores.jsonl"), "--rarity", "0.5"]
    assert main(["score", model, *arguments]) == 0
    return folder


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_are_the_scores_of_the_pairs(model, scored):
    rows, own = read(scored / "scores.jsonl"), OwnTranslations.load(scored / "scores.jsonl.calibration.json")
    assert [(row["source"], row["translation"]) for row in rows] == PAIRS
    assert own.sentences == len({source for source, _ in PAIRS})
    loaded, tokenizer = load_checkpoint(model)
    (expected,) = score_pairs(HeadReader(loaded, tokenizer), PAIRS[3:4], own, rarity=0.5)
    assert rows[3]["coverage"] == pytest.approx(expected.coverage, abs=1e-5)
    assert rows[3]["coverage_rank"] == expected.coverage_rank
    contributions = explain(loaded, tokenizer, *PAIRS[3], predict="target")
    assert rows[3]["log_probability"] == pytest.approx(contributions.log_probability.mean().item(), abs=1e-4)
    assert rows[3]["source_total"] is None
    assert [word["text"] for word in rows[3]["target_words"]] == ["a", "street", "and", "dog", "eats"]
    assert [word["flagged"] for word in rows[3]["source_words"]] == [word.flagged for word in expected.source_words]
    assert not list(scored.glob("*.partial")) and not list(scored.glob("*.source-share.json"))


def test_a_table_and_a_page_have_the_same_flags(model, data, scored, tmp_path, capsys):
    out, page = tmp_path / "new" / "scores.tsv", tmp_path / "new" / "scores.html"
    calibration = str(scored / "scores.jsonl.calibration.json")
    arguments = ["--data", data, "--out", str(out), "--calibration", calibration, "--rarity", "0.5"]
    assert main(["score", model, *arguments, "--html", str(page)]) == 0
    with out.open(newline="") as file:
        table = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows, text = read(scored / "scores.jsonl"), page.read_text(encoding="utf-8")
    for row, expected in zip(table, rows, strict=True):
        for name in ("coverage", "coverage_rank", "log_probability", "log_probability_rank"):
            assert float(row[name]) == pytest.approx(expected[name], abs=1e-4)
        for column, side in (("left_out", "source_words"), ("without_support", "target_words")):
            assert row[column] == " ".join(word["text"] for word in expected[side] if word["flagged"])
        assert (row["source"], row["translation"]) == (expected["source"], expected["translation"])
        assert "source_total" not in row
    words = [word for row in rows for side in ("source_words", "target_words") for word in row[side]]
    assert text.count("<mark title") == sum(word["flagged"] for word in words) > 0
    assert f"wrote {out}: 12 pairs, " in capsys.readouterr().err
    assert not out.with_name("scores.tsv.calibration.json").exists()  # the given one is used where it is


def test_the_source_share_is_a_description_on_request(model, data, tmp_path):
    out = tmp_path / "scores.tsv"
    assert main(["score", model, "--data", data, "--out", str(out), "--source-share"]) == 0
    with out.open(newline="") as file:
        table = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    loaded, tokenizer = load_checkpoint(model)
    mean = explain(loaded, tokenizer, *PAIRS[5], predict="target").mean()["source_total"]
    assert float(table[5]["source_total"]) == pytest.approx(mean, abs=1e-5)
    assert Calibration.load(tmp_path / "scores.tsv.source-share.json").sentences == 12


def test_words_by_erasure_and_ratio(model, data, scored, tmp_path, capsys):
    out = tmp_path / "scores.jsonl"
    arguments = ["score", model, "--data", data, "--out", str(out), "--erasure", "--ratio"]
    calibration = str(scored / "scores.jsonl.calibration.json")
    assert main([*arguments, "--calibration", calibration]) == 1
    assert "of words by coverage and log-probability, not by erasure and ratio" in capsys.readouterr().err
    assert main(arguments) == 0
    for row, plain in zip(read(out), read(scored / "scores.jsonl"), strict=True):
        assert row["coverage"] == pytest.approx(plain["coverage"], abs=1e-5)
        for side in ("source_words", "target_words"):
            assert [word["text"] for word in row[side]] == [word["text"] for word in plain[side]]
            assert all(a["value"] != b["value"] for a, b in zip(row[side], plain[side], strict=True))


def test_page_and_scores_need_files_of_their_own(model, data, tmp_path, capsys):
    out = str(tmp_path / "scores.tsv")
    with pytest.raises(SystemExit):
        main(["score", model, "--data", data, "--out", out, "--html", out])
    assert "give --html its own file" in capsys.readouterr().err


def interrupt_after(monkeypatch, number: int) -> list:
    """Let scoring raise as Ctrl-C does, from the given call on; returns the list of its calls."""
    calls: list = []

    def limited(*args, **options):
        calls.append(args)
        if len(calls) > number:
            raise KeyboardInterrupt
        return SCORE_PAIRS(*args, **options)

    monkeypatch.setattr(scoring, "score_pairs", limited)
    monkeypatch.setattr(scoring, "CHUNK", 5)
    return calls


def test_an_interrupted_run_goes_on(model, data, scored, tmp_path, monkeypatch):
    out = tmp_path / "scores.jsonl"
    arguments = ["score", model, "--data", data, "--out", str(out), "--rarity", "0.5"]
    shutil.copy(scored / "scores.jsonl.calibration.json", tmp_path)
    interrupt_after(monkeypatch, 1)
    assert main(arguments) == 130
    assert not out.exists() and len(read(out.with_name("scores.jsonl.partial"))) == 1 + 5
    calls = interrupt_after(monkeypatch, 100)
    assert main(arguments) == 0
    assert [len(call[1]) for call in calls] == [5, 2]
    for row, expected in zip(read(out), read(scored / "scores.jsonl"), strict=True):
        assert row["source"] == expected["source"]
        assert row["coverage"] == pytest.approx(expected["coverage"], abs=1e-5)


def test_unfinished_work_of_another_kind_is_kept(model, data, scored, tmp_path, monkeypatch, capsys):
    out = tmp_path / "scores.jsonl"
    arguments = ["score", model, "--data", data, "--out", str(out)]
    shutil.copy(scored / "scores.jsonl.calibration.json", tmp_path)
    interrupt_after(monkeypatch, 1)
    assert main(arguments) == 130
    assert main([*arguments, "--rarity", "0.1"]) == 1
    assert "other settings (rarity): remove it" in capsys.readouterr().err


def test_a_calibration_of_another_model_is_refused(model, data, scored, tmp_path, capsys):
    content = json.loads((scored / "scores.jsonl.calibration.json").read_text())
    (tmp_path / "c.json").write_text(json.dumps(content | {"weights": "0"}))
    arguments = ["--data", data, "--calibration", str(tmp_path / "c.json"), "--out", str(tmp_path / "s.tsv")]
    assert main(["score", model, *arguments]) == 1
    assert "with other weights: give sentences to calibrate this model on" in capsys.readouterr().err


def test_texts_that_become_other_tokens_are_warned_of(model, data, scored, tmp_path, capsys):
    content = json.loads((scored / "scores.jsonl.calibration.json").read_text())
    (tmp_path / "c.json").write_text(json.dumps(content | {"kept": 0.25}))
    arguments = ["--data", data, "--calibration", str(tmp_path / "c.json"), "--out", str(tmp_path / "s.tsv")]
    assert main(["score", model, *arguments]) == 0
    assert "warning: the tokenizer splits only 25% of the model's own translations" in capsys.readouterr().err


def test_too_few_sources_to_calibrate_on(model, tmp_path, capsys):
    (tmp_path / "pairs.tsv").write_text("the cat\tthe dog\n")
    assert main(["score", model, "--data", str(tmp_path / "pairs.tsv"), "--out", str(tmp_path / "s.tsv")]) == 1
    assert "translations are too few to know what is usual for a model" in capsys.readouterr().err


def test_empty_sides_and_unknown_outputs_are_refused(model, tmp_path, capsys):
    (tmp_path / "pairs.tsv").write_text("the cat\tthe dog\nthe house\t\n")
    assert main(["score", model, "--data", str(tmp_path / "pairs.tsv"), "--out", str(tmp_path / "s.tsv")]) == 1
    assert "Pair 2 has an empty side" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["score", model, "--data", str(tmp_path / "pairs.tsv"), "--out", "s.csv"])
    assert "--out must end with .tsv or .jsonl, not 's.csv'" in capsys.readouterr().err


def test_a_second_writer_is_refused(model, data, scored, tmp_path, capsys):
    out = tmp_path / "scores.jsonl"
    with one_writer(tmp_path / "scores.jsonl.lock", "scores"):
        assert main(["score", model, "--data", data, "--out", str(out)]) == 1
    assert "Another process is writing" in capsys.readouterr().err
    assert not list(tmp_path.glob("scores*"))


def test_a_name_too_long_is_refused_before_the_model_is_loaded(data, tmp_path, capsys):
    out = tmp_path / ("s" * 252 + ".tsv")
    assert main(["score", "no/such/model", "--data", data, "--out", str(out)]) == 1
    assert "cannot write" in capsys.readouterr().err
