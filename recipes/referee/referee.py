"""Ask every attribution method the same questions about the same models, and decide which to believe.

    accelerate launch recipes/referee/referee.py --place opus-mt-zh-en=FOLDER --place flores-zh=FILE --output OUT

tries the subjects of `subjects.yaml` whose models and files have a place. What is found is kept sentence by sentence
in OUT; the same command goes on where it was interrupted. `--method NAME=package.module:ATTRIBUTE` enters one more
method. When all is tried, OUT/answers.json has the verdicts, beside those of earlier runs on other subjects and
questions, and a table of them is printed.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path

from judgement.decide import Answer, answer
from judgement.evidence import evidence
from judgement.questions import BASELINE, QUESTIONS
from trials import errors
from trials.bench import TRIALS, Bench
from trials.contestants import METHODS, read_method
from trials.subjects import read_subjects

from hf_lrp.corpus.processes import this_process
from hf_lrp.data.json_files import read_json, write_json

SUBJECTS = Path(__file__).parent / "subjects.yaml"


def main(arguments: list[str] | None = None) -> None:
    """Try, then decide."""
    args = read_options(__doc__ or "", arguments)
    benches = benches_of(args)
    for bench in benches:
        for name, trial in TRIALS.items():
            if not args.decide and any(name in TRIALS_OF[question] for question in bench.subject.questions):
                trial(bench)
            this_process().wait_for_everyone()
    if this_process().is_main_process:
        answers = {bench.subject.name: decide(bench) for bench in benches}
        _keep(args.output / "answers.json", answers)
        for name, found in answers.items():
            print(f"\n{name}\n{table(found)}")


def benches_of(args: argparse.Namespace) -> list[Bench]:
    """The subjects that have a place, with the methods that were chosen."""
    places = dict(_place(given) for given in args.place)
    subjects = [one for one in read_subjects(args.study, places) if not args.subject or one.name in args.subject]
    if args.question:
        subjects = [replace(one, questions=tuple(set(one.questions) & set(args.question))) for one in subjects]
    if not subjects:
        raise SystemExit("No subject has its model and file: give their places as --place NAME=PATH.")
    methods = METHODS | dict(read_method(given) for given in args.method)
    chosen = {name: methods[name] for name in methods if not args.only or name in (*args.only, BASELINE)}
    return [Bench(subject, chosen, args.output) for subject in subjects]


# Which trials a question needs.
TRIALS_OF = {
    "tokens": ("values", "faithfulness"),
    "source": ("values", "faithfulness"),
    "prefix": ("values", "faithfulness"),
    "meaning": ("values", "meaning"),
    "links": ("links",),
    **dict.fromkeys(errors.KINDS, ("errors",)),
    "randomisation": ("values", "randomisation"),
}


def decide(bench: Bench) -> dict[str, Answer]:
    """Answers to the subject's questions, by name; without those that nothing was found for."""
    answers = {}
    for question in QUESTIONS:
        if question.name in bench.subject.questions:
            found = evidence(bench, question)
            contestants = [name for name in found if name in bench.methods]
            if BASELINE in contestants and len(contestants) > 1:
                answers[question.name] = answer(question, found, contestants)
    return answers


def table(answers: dict[str, Answer]) -> str:
    """Verdicts and figures, one line per question and method."""
    lines = []
    for name, found in answers.items():
        winner = found.winner or f"none ({found.first} first before, not surely ahead of {', '.join(found.rivals)})"
        lines.append(f"{name}: winner {winner}; {found.sentences} sentences")
        for method, one in found.standings.items():
            figure = "{:8.3f} [{:.3f}, {:.3f}]".format(*one.figure)
            against = "" if one.difference is None else "{:+.3f} [{:+.3f}, {:+.3f}]".format(*one.difference)
            lines.append(f"  {method:18} {figure}  {against} {one.against or ''}")
    return "\n".join(lines)


def _keep(path: Path, answers: dict[str, dict[str, Answer]]) -> None:
    """Write answers beside those that are there of other subjects and questions."""
    kept: dict[str, dict[str, object]] = read_json(path) if path.exists() else {}
    for subject, found in answers.items():
        kept.setdefault(subject, {}).update({name: asdict(one) for name, one in found.items()})
    write_json(path, kept)


def _place(given: str) -> tuple[str, str]:
    name, _, path = given.partition("=")
    if not path:
        raise SystemExit(f"--place {given}: write NAME=PATH.")
    return name, path


def read_options(description: str, arguments: list[str] | None) -> argparse.Namespace:
    """What stands on the command line."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--place", action="append", default=[], help="NAME=PATH of a model or file of the study")
    parser.add_argument("--study", type=Path, default=SUBJECTS, help="file of subjects; default: subjects.yaml here")
    parser.add_argument("--subject", action="append", default=[], help="only this subject; may be repeated")
    parser.add_argument(
        "--question", action="append", default=[], choices=list(TRIALS_OF), help="only this question; may be repeated"
    )
    parser.add_argument("--only", action="append", default=[], help="only this method, beside the paper's")
    parser.add_argument("--method", action="append", default=[], help="one more: NAME=package.module:ATTRIBUTE")
    parser.add_argument("--decide", action="store_true", help="try nothing more: answers from what was found so far")
    parser.add_argument("--output", type=Path, required=True, help="folder of what is found")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
