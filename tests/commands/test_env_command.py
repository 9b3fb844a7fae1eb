"""`hf-lrp env` says what is in use."""

import pytest
import torch

from hf_lrp.commands.cli import main
from hf_lrp.relevance import compiled


def lines(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert main(["env"]) == 0
    out = capsys.readouterr().out.splitlines()
    return {name.strip(): value for name, value in (line.split("  ", 1) for line in out)}


def test_versions_threads_and_devices(capsys: pytest.CaptureFixture[str]) -> None:
    found = lines(capsys)
    assert found["torch"].strip().partition("+")[0] == torch.__version__.partition("+")[0]  # the build may be left out
    assert found["threads"].strip() == str(torch.get_num_threads())
    assert found["devices"].strip().startswith("cpu")


def test_the_compiled_part_in_use(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(compiled.VARIABLE, raising=False)
    level = compiled.level()
    assert lines(capsys)["compiled part"] == (
        f"in use, {level}" if level else "not built, or from other sources: install a C compiler, then hf-lrp again"
    )
    monkeypatch.setenv(compiled.VARIABLE, "off")
    if level:
        assert lines(capsys)["compiled part"] == "switched off by HF_LRP_COMPILED"
