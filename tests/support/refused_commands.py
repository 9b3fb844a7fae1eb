"""What a command says where it cannot do what it is asked."""

from typing import Any

import pytest

from hf_lrp.commands.cli import main


def usage_error(argv: list[str], capsys: Any) -> str:
    """What is said of a command line that is wrong."""
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 2
    return capsys.readouterr().err


def failure(argv: list[str], capsys: Any) -> str:
    """The one line on standard error, and nothing else, that a failure gives."""
    assert main(argv) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("hf-lrp: error: ") and err.count("\n") == 1
    return err
