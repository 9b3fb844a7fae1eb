"""`hf-lrp analyze`: what it prints and writes, and how it fails."""

import json
from pathlib import Path

import pytest
import torch
from tiny_checkpoint import save_checkpoint

from hf_lrp import explain, load
from hf_lrp.commands.cli import main
from hf_lrp.corpus import Run
from hf_lrp.methods import ALTI

LINES = ["the cat\ta dog", "a cat sees\tthe dog", "the dog\tthe house", "a dog eats it\the is big", "we eat\tit is"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_checkpoint(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(LINES) + "\n")
    return str(path)


def analyze(*arguments: str) -> int:
    return main(["analyze", *arguments])


def failure(capsys, *arguments: str) -> str:
    assert analyze(*arguments) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("hf-lrp: error: ")
    return last


def test_it_evaluates_and_shows_the_overall_figures(tmp_path, model, data, capsys):
    out = tmp_path / "new" / "run"
    options = ["--number", "2", "--prefix", "random", "reference", "--label", "tiny", "--max-memory", "1GB"]
    assert analyze(model, "--data", data, "--out", str(out), *options) == 0
    printed, said = capsys.readouterr()
    assert "2 pairs with 3 source and 3 target tokens" in " ".join(printed.split()) and said.endswith(f"wrote {out}\n")
    run = Run.open(out)
    assert (run.name, run.prefixes, run.lengths) == ("tiny", ("random", "reference"), (3, 3))
    for prefix in run.prefixes:
        row = next(line for line in printed.splitlines() if line.strip().startswith(prefix)).split()
        assert row[1] == f"{run.metrics[prefix]['source_total']:.3f}"
        assert row[4] == f"{run.metrics[prefix]['accuracy']:.3f}"


def test_columns_lengths_and_beams(tmp_path, model):
    path = tmp_path / "pairs.jsonl"
    rows = [dict(zip(("en", "xx"), line.split("\t"), strict=True)) for line in LINES]
    path.write_text("\n".join(map(json.dumps, rows)))
    out = tmp_path / "run"
    columns = ["--source-column", "en", "--target-column", "xx"]
    options = ["--lengths", "4,3", "--number", "1", "--prefix", "model", "--num-beams", "2"]
    assert analyze(model, "--data", str(path), "--out", str(out), *columns, *options) == 0
    run = Run.open(out)
    assert [sentence.pair for sentence in run.rows("model")] == [1]
    assert run.manifest["generate"] == {"num_beams": 2} and run.lengths == (4, 3)


def test_two_text_files_and_mixed_lengths(tmp_path, model, capsys):
    for side, place in (("en", 0), ("xx", 1)):
        (tmp_path / f"text.{side}").write_text("\n".join(line.split("\t")[place] for line in LINES))
    files = [str(tmp_path / "text.en"), str(tmp_path / "text.xx")]
    options = ["--lengths", "mixed", "--longest", "4", "--prefix", "reference", "--number", "3", "--seed", "1"]
    assert analyze(model, "--data", *files, "--out", str(tmp_path / "run"), *options) == 0
    assert "3 pairs with mixed lengths" in capsys.readouterr().out
    run = Run.open(tmp_path / "run")
    assert run.lengths is None and run.manifest["selection"]["request"]["longest"] == 4


def test_errors_say_what_to_do(tmp_path, model, data, capsys):
    out = str(tmp_path / "run")
    said = failure(capsys, model, "--data", data, "--out", out, "--lengths", "20,23")
    assert "None of the 5 pairs has 20 source and 23 target tokens" in said and "3,3 (3)" in said
    empty = tmp_path / "empty.tsv"
    empty.write_text("")
    assert "empty" in failure(capsys, model, "--data", str(empty), "--out", out)
    table = tmp_path / "table.jsonl"
    table.write_text(json.dumps({"en": "the cat", "target": "a dog"}) + "\n")
    said = failure(capsys, model, "--data", str(table), "--out", out)
    assert "no column 'source', only 'en', 'target'" in said
    assert "not a file" in failure(capsys, model, "--data", "./missing.txt", "--out", out)
    assert not Path(out).exists()


def test_a_folder_of_another_evaluation_is_refused(tmp_path, model, data, capsys):
    arguments = [model, "--data", data, "--out", str(tmp_path / "run"), "--number", "2", "--prefix", "reference"]
    assert analyze(*arguments) == 0
    said = failure(capsys, *arguments, "--seed", "2")
    assert "seed was 0 and is 2" in said and "another folder" in said
    arguments[0] = "no/such/model"  # which is not looked for
    said = failure(capsys, *arguments, "--rule", "epsilon:0.1")
    assert 'rule was "AlphaBeta(alpha=1.0, beta=0.0)" and is "Epsilon(eps=0.1)"' in said


def test_another_method_whose_shares_sum_to_one(tmp_path, model, data, capsys):
    options = ["--number", "1", "--prefix", "reference", "--method", "alti"]
    assert analyze(model, "--data", data, "--out", str(tmp_path / "run"), *options) == 0
    run = Run.open(tmp_path / "run")
    (row,), (result,) = list(run.rows("reference")), list(run.results("reference"))
    pair = LINES[row.pair].split("\t")
    loaded = load(model)
    expected = explain(*loaded, pair[0], pair[1], method=ALTI())
    torch.testing.assert_close(result.source, expected.source, rtol=0, atol=1e-6)
    assert result.method == expected.method and result.method.name == "ALTI"
    assert not torch.allclose(result.source, explain(*loaded, *pair).source, atol=1e-3)
    said = failure(capsys, model, "--data", data, "--out", str(tmp_path / "run"), *options[:-2])
    assert "ALTI" in said and "another folder" in said


@pytest.mark.parametrize("method", ["attnlrp", "gradient-input", "erasure"])
def test_methods_with_signs_are_refused_before_anything_is_written(tmp_path, model, data, capsys, method):
    said = failure(capsys, model, "--data", data, "--out", str(tmp_path / "run"), "--method", method)
    assert "shares that sum to 1" in said and "ALTI()" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lengths", "20"], "neither auto nor mixed nor two numbers such as 20,23"),
        (["--lengths", "0,3"], "neither auto"),
        (["--number", "0"], "not a number from 1 to"),
        (["--prefix", "model", "model"], "lists a type twice"),
        (["--prefix", "reference", "--num-beams", "4"], "--num-beams is for --prefix model"),
        (["--max-memory", "much"], "not a size"),
        (["--rule", "alpha:1"], "is none of alphabeta:A,B"),
        (["--seed", "-1"], "not a number from 0 to"),
    ],
)
def test_usage_errors(options, message, capsys):
    with pytest.raises(SystemExit) as stop:
        analyze("--data", "pairs.tsv", "--out", "run", *options)
    assert stop.value.code == 2 and message in capsys.readouterr().err
