"""The command line: `hf-lrp COMMAND ...`. Each command is a module of `hf_lrp.commands`, named in `COMMANDS`."""

from __future__ import annotations

import argparse
import difflib
import itertools
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from hf_lrp.commands import align, analyze, app, average, compare, demo, env, explain, figures, heads, score, timeline
from hf_lrp.data.failures import in_one_line, ran_out_of_memory
from hf_lrp.version import __version__

# A command's module has a docstring (its help), `EXAMPLES`, `add_arguments(parser)` and `run(args)`. What takes
# long to import, torch above all, is imported in `run`: help and usage errors come at once.
COMMANDS: dict[str, ModuleType] = {
    "explain": explain,
    "demo": demo,
    "app": app,
    "analyze": analyze,
    "align": align,
    "score": score,
    "heads": heads,
    "timeline": timeline,
    "figures": figures,
    "compare": compare,
    "average": average,
    "env": env,
}

_EXIT_FAILURE, _EXIT_USAGE = 1, 2
_EXIT_INTERRUPTED, _EXIT_BROKEN_PIPE = 128 + signal.SIGINT, 128 + 13  # as shells report these signals


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; help and usage errors exit by themselves, with 0 and 2."""
    parser = build_parser()
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        refuse = parser.error if args.command is None else args.usage_error
        refuse(f"unrecognized arguments: {' '.join(unknown)}")
    if args.command is None:
        parser.print_help(sys.stderr)
        return _EXIT_USAGE
    args.debug = args.debug or os.environ.get("HF_LRP_DEBUG", "0") not in ("", "0")
    _replace_unprintable()
    try:
        with warnings.catch_warnings():
            if not args.debug:
                warnings.showwarning = _print_warning  # type: ignore[assignment]
            COMMANDS[args.command].run(args)
            sys.stdout.flush()
        return 0
    except KeyboardInterrupt:
        print("hf-lrp: interrupted", file=sys.stderr)
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it exits
        return _EXIT_BROKEN_PIPE
    except Exception as error:
        if args.debug:
            traceback.print_exc()
        print(f"hf-lrp: error: {_describe(error)}", file=sys.stderr)
        return _EXIT_FAILURE


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a command in one line, without all that would be right, but with what may be meant."""

    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Remembers what was given, for what is said of mistakes in it."""
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        command = re.match(r"argument COMMAND: invalid choice: '(.*?)'", message)
        unknown = self._unknown_option()
        helpful = self.prog
        if command is not None:
            meant = difflib.get_close_matches(command[1], COMMANDS, 1)
            message = f"there is no command {command[1]!r}"
            message += f": did you mean {meant[0]!r}?" if meant else f"; commands are {', '.join(COMMANDS)}"
            helpful = f"{self.prog} {meant[0]}" if meant else self.prog
        elif unknown is not None:  # also where something else is missing for that reason
            options = [option for option in self._option_string_actions if option != "--help"]  # which is named anyway
            meant = difflib.get_close_matches(unknown, options, 1)
            message = f"there is no option {unknown}" + (f": did you mean {meant[0]}?" if meant else "")
            if unknown == "--model" and any(action.dest == "model" for action in self._actions):
                message = f"there is no option --model: the model stands alone, as in `{self.prog} NAME`"
        self.exit(_EXIT_USAGE, f"{self.prog}: error: {message} (`{helpful} --help` shows what there is)\n")

    def _unknown_option(self) -> str | None:
        """The first argument that is written like an option and is none, nor the beginning of one."""
        known = self._option_string_actions
        for argument in itertools.takewhile(lambda each: each != "--", self._given):
            name = argument.partition("=")[0]
            if re.match(r"--\w", name) and not any(option.startswith(name) for option in known):
                return name
        return None


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(
        prog="hf-lrp",
        description="How much each source token and each prefix token contributes to each prediction\n"
        "of a translation model, by layer-wise relevance propagation.",
        epilog="examples:\n"
        "  hf-lrp demo\n"
        "  hf-lrp explain --source 'Where is the station?'\n"
        "  hf-lrp explain Helsinki-NLP/opus-mt-en-de --source-file sentences.txt --html page.html\n\n"
        "`hf-lrp COMMAND --help` has more on a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"hf-lrp {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for name, module in COMMANDS.items():
        description, examples = (module.__doc__ or "").strip(), module.EXAMPLES.strip("\n")
        command = commands.add_parser(
            name,
            help=_first_sentence(description),
            description=description,
            epilog=f"examples:\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.add_argument(
            "--debug", action="store_true", help="show tracebacks and all messages (or set HF_LRP_DEBUG=1)"
        )
        command.set_defaults(usage_error=command.error)
    return parser


def _first_sentence(text: str) -> str:
    sentence = " ".join(text.split("\n\n")[0].split()).rstrip(".")
    return sentence[0].lower() + sentence[1:]


def _replace_unprintable() -> None:
    """Write characters that the terminal's encoding does not have as escapes instead of failing on them."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _print_warning(message: Warning | str, *_: Any) -> None:
    print(f"hf-lrp: warning: {in_one_line(message).removeprefix('hf_lrp: ')}", file=sys.stderr)


def _describe(error: Exception) -> str:
    """The error in one line."""
    text = in_one_line(error)
    if ran_out_of_memory(error):
        return "out of memory; give less with --max-memory, for example --max-memory 1GB, or shorter sentences"
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError | ValueError | TypeError | ImportError | RuntimeError):
        return text
    return f"{type(error).__name__}: {text} (unexpected; --debug shows where)"
