"""Write the tables of docs/referee.md anew, and its figure, from the answers that are kept.

    python recipes/referee/referee_page.py

Tables stand between `<!-- table NAME -->` and `<!-- end -->`; the rest of the page stays as it is. Names: `answers` (a
row for each question), `tokens`, `source`, ... (a question's figures), `costs`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from judgement.questions import BASELINE, QUESTIONS, Question
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hf_lrp.data.files import write_atomically
from hf_lrp.data.json_files import read_json
from hf_lrp.pictures.look import PAGE, curve_style, printed_look

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "recipes" / "results" / "referee"
PAGE_FILE, PICTURE = ROOT / "docs" / "referee.md", ROOT / "docs" / "images" / "referee.png"
NAMES = {
    BASELINE: "αβ-LRP, the paper's",
    "attn-lrp": "AttnLRP",
    "alti": "ALTI",
    "attention": "attention",
    "gradient-norm": "gradient norm",
    "gradient-x-input": "gradient × input",
    "erasure": "erasure",
    "random-1": "random order",
    "random-2": "random order, again",
    "random-3": "random order, once more",
    "nearest": "nearest tokens",
}
MARKS = {"better": " ▲", "worse": " ▼", "alike": " ≈", "open": "", None: ""}
_TABLE = re.compile(r"(<!-- table ([^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)

Answers = Mapping[str, Mapping[str, Any]]  # by subject, by question


def main(arguments: list[str] | None = None) -> None:
    """Fill the page, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=KEPT, help="folder with answers.json and costs.json")
    parser.add_argument("--page", type=Path, default=PAGE_FILE)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    args = parser.parse_args(arguments)
    answers = read_json(args.results / "answers.json")
    costs = args.results / "costs.json"
    page = fill(args.page.read_text(encoding="utf-8"), answers, read_json(costs) if costs.exists() else {})
    write_atomically(args.page, page.encode())
    with printed_look():
        figure = draw(answers)
        figure.savefig(args.picture, dpi=200)


def fill(page: str, answers: Answers, costs: Mapping[str, Mapping[str, float]]) -> str:
    """The page with its tables written anew."""
    tables = {"answers": lambda: answer_table(answers), "costs": lambda: cost_table(costs)}
    tables |= {question.name: lambda question=question: question_table(question, answers) for question in QUESTIONS}
    return _TABLE.sub(lambda match: f"{match[1]}\n{tables[match[2]]()}\n\n{match[3]}", page)


def answer_table(answers: Answers) -> str:
    """Question → the method that wins, by model, with its lead over the next."""
    lines = [_row("question", *answers), _row(*["---"] * (len(answers) + 1))]
    for question in QUESTIONS:
        cells = [_winner(answers[subject].get(question.name)) for subject in answers]
        if any(cells):
            lines.append(_row(question.title, *(cell or "" for cell in cells)))
    return "\n".join(lines)


def question_table(question: Question, answers: Answers) -> str:
    """A question's figures on the test half, by method and model, marked against the baseline."""
    found = {subject: given[question.name] for subject, given in answers.items() if question.name in given}
    methods = dict.fromkeys(name for one in found.values() for name in one["standings"])
    order = sorted(methods, key=lambda name: list(NAMES).index(name) if name in NAMES else len(NAMES))
    lines = [_row("method", *found), _row(*["---"] * (len(found) + 1))]
    for name in order:
        lines.append(_row(name_of(name), *(_standing(one["standings"].get(name)) for one in found.values())))
    return "\n".join(lines)


def cost_table(costs: Mapping[str, Mapping[str, float]]) -> str:
    """Seconds per sentence, by method and model."""
    methods = dict.fromkeys(name for one in costs.values() for name in one)
    lines = [_row("method", *costs), _row(*["---"] * (len(costs) + 1))]
    for name in methods:
        cells = [f"{one[name]:.2f}" if name in one else "" for one in costs.values()]
        lines.append(_row(name_of(name), *cells))
    return "\n".join(lines)


def draw(answers: Answers) -> Figure:
    """Differences to the baseline with their intervals, a panel for each question."""
    questions = [one for one in QUESTIONS if any(one.name in given for given in answers.values())]
    columns = 2
    rows = -(-len(questions) // columns)
    figure = Figure(figsize=(PAGE, 2.1 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, question in zip(axes, questions, strict=False):
        _draw_question(ax, question, answers)
    for ax in axes[len(questions) :]:
        ax.remove()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def name_of(method: str) -> str:
    """What readers call a method."""
    return NAMES.get(method, method)


def _draw_question(ax: Axes, question: Question, answers: Answers) -> None:
    methods = [name for name in NAMES if name != BASELINE and not name.startswith("random-")]
    present = [name for name in methods if any(name in _standings(given, question) for given in answers.values())]
    for number, (subject, given) in enumerate(answers.items()):
        standings = _standings(given, question)
        shift = 0.18 * (number - (len(answers) - 1) / 2)
        points = [
            (place + shift, standings[name]["difference"]) for place, name in enumerate(present) if name in standings
        ]
        style = curve_style(number) | {"linestyle": "none"}
        heights = [place for place, _ in points]
        values = [value for _, (value, _, _) in points]
        ends = [[value - low for _, (value, low, _) in points], [high - value for _, (value, _, high) in points]]
        ax.errorbar(values, heights, xerr=ends, label=subject, elinewidth=0.8, **style)
    ax.axvline(0, color="#333333", linewidth=0.6)
    ax.axvspan(-question.minimum, question.minimum, color="#eeeeee", zorder=0)
    ax.set_yticks(range(len(present)), [name_of(name) for name in present])
    ax.invert_yaxis()
    ax.set_title(question.title)
    ax.set_xlabel(f"better than αβ-LRP by{f' ({question.unit})' if question.unit else ''}")


def _standings(given: Mapping[str, Any], question: Question) -> Mapping[str, Any]:
    return given[question.name]["standings"] if question.name in given else {}


def _winner(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    value, low, high = found["ahead"]
    if found["winner"] is not None:
        return f"**{name_of(found['winner'])}**, by {value:.2f} [{low:.2f}, {high:.2f}]"
    return f"none: {', '.join(name_of(name) for name in (found['first'], *found['rivals']))}"


def _standing(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return ""
    value, low, high = one["figure"]
    return f"{value:.2f} [{low:.2f}, {high:.2f}]{MARKS[one['against']]}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
