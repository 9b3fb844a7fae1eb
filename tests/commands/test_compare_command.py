"""`hf-lrp compare` and `hf-lrp figures`: files, messages and refusals."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from example_run import write_run, write_shards
from matplotlib.image import imread
from refused_commands import failure, usage_error

from hf_lrp.commands.cli import main
from hf_lrp.corpus.folders import folder_names
from hf_lrp.corpus.timeline import measure_timeline


@pytest.fixture
def drawn(monkeypatch) -> list[str]:
    """The stems of figures, with their folders, instead of the figures themselves."""
    stems: list[str] = []

    def write(chart, folder, *, line):
        stems.append(f"{folder.name}/{chart.stem}")
        return {"svg": b"<svg/>"}

    monkeypatch.setattr("hf_lrp.pictures.figures.write_figure", write)
    return stems


def write_timeline(folder) -> None:
    runs = {
        step: write_run(folder / f"step-{step:06d}", prefixes=["reference"], label=f"step {step}", number=3)
        for step in (100, 200)
    }
    measure_timeline(runs, "reference").save(folder)


class TestFigures:
    def test_one_run_is_drawn_into_the_folder_itself(self, tmp_path, capsys):
        write_run(tmp_path / "run", number=3, prefixes=["model"])
        assert main(["figures", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 0
        stems = ["1-contributions-by-position", "2-source-positions", "3-entropies-by-position"]
        expected = {f"{stem}.{suffix}" for stem in stems for suffix in ("pdf", "svg", "png", "csv")}
        assert {path.name for path in (tmp_path / "out").iterdir()} == expected
        err = capsys.readouterr().err
        assert all(f"wrote {tmp_path / 'out' / stem} (.pdf .svg .png .csv)" in err for stem in stems)

    def test_the_line_below_can_be_left_out(self, tmp_path):
        write_run(tmp_path / "run", number=3, prefixes=["model"])
        name, heights = "1-contributions-by-position.png", []
        for option in ([], ["--no-line"]):
            assert main(["figures", str(tmp_path / "run"), "--out", str(tmp_path / "out"), *option]) == 0
            heights.append(imread(tmp_path / "out" / name).shape[0])
        assert heights[0] > heights[1]

    def test_several_runs(self, tmp_path, drawn):
        for seed, name in enumerate(("a", "b")):
            write_run(tmp_path / name, seed=seed, number=3, prefixes=["model"], label="run: " + name)
        argv = ["figures", str(tmp_path / "a"), str(tmp_path / "b"), "--growth", "--out", str(tmp_path / "out")]
        assert main(argv) == 0
        assert drawn[:2] == ["out/5-side-by-side-model", "out/6-growth-model"]
        assert drawn[2:] == [
            f"run-{name}/{stem}"
            for name in ("a", "b")
            for stem in ("1-contributions-by-position", "2-source-positions", "3-entropies-by-position")
        ]

    def test_a_timeline(self, tmp_path, drawn):
        write_timeline(tmp_path / "base")
        assert main(["figures", str(tmp_path / "base"), "--out", str(tmp_path / "out")]) == 0
        assert [stem.split("-")[0] for stem in drawn] == [f"out/{number}" for number in (7, 8, 9, 10, 11)]

    def test_wrong_commands(self, tmp_path, capsys):
        write_run(tmp_path / "a", number=2)
        run, out = str(tmp_path / "a"), str(tmp_path / "out")
        assert "--growth orders runs" in usage_error(["figures", run, "--growth", "--out", out], capsys)
        assert "2 labels for 1 runs" in usage_error(["figures", run, "--labels", "x", "y", "--out", out], capsys)
        assert "--out" in usage_error(["figures", run], capsys)
        assert not (tmp_path / "out").exists()

    def test_refused_runs_leave_nothing_behind(self, tmp_path, capsys):
        write_run(tmp_path / "a", number=2)
        write_run(tmp_path / "b", number=2, lengths=(3, 3), seed=1)
        out = str(tmp_path / "out")
        message = failure(["figures", str(tmp_path / "a"), str(tmp_path / "b"), "--out", out], capsys)
        assert "differ in lengths" in message
        assert "no manifest.json" in failure(["figures", str(tmp_path), "--out", out], capsys)
        assert not (tmp_path / "out").exists()


class TestCompare:
    def test_files_and_table(self, tmp_path, drawn, capsys):
        for seed, name in enumerate(("a", "b")):
            write_run(tmp_path / name, seed=seed, number=4, prefixes=["reference"])
        runs, out = [str(tmp_path / "a"), str(tmp_path / "b")], tmp_path / "out"
        assert main(["compare", *runs, "--labels", "one", "two", "--out", str(out)]) == 0
        assert {path.name for path in out.iterdir()} == {
            "means.csv",
            "differences.csv",
            "comparison.json",
            "report.html",
        }
        content = json.loads((out / "comparison.json").read_bytes())
        assert [run["label"] for run in content["runs"]] == ["one", "two"]
        page = (out / "report.html").read_text()
        assert all(f'<figure id="{stem}">' in page for stem in ("5-side-by-side-reference", "two/2-source-positions"))
        assert drawn[0] == "figures/5-side-by-side-reference"
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split() == "prefix quantity run mean difference to the first".split()
        assert lines[1].startswith("reference  source contribution") and " one " in lines[1]
        assert len(lines) == 1 + 4 * 2 + 3

    def test_what_is_not_defined_is_a_dash(self, tmp_path, drawn, capsys):
        """Means are from the second step on, and these translations have one; names are as wide as they are shown."""
        for seed, name in enumerate(("base", "日本")):
            write_run(tmp_path / name, seed=seed, number=3, lengths=(4, 1), prefixes=["model"], label=name)
        assert main(["compare", str(tmp_path / "base"), str(tmp_path / "日本"), "--out", str(tmp_path / "out")]) == 0
        out = capsys.readouterr().out
        assert "nan" not in out
        assert "model   source contribution              base  –\n" in out
        assert "model   source contribution              日本  –     –\n" in out

    def test_differences_beyond_zero_have_a_star(self, tmp_path, drawn, capsys):
        run = write_run(tmp_path / "a", number=3, prefixes=["model"])
        manifest = {name: value for name, value in run.manifest.items() if name not in ("shards", "metrics")}
        for name, factor in (("near", 1.00001), ("far", 0.5)):
            sentences = [replace(s, source=s.source * np.float32(factor)) for s in run.rows("model")]
            write_shards(tmp_path / name, manifest, [sentences])
        out = str(tmp_path / "out")
        assert main(["compare", *(str(tmp_path / name) for name in ("a", "near", "far")), "--out", out]) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if "source contribution" in line]
        assert lines[1].endswith("  +0.000 [+0.000, +0.000]")
        assert re.search(r"  -0\.\d{3} \[-0\.\d{3}, -0\.\d{3}\] \*$", lines[2])

    def test_the_checkpoints_of_a_timeline(self, tmp_path, drawn):
        folder = tmp_path / "base"
        write_timeline(folder)
        write_run(folder / "step-000200", prefixes=["reference"], label="step 200", number=3, seed=1)
        assert main(["compare", str(folder), "--out", str(tmp_path / "out")]) == 0
        content = json.loads((tmp_path / "out" / "comparison.json").read_bytes())
        assert [run["label"] for run in content["runs"]] == ["step 100", "step 200"]
        assert [stem.split("-")[0] for stem in drawn] == [f"figures/{number}" for number in (7, 8, 9, 10, 11)]


def test_names_of_folders():
    labels = ["a b", "a-b", "../x", "日本", "///", "a-b-2"]
    names = folder_names(labels)
    assert names[0] == "a-b"
    assert names[2:5] == ["x", "日本", "run"]
    assert len(set(names)) == len(names)
