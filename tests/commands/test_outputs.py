"""What commands show in the terminal."""

import io
import sys

import pytest
from example_contributions import make_contributions

from hf_lrp.commands.outputs import show


class ClosedPipe(io.StringIO):
    """Standard output whose reader has left."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_the_command_line_learns_that_the_reader_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", ClosedPipe())
    with pytest.raises(BrokenPipeError):  # and not an exit with another code
        show([make_contributions()] * 2, ["a", "b"], ["c", "d"])
