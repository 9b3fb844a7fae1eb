"""Random command lines: an exit code of the documented ones, no traceback, and a reason where something is refused."""

import contextlib
import io
import os
from pathlib import Path

import pytest
from example_run import write_run
from fuzzing import numbers_of_cases, try_cases
from hypothesis import strategies as st
from tiny_checkpoint import save_checkpoint
from tiny_tokenizer import WORDS

from hf_lrp.commands.cli import COMMANDS, build_parser, main

VALUES = [
    "1",
    "0",
    "-1",
    "2.5",
    "nan",
    "1e99",
    "",
    " ",
    "auto",
    "mixed",
    "model",
    "random",
    "=1+1",
    "../x",
    "*",
    "\u202e",
    "x" * 300,
]
WITHIN = ["model", "run", "pairs.tsv", "lines.txt", "missing", "new", "out.html", "out.tsv", "out.json", "."]


def options_of(command: str) -> list[str]:
    """The options that a command declares, read off its help."""
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.suppress(SystemExit):
        build_parser().parse_args([command, "--help"])
    words = stream.getvalue().replace(",", " ").replace("]", " ").split()
    return sorted({word.strip("[") for word in words if word.strip("[").startswith("--")})


def run(argv: list[str]) -> tuple[int, str]:
    """Exit code, and what was said."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main(argv)
        except SystemExit as end:
            code = int(end.code or 0)
    return code, said.getvalue()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cases", numbers_of_cases(60, 3000))
def test_no_traceback_and_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cases: int) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("hf_lrp.app.serving.serve", lambda events, **options: None)  # it would never end
    monkeypatch.chdir(tmp_path)
    save_checkpoint(tmp_path / "model")
    write_run(tmp_path / "run", number=4)
    lines = [" ".join(WORDS[start : start + 3]) for start in range(8)]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    (tmp_path / "pairs.tsv").write_text("\n".join(f"{line}\t{line}" for line in lines))
    known = {command: options_of(command) for command in COMMANDS if command != "demo"}
    known = {command: [name for name in names if name != "--debug"] for command, names in known.items()}  # a traceback
    values = st.one_of(st.sampled_from(VALUES), st.sampled_from(WITHIN), st.sampled_from(lines))

    def argument_lists(command: str) -> st.SearchStrategy[list[str]]:
        pieces = st.one_of(values, st.sampled_from(known[command]), st.sampled_from(known[command]))
        return st.lists(pieces, max_size=6).map(lambda given: [command, *given])

    def check(argv: list[str]) -> None:
        code, said = run(argv)
        assert code in (0, 1, 2), (argv, code)
        assert "Traceback" not in said and "(unexpected;" not in said, (argv, said)
        assert code == 0 or "error: " in said or "usage: " in said, (argv, said)
        assert not os.path.exists(tmp_path.parent / "x"), "written outside"

    try_cases(check, cases, st.sampled_from(sorted(known)).flatmap(argument_lists))
