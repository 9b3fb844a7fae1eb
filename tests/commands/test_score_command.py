"""`hf-lrp score`: what it writes, how it goes on after an interruption, and how it fails."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from page_reader import read_page
from tiny_checkpoint import save_checkpoint

from hf_lrp import Explainer, explain
from hf_lrp.commands.cli import main
from hf_lrp.corpus import scoring
from hf_lrp.corpus.calibration import Calibration
from hf_lrp.corpus.scoring import score_translation
from hf_lrp.data.locks import one_writer
from hf_lrp.models.loading import load_checkpoint

WORDS = ["cat", "dog", "house", "street", "big", "small"]
PAIRS = [(f"the {a} is in the {b}", f"a {b} and {a} eats") for a in WORDS[:4] for b in WORDS[3:]]

EXPLAIN = Explainer.explain


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(save_checkpoint(tmp_path_factory.mktemp("tiny")))


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
    arguments = ["--data", str(folder / "pairs.tsv"), "--out", str(folder / "scores.jsonl"), "--threshold", "0"]
    assert main(["score", model, *arguments]) == 0
    return folder


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_are_the_scores_of_the_pairs(model, scored):
    rows, calibration = read(scored / "scores.jsonl"), Calibration.load(scored / "scores.jsonl.calibration.json")
    assert [(row["source"], row["translation"]) for row in rows] == PAIRS
    assert calibration.sentences == len({source for source, _ in PAIRS})
    loaded, tokenizer = load_checkpoint(model)
    contributions = explain(loaded, tokenizer, *PAIRS[3], predict="target")
    expected = score_translation(contributions, calibration, threshold=0)
    assert rows[3]["score"] == pytest.approx(expected.score, rel=1e-4)
    assert rows[3]["words"] == ["a", "street", "and", "dog", "eats"] == list(expected.words)
    assert rows[3]["flagged"] == list(expected.flagged)
    assert not list(scored.glob("*.partial"))


def test_a_table_has_the_same_numbers(model, data, scored, tmp_path, capsys):
    out = tmp_path / "new" / "scores.tsv"
    calibration = str(scored / "scores.jsonl.calibration.json")
    arguments = ["--data", data, "--out", str(out), "--calibration", calibration, "--threshold", "0"]
    assert main(["score", model, *arguments]) == 0
    with out.open(newline="") as file:
        table = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    for row, expected in zip(table, read(scored / "scores.jsonl"), strict=True):
        assert float(row["score"]) == pytest.approx(expected["score"], abs=1e-4)
        assert float(row["log_probability"]) == pytest.approx(expected["log_probability"], abs=1e-4)
        words = zip(expected["words"], expected["flagged"], strict=True)
        assert row["flagged"] == " ".join(word for word, flag in words if flag)
        assert (row["source"], row["translation"]) == (expected["source"], expected["translation"])
    assert f"wrote {out}: 12 pairs" in capsys.readouterr().err
    assert not out.with_name("scores.tsv.calibration.json").exists()  # the given one is used where it is


def test_the_page_has_the_lowest_scores(model, data, scored, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scoring, "MOST_ON_PAGE", 5)
    out, page = tmp_path / "scores.jsonl", tmp_path / "new" / "scores.html"
    calibration = str(scored / "scores.jsonl.calibration.json")
    arguments = ["--data", data, "--out", str(out), "--html", str(page), "--calibration", calibration]
    assert main(["score", model, *arguments]) == 0
    assert capsys.readouterr().err.endswith(f"wrote {page}\n")
    rows, text = read(out), page.read_text(encoding="utf-8")
    entries = read_page(text)["entries"]
    assert sorted(entry["score"] for entry in entries) == pytest.approx(
        sorted(row["score"] for row in rows)[:5], abs=1e-5
    )
    assert "the 5 lowest scores of 12" in text
    for entry in entries:
        row = rows[entry["number"] - 1]
        (result,) = entry["results"]
        assert entry["score"] == pytest.approx(row["score"], abs=1e-5)
        assert result["mean"] == pytest.approx(row["source_total"], abs=1e-4)
        assert result["levels"]["token"]["usual"][1][0] is not None


def test_page_and_scores_need_files_of_their_own(model, data, tmp_path, capsys):
    out = str(tmp_path / "scores.tsv")
    with pytest.raises(SystemExit):
        main(["score", model, "--data", data, "--out", out, "--html", out])
    assert "give --html its own file" in capsys.readouterr().err


def interrupt_after(monkeypatch, number: int) -> list:
    """Let `Explainer.explain` raise as Ctrl-C does, from the given call on; returns the list of its calls."""
    calls: list = []

    def limited(*args, **options):
        calls.append(args)
        if len(calls) > number:
            raise KeyboardInterrupt
        return EXPLAIN(*args, **options)

    monkeypatch.setattr(Explainer, "explain", limited)
    return calls


def test_an_interrupted_run_goes_on(model, data, scored, tmp_path, monkeypatch):
    out = tmp_path / "scores.jsonl"
    arguments = ["score", model, "--data", data, "--out", str(out), "--threshold", "0"]
    shutil.copy(scored / "scores.jsonl.calibration.json", tmp_path)
    interrupt_after(monkeypatch, 5)
    assert main(arguments) == 130
    assert not out.exists() and out.with_name("scores.jsonl.partial").exists()
    calls = interrupt_after(monkeypatch, 100)
    assert main(arguments) == 0
    assert len(calls) == len(PAIRS) - 5
    assert out.read_bytes() == (scored / "scores.jsonl").read_bytes()


def test_unfinished_work_of_another_kind_is_kept(model, data, scored, tmp_path, monkeypatch, capsys):
    out = tmp_path / "scores.jsonl"
    arguments = ["score", model, "--data", data, "--out", str(out)]
    shutil.copy(scored / "scores.jsonl.calibration.json", tmp_path)
    interrupt_after(monkeypatch, 1)
    assert main(arguments) == 130
    assert main([*arguments, "--threshold", "-1"]) == 1
    assert "other settings (threshold): remove it" in capsys.readouterr().err


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
    assert "too few to know how much a model usually depends on its source" in capsys.readouterr().err


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
