"""The README's example runs as it is written."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_readmes_example_runs(tmp_path, monkeypatch, capsys):
    section = README.read_text(encoding="utf-8").split("## Explain a sentence")[1]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    found = {}
    exec(code, found)
    assert (tmp_path / "contributions.png").stat().st_size > 10_000
    assert "canapé" in (tmp_path / "contributions.html").read_text(encoding="utf-8")
    assert "mean R(source) from step 2 on" in capsys.readouterr().out
    assert found["why"].predict == "contrastive" and len(found["why"]) == 1
    assert len(found["results"]) == 2
