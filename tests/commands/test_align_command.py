"""`hf-lrp align`: what it writes, how it goes on after an interruption, and how it fails."""

import json
from pathlib import Path

import pytest
from tiny_checkpoint import save_checkpoint

from hf_lrp import Aligner, load
from hf_lrp.commands.cli import main
from hf_lrp.corpus import aligning
from hf_lrp.links.heads import saved_heads

WORDS = ["cat", "dog", "house", "street", "big", "small"]
PAIRS = [(f"the {a} is in the {b}", f"a {b} and {a} eats") for a in WORDS for b in WORDS[3:]]
ALIGN = Aligner.align


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_checkpoint(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    return str(path)


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligning, "SHARD", 5)


@pytest.mark.filterwarnings("ignore:hf_lrp. heads that link words")
def test_lines_are_the_links_of_the_pairs(model: str, data: str, tmp_path: Path, capsys) -> None:
    out = tmp_path / "links.txt"
    assert main(["align", model, "--data", data, "--out", str(out)]) == 0
    aligner = Aligner(*load(model))
    heads = aligner.find_heads([s for s, _ in PAIRS], [t for _, t in PAIRS])
    found = aligner.align([s for s, _ in PAIRS], [t for _, t in PAIRS])
    assert out.read_text() == "".join(f"{each}\n" for each in found)
    assert any(out.read_text().split("\n"))
    assert f"heads: {heads}" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["links.txt", "pairs.tsv"]


@pytest.mark.filterwarnings("ignore:hf_lrp. heads that link words")
def test_interrupted_work_goes_on_where_it_stopped(model: str, data: str, tmp_path: Path, monkeypatch) -> None:
    out, calls = tmp_path / "links.txt", []

    def stop_at_the_third(self, sources, targets, progress=False):
        calls.append(len(sources))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return ALIGN(self, sources, targets, progress)

    monkeypatch.setattr(Aligner, "align", stop_at_the_third)
    assert main(["align", model, "--data", data, "--out", str(out)]) == 130
    assert not out.exists() and calls == [4, 5, 4]
    assert main(["align", model, "--data", data, "--out", str(out), "--strengths"]) == 1  # other settings
    assert main(["align", model, "--data", data, "--out", str(out)]) == 0
    assert calls == [4, 5, 4, 4, 5]  # two shards were there
    whole = tmp_path / "whole.txt"
    assert main(["align", model, "--data", data, "--out", str(whole)]) == 0
    assert out.read_bytes() == whole.read_bytes()


def test_gold_links_choose_heads_which_are_saved(tmp_path: Path) -> None:
    model = save_checkpoint(tmp_path / "model")
    pairs, gold, out = (tmp_path / name for name in ("pairs.tsv", "gold.tsv", "links.txt"))
    pairs.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS[:4]))
    gold.write_text("".join(f"{source}\t{target}\t0-0 1p3 5-1\n" for source, target in PAIRS))
    arguments = ["--data", str(pairs), "--gold", str(gold), "--out", str(out), "--save-heads", "--strengths"]
    assert main(["align", str(model), *arguments]) == 0
    aligner = Aligner(*load(model))
    chosen = saved_heads(aligner.reader.model)
    assert chosen is not None and aligner.heads == chosen
    again = aligner.choose_heads([(s.split(), t.split(), "0-0 1p3 5-1") for s, t in PAIRS])
    assert again.heads == chosen.heads and again.how == chosen.how
    aligner.all_heads = [chosen]
    found = aligner.align(*zip(*PAIRS[:4], strict=True))
    lines = [" ".join(f"{s}-{t}:{x:.2f}" for (s, t), x in sorted(each.strengths.items())) for each in found]
    assert out.read_text().splitlines() == lines
    assert json.loads((model / "generation_config.json").read_text())["alignment_heads"]


def test_both_directions_are_read(model: str, data: str, tmp_path: Path) -> None:
    out = tmp_path / "links.txt"
    with pytest.warns(UserWarning, match="which are few"):
        assert main(["align", model, "--reverse", model, "--data", data, "--out", str(out), "--debug"]) == 0
    aligner = Aligner(*load(model), reverse=load(model))
    with pytest.warns(UserWarning, match="which are few"):
        found = aligner.align(*zip(*PAIRS, strict=True))
    assert out.read_text() == "".join(f"{each}\n" for each in found)


def test_bad_arguments_are_refused(model: str, data: str, tmp_path: Path, capsys) -> None:
    gold, out = tmp_path / "gold.tsv", str(tmp_path / "links.txt")
    gold.write_text("a\tb\n")
    assert main(["align", model, "--data", data, "--gold", str(gold), "--out", out]) == 1
    assert "line 1 has 2 columns" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["align", "--data", data, "--out", out, "--save-heads"])
    assert "give the model as a folder" in capsys.readouterr().err
