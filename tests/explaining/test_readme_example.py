"""The README's example runs as it is written, with the embedded model in place of one from the Hub."""

import re
from pathlib import Path

import hf_lrp

README = Path(__file__).parents[2] / "README.md"


def test_the_readmes_example_runs(tmp_path, monkeypatch, capsys):
    section = README.read_text(encoding="utf-8").split("## Use it")[1]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hf_lrp, "load", lambda name, load=hf_lrp.load: load())
    found = {}
    exec(code, found)
    assert (tmp_path / "contributions.png").stat().st_size > 10_000
    assert "mean R(source) from step 2 on" in capsys.readouterr().out
    assert found["why"].predict == "contrastive" and len(found["why"]) == 1
    assert len(found["results"]) == 2
