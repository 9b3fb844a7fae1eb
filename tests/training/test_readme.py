"""The README's lines on training run as they are written."""

from pathlib import Path

import datasets
import pytest
from toy_corpus import toy_pairs

ROOT = Path(__file__).parents[2]


def test_the_lines_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the model, and sizes, are others."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Train\n")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    embedded = ROOT / "hf_lrp" / "embedded" / "tatoeba-en-fr"
    changes = {
        "Helsinki-NLP/opus-mt-en-fr": str(embedded),
        "[:8]": "[:2]",
        "max_steps=1000": "max_steps=2, source_tokens=400, device_tokens=400, use_cpu=True",
    }
    for old, new in changes.items():
        assert old in code
        code = code.replace(old, new)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    Path("pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in toy_pairs(400, seed=1)), encoding="utf-8")
    names: dict = {}
    exec(code, names)
    assert names["trainer"].state.global_step == 2
    assert len(Path("run/contributions.jsonl").read_text().splitlines()) == 2
