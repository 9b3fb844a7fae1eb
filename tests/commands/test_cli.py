"""The command line: what it prints and writes, and how it fails."""

import contextlib
import dataclasses
import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import warnings
from pathlib import Path

import pytest
import torch
from packaging.version import Version
from page_reader import read_page
from refused_commands import failure, usage_error
from rich.cells import cell_len
from tiny_checkpoint import save_checkpoint
from tiny_models import RELEASE

import hf_lrp
from hf_lrp import Contributions, ContributionsList
from hf_lrp.commands import demo
from hf_lrp.commands.cli import COMMANDS, build_parser, main
from hf_lrp.corpus.calibration import Calibration
from hf_lrp.corpus.settings import hash_weights
from hf_lrp.inputs.memory import memory_limit
from hf_lrp.models import loading

TWO = ["--source", "the cat sees the dog", "--source", "he eats"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(save_checkpoint(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(autouse=True)
def _no_standard_input(monkeypatch, tmp_path):
    monkeypatch.delenv("HF_LRP_DEBUG", raising=False)
    monkeypatch.chdir(tmp_path)
    pipe(monkeypatch, "")


def pipe(monkeypatch, text: str | bytes) -> None:
    content = text if isinstance(text, bytes) else text.encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))


class TestHelp:
    def test_help_names_all_commands_and_has_examples(self, capsys):
        with pytest.raises(SystemExit) as stop:
            main(["--help"])
        text = capsys.readouterr().out
        assert stop.value.code == 0
        assert "examples:" in text
        assert all(f"\n    {name}  " in text for name in COMMANDS)

    @pytest.mark.parametrize("command", COMMANDS)
    def test_help_of_commands_fits_into_100_columns(self, command, capsys):
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        text = capsys.readouterr().out
        assert stop.value.code == 0
        assert "examples:" in text
        assert max(map(len, text.splitlines())) <= 100

    def test_version(self, capsys):
        with pytest.raises(SystemExit) as stop:
            main(["--version"])
        assert stop.value.code == 0
        assert capsys.readouterr().out == f"hf-lrp {hf_lrp.__version__}\n"

    def test_no_command_shows_the_help_and_is_a_usage_error(self, capsys):
        assert main([]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert "commands:" in err


class TestTable:
    def test_one_sentence(self, model, capsys):
        assert main(["explain", model, "--source", "the cat sees the dog"]) == 0
        out, err = capsys.readouterr()
        lines = out.splitlines()
        assert lines[0] == "source       the cat sees the dog"
        assert lines[1].startswith("translation  ")
        assert "6 source tokens" in out
        assert "R(src) R(tgt)  top source" in out
        assert "\x1b" not in out
        assert all(cell_len(line) <= 80 for line in lines[2:])
        assert err == ""

    def test_several_sentences_are_numbered(self, model, capsys):
        assert main(["explain", model, *TWO]) == 0
        out = capsys.readouterr().out
        assert out.index("sentence 1 of 2") < out.index("sentence 2 of 2") < out.index("source       he eats")

    def test_a_given_target_is_the_prefix_and_shown_as_given(self, model, capsys):
        assert main(["explain", model, "--source", "the cat", "--target", "a cat zzz", "--predict", "target"]) == 0
        out = capsys.readouterr().out
        assert "target  a cat zzz\n" in out
        assert "prefix reference, predict target" in " ".join(out.split())

    def test_a_contrast_of_two_words(self, model, capsys):
        argv = ["--source", "the cat", "--target", "a big cat", "--contrast", "big=small", "--json", "-"]
        assert main(["explain", model, *argv]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["predict"] == "contrastive" and len(shown["source"]) == 1

    def test_words(self, model, capsys):
        assert main(["explain", model, "--source", "the cat", "--words"]) == 0
        out = capsys.readouterr().out
        assert "3 source words" in out
        assert "▁" not in out.split("\n\n")[-1]

    def test_colours_in_a_terminal_only_and_not_with_no_color(self, model, capsys, monkeypatch):
        argv = ["explain", model, "--source", "the cat"]
        for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "120")):
            monkeypatch.setenv(name, value)
        assert main(argv) == 0
        assert "\x1b[1;37;44m" in capsys.readouterr().out
        monkeypatch.setenv("NO_COLOR", "1")
        assert main(argv) == 0
        assert "\x1b[1;37;44m" not in capsys.readouterr().out

    def test_characters_that_the_encoding_lacks_are_escaped(self, model, monkeypatch):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["explain", model, "--source", "the cat"]) == 0
        assert b"\\u2581" in stream.buffer.getvalue()


class TestTexts:
    @pytest.mark.parametrize("argv", [["--source-file", "en.txt"], ["--source-file", "-"], ["--source", "-"], []])
    def test_one_sentence_per_line_from_a_file_or_a_pipe(self, model, argv, capsys, monkeypatch):
        text = "\ufeffthe cat\r\nthe dog \u2028 sees\n\n"
        Path("en.txt").write_text(text, encoding="utf-8", newline="")
        pipe(monkeypatch, text)
        assert main(["explain", model, *argv]) == 0
        out = capsys.readouterr().out
        assert "source       the cat\n" in out
        assert "sentence 2 of 2" in out

    def test_targets_from_a_file(self, model, capsys):
        Path("fr.txt").write_text("a cat\na dog\n")
        assert main(["explain", model, *TWO, "--target-file", "fr.txt"]) == 0
        assert "target  a dog\n" in capsys.readouterr().out

    def test_empty_lines_are_refused(self, model, capsys):
        Path("en.txt").write_text("the cat\n\nthe dog\n")
        error = failure(["explain", model, "--source-file", "en.txt"], capsys)
        assert "en.txt has an empty line (line 2): each line must be a sentence." in error

    def test_empty_input(self, model, capsys):
        assert "standard input is empty: there is nothing to explain." in failure(["explain", model], capsys)
        assert "a sentence is empty" in usage_error(["explain", model, "--source", " "], capsys)

    def test_a_terminal_is_not_waited_for(self, model, capsys, monkeypatch):
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
        assert "error: no text: give --source TEXT or --source-file FILE, or pipe" in usage_error(["explain"], capsys)

    def test_files_that_are_missing_or_no_text(self, model, capsys):
        Path("latin.txt").write_bytes("café".encode("latin-1"))
        error = failure(["explain", model, "--source-file", "latin.txt"], capsys)
        assert "latin.txt is not UTF-8 text (byte 4): convert it first." in error
        error = failure(["explain", model, "--source-file", "nothing.txt"], capsys)
        assert error == "hf-lrp: error: nothing.txt: No such file or directory\n"


class TestPrefix:
    def test_random_prefixes_come_from_the_pool_and_depend_on_the_seed(self, model, capsys):
        Path("pool.txt").write_text("".join(f"{word} is big\n" for word in ("cat", "dog", "house", "street")))
        argv = ["explain", model, "--source", "he eats", "--prefix", "random", "--pool", "pool.txt", "--seed"]
        tables = []
        for seed in ("0", "0", "1", "2", "3"):
            assert main([*argv, seed]) == 0
            tables.append(capsys.readouterr().out)
        assert "\nprefix  ▁" in tables[0]
        assert tables[0] == tables[1]
        assert len(set(tables)) > 1

    def test_the_start_token_can_be_kept(self, model, capsys):
        assert main(["explain", model, "--source", "he", "--start-token", "keep", "--max-memory", "1GB"]) == 0
        assert "start token keep" in " ".join(capsys.readouterr().out.split())

    def test_sizes_are_in_bytes_however_they_are_written(self):
        parsed = build_parser().parse_args(["explain", "--max-memory", "500mib"])
        assert memory_limit(parsed.max_memory, torch.device("cpu")) == 500 * 2**20

    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            (["--prefix", "reference"], "--prefix reference needs --target or --target-file"),
            (["--prefix", "random"], "--prefix random needs --pool FILE, or several sources with their targets"),
            (["--prefix", "random", "--target", "a"], "--prefix random needs --pool FILE"),
            (["--target", "a", "--target", "b"], "1 source but 2 target sentences: give one target per source"),
            (["--max-memory", "much"], "'much' is not a size such as 500MB or 4GB"),
            (["--predict", "best"], "invalid choice: 'best'"),
            (["--source-file", "x"], "not allowed with argument"),
            (["--html", "-"], "only --json can write to standard output"),
            (["--png", "x.pdf"], "--png writes PNG pictures: 'x.pdf' should end with .png"),
            (["--rule", "alphabeta:x,y"], "is none of alphabeta:A,B, epsilon:E and gamma:G"),
            (["--target", "a", "--num-beams", "2"], "--num-beams is for --prefix model"),
            (["--contrast", "banque"], "'banque' is not WORD=OTHER"),
            (["--contrast", "a=b", "--source", "he"], "--contrast is for words of one sentence, and 2 are given"),
            (["--contrast", "a=b", "--predict", "top1"], "leave --predict out"),
            (["--seed", "1.5"], "not a number from 0 to"),
            (["--html", "x", "--json", "./x"], "./x would be written twice: give each output its own file"),
        ],
    )
    def test_usage_errors_come_before_the_model_is_loaded(self, argv, message, capsys):
        assert message in usage_error(["explain", "no/such/model", "--source", "he eats", *argv], capsys)

    def test_a_pool_is_for_random_prefixes(self, capsys):
        Path("pool.txt").write_text("a cat\n")
        error = usage_error(["explain", "no/such/model", "--source", "he", "--pool", "pool.txt"], capsys)
        assert "--pool is for --prefix random" in error


class TestMisspelt:
    """What may have been meant is said, and where the right help is."""

    @pytest.mark.parametrize(
        ("argv", "command", "message"),
        [
            (["explian", "--source", "he"], "explain", "there is no command 'explian': did you mean 'explain'?"),
            (["zzz"], "", "there is no command 'zzz'; commands are explain, demo, app"),
            (["--verison"], "", "there is no option --verison: did you mean --version?"),
            (["explain", "--sorce", "he"], "explain", "there is no option --sorce: did you mean --source?"),
            (["explain", "--source", "he", "--jsn=-"], "explain", "there is no option --jsn: did you mean --json?"),
            (["align", "--model", "m"], "align", "there is no option --model: the model stands alone, as in"),
            (["compare", "--html", "f"], "compare", "there is no option --html ("),
            (["figures", "--otu", "f"], "figures", "there is no option --otu: did you mean --out?"),
            (["explain", "--source", "he", "--zzzz"], "explain", "there is no option --zzzz ("),
            (["explain", "a", "b", "--source", "--"], "explain", "argument --source: expected one argument"),
            (["explain", "--source", "he", "a", "b"], "explain", "unrecognized arguments: b"),
        ],
    )
    def test_commands_and_options(self, argv, command, message, capsys):
        error = usage_error(argv, capsys)
        assert message in error and f"(`hf-lrp {command}".rstrip() + " --help` shows" in error

    def test_shortened_options_are_none(self, capsys):
        error = usage_error(["explain", "no/model", "--source", "he", "--predi", "best"], capsys)
        assert "invalid choice: 'best'" in error


class TestOutputs:
    def test_all_files_of_one_sentence(self, model, capsys):
        outputs = {
            "--html": "out/page.html",
            "--png": "out/a.png",
            "--json": "out/a.json",
            "--save": "out/a.safetensors",
        }
        argv = [item for pair in outputs.items() for item in pair]
        assert main(["explain", model, "--source", "the cat", *argv]) == 0
        out, err = capsys.readouterr()
        assert "source       the cat" in out
        assert err.splitlines() == [f"wrote {path}" for path in outputs.values()]
        assert sorted(path.name for path in Path("out").iterdir()) == [
            "a.json",
            "a.png",
            "a.safetensors",
            "page.html",
        ]
        saved = Contributions.load("out/a.safetensors")
        assert saved.source_tokens == ("▁the", "▁cat", "</s>")
        assert json.loads(Path("out/a.json").read_text(encoding="utf-8")) == saved.to_dict()
        assert Path("out/a.png").read_bytes().startswith(b"\x89PNG")
        assert Path("out/page.html").read_text(encoding="utf-8") == saved.to_html()

    def test_files_of_several_sentences(self, model, capsys):
        argv = ["--html", "a.html", "--png", "a.b.png", "--json", "a.json", "--save", "saved"]
        assert main(["explain", model, *TWO, *argv]) == 0
        assert sorted(path.name for path in Path().iterdir()) == [
            *("a.b-1.png", "a.b-2.png", "a.html", "a.json", "saved-1", "saved-2")
        ]
        both = [Contributions.load(f"saved-{n}") for n in (1, 2)]
        assert json.loads(Path("a.json").read_text(encoding="utf-8")) == [c.to_dict() for c in both]
        assert Path("a.html").read_text(encoding="utf-8") == ContributionsList(both).to_html()
        assert capsys.readouterr().err.splitlines()[1:3] == ["wrote a.b-1.png", "wrote a.b-2.png"]

    def test_words_are_written_and_the_page_has_pieces_too(self, model):
        assert main(["explain", model, "--source", "the cat", "--words", "--html", "a.html", "--save", "a"]) == 0
        assert Contributions.load("a").level == "word"
        assert "token" in read_page(Path("a.html").read_text(encoding="utf-8"))["entries"][0]["results"][0]["levels"]

    def test_the_page_shows_what_is_usual(self, model, capsys):
        weights = hash_weights(loading.load_checkpoint(model)[0])
        usual = Calibration((0.7,), (0.1,), 20, model=model, weights=weights, sources="s", kept=1.0)
        usual.save("usual.json")
        options = ["explain", model, "--source", "the cat", "--calibration", "usual.json"]
        assert main([*options, "--html", "a.html"]) == 0
        levels = read_page(Path("a.html").read_text(encoding="utf-8"))["entries"][0]["results"][0]["levels"]
        assert [mean for mean, _ in levels["token"]["usual"][1:]] == [0.7] * (len(levels["token"]["steps"]) - 1)
        assert "--calibration is for the page" in usage_error(options, capsys)
        assert "without the start token" in usage_error([*options, "--html", "a", "--start-token", "keep"], capsys)
        dataclasses.replace(usual, weights="others").save("usual.json")
        assert "with other weights" in failure([*options, "--html", "a.html"], capsys)

    def test_ten_files_sort_by_their_numbers(self, model):
        Path("en.txt").write_text("he eats\n" * 10)
        assert main(["explain", model, "--source-file", "en.txt", "--save", "c"]) == 0
        assert sorted(path.name for path in Path().glob("c-*"))[::9] == ["c-01", "c-10"]

    def test_json_on_standard_output_stands_alone(self, model, capsys):
        assert main(["explain", model, "--source", "the cat", "--words", "--json", "-"]) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["level"] == "word"
        assert err == ""

    @pytest.mark.parametrize("option", ["--html", "--png", "--json", "--save"])
    def test_a_file_that_cannot_be_written_fails_before_the_model_is_loaded(self, option, capsys):
        Path("file").write_text("")
        Path("folder").mkdir()
        Path("folder.png").mkdir()
        for path, reason in (("file/x.png", "File exists"), ("folder.png", "it is a folder")):
            error = failure(["explain", "no/such/model", "--source", "he", option, path], capsys)
            assert error == f"hf-lrp: error: cannot write {path}: {reason}\n"

    def test_an_old_file_stays_if_something_fails(self, capsys):
        Path("page.html").write_text("old")
        assert "does not exist" in failure(["explain", "./no", "--source", "he", "--html", "page.html"], capsys)
        assert Path("page.html").read_text() == "old"

    def test_links_and_devices_are_written_to_not_replaced(self, model):
        Path("link.json").symlink_to("real.json")
        assert main(["explain", model, "--source", "he", "--json", "link.json", "--html", os.devnull]) == 0
        assert Path("link.json").is_symlink()
        assert json.loads(Path("real.json").read_text(encoding="utf-8"))
        assert not Path(os.devnull).is_file()


class TestFailures:
    def test_a_checkpoint_that_cannot_be_loaded(self, capsys):
        error = failure(["explain", "./nothing", "--source", "he"], capsys)
        assert error == "hf-lrp: error: The folder ./nothing does not exist.\n"

    def test_a_sentence_that_is_too_long(self, model, capsys):
        error = failure(["explain", model, "--source", "the cat " * 20], capsys)
        assert "the model has only 32 positions" in error

    @pytest.mark.parametrize("argv", [["--debug"], []])
    def test_a_traceback_is_shown_for_debugging_only(self, argv, capsys, monkeypatch):
        monkeypatch.setenv("HF_LRP_DEBUG", "0" if argv else "1")
        assert main(["explain", "./nothing", "--source", "he", *argv]) == 1
        assert "Traceback" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("error", "message"),
        [
            (KeyError("x"), "KeyError: 'x' (unexpected; --debug shows where)"),
            (MemoryError(), "out of memory; give less with --max-memory, for example --max-memory 1GB, or shorter"),
            (
                RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes"),
                "out of memory; give",
            ),
            (ValueError("two\nlines"), "two lines"),
        ],
    )
    def test_any_error_is_one_line(self, error, message, capsys, monkeypatch):
        def fail(_):
            raise error

        monkeypatch.setattr(demo, "run", fail)
        assert failure(["demo"], capsys).startswith(f"hf-lrp: error: {message}")

    def test_an_interrupt(self, capsys, monkeypatch):
        def interrupt(_):
            raise KeyboardInterrupt

        monkeypatch.setattr(demo, "run", interrupt)
        assert main(["demo"]) == 130
        assert capsys.readouterr().err == "hf-lrp: interrupted\n"

    def test_warnings_are_one_line(self, capsys, monkeypatch):
        monkeypatch.setattr(demo, "run", lambda _: warnings.warn("no font\nfor this", stacklevel=1))
        assert main(["demo"]) == 0
        assert capsys.readouterr().err == "hf-lrp: warning: no font for this\n"


def test_demo(model, capsys, monkeypatch):
    monkeypatch.setattr(loading, "EMBEDDED_MODEL", Path(model))
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert f"source       {demo.SENTENCE}" in out
    assert "R(src) R(tgt)" in out
    for name in ("contributions.png", "contributions.html"):
        path = Path("hf-lrp-demo") / name
        assert path.stat().st_size > 1000
        assert str(path) in out
    assert main(["demo", "--out", "elsewhere/deep"]) == 0
    assert Path("elsewhere/deep/contributions.png").exists()


def start(*argv: str, **streams) -> subprocess.Popen:
    """`hf-lrp explain` in a process of its own, with real pipes or a real terminal."""
    environment = os.environ | {"PYTHONPATH": str(Path(hf_lrp.__file__).parents[1]), "TERM": "xterm"}
    return subprocess.Popen([sys.executable, "-m", "hf_lrp", "explain", *argv], env=environment, **streams)


@pytest.mark.skipif(Version("5.8") > RELEASE, reason="this release of transformers writes to standard output itself")
def test_a_reader_that_leaves_early_is_no_error(model):
    Path("en.txt").write_text("the cat sees the dog\n" * 12)
    argv = ["--source-file", "en.txt", "--json", "a.json"]
    with start(model, *argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pipesize=4096) as process:
        assert process.stdout.readline() == b"sentence 1 of 12\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
    assert len(json.loads(Path("a.json").read_text(encoding="utf-8"))) == 12


def test_a_terminal_gets_progress_and_colours_but_no_chatter(model):
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    with start(model, *TWO, stdin=inside, stdout=inside, stderr=inside) as process:
        os.close(inside)
        shown = b""
        with contextlib.suppress(OSError), open(terminal, "rb", buffering=0) as screen:  # Linux: EIO at the end
            while part := screen.read(4096):
                shown += part
    assert process.returncode == 0
    assert b"Explaining: 100%" in shown
    assert b"Loading weights" not in shown
    assert b"\x1b[1;37;44m" in shown


def test_the_command_line_starts_without_torch():
    code = "import sys, hf_lrp.commands.cli; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
