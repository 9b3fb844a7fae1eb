"""`hf-lrp heads`: what it writes and shows, and how it fails."""

import json
from pathlib import Path

import pytest

from hf_lrp.commands.cli import main
from hf_lrp.corpus import masked_heads
from hf_lrp.corpus.masked_heads import Trial

PAIRS = [
    ("The dog eats.", "Le chien mange."),
    ("I am here.", "Je suis ici."),
    ("She sings well.", "Elle chante bien."),
]


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    return str(path)


def test_it_measures_masks_and_draws(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masked_heads, "TRIALS", [Trial("lowest", 0.5), Trial("highest", 0.5), Trial("random 0", 0.5)])
    out = tmp_path / "heads"
    assert main(["heads", "--data", data, "--number", "2", "--mask", "5", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "2 sentences" in shown and "encoder" in shown and "cross" in shown
    assert "chrF of 1 translations" in shown and "highest less random" in shown
    assert {path.name for path in out.iterdir()} == {"heads.json", "heads.csv", "heads.png", "masked.json"}
    assert (out / "heads.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((out / "heads.json").read_text())["sentences"] == 2


def test_it_refuses_to_mask_without_further_pairs(data: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["heads", "--data", data, "--number", "3", "--mask", "5", "--out", str(tmp_path / "heads")])
    assert not (tmp_path / "heads").exists()
