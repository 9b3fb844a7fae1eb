"""Write the tables of docs/referee.md anew, and its figure, from the answers that are kept.

    python recipes/referee/referee_page.py

Tables stand between `<!-- table NAME -->` and `<!-- end -->`; the rest of the page stays as it is. Names: `advice`
(what to take for each question), `answers` (by model), `tokens`, `source`, ... (a question's figures), `further
tokens`, ... (its other figures), `costs`, `layers` (word links, layer by layer).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from judgement.questions import QUESTIONS, Question
from referee_advice import Advice, advise
from referee_figure import draw
from referee_names import in_order, name_of

from hf_lrp.data.files import write_atomically
from hf_lrp.data.json_files import read_json
from hf_lrp.pictures.look import printed_look

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).parent / "results"
PAGE_FILE, PICTURE = ROOT / "docs" / "referee.md", ROOT / "docs" / "images" / "referee.png"
MARKS = {"better": " ▲", "worse": " ▼", "alike": " ≈", "open": "", None: ""}
_TABLE = re.compile(r"(<!-- table ([^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)

Answers = Mapping[str, Mapping[str, Any]]  # by subject, by question
Costs = Mapping[str, Any]  # by subject


def main(arguments: list[str] | None = None) -> None:
    """Fill the page, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=KEPT, help="folder with answers.json and costs.json")
    parser.add_argument("--page", type=Path, default=PAGE_FILE)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    args = parser.parse_args(arguments)
    answers = read_json(args.results / "answers.json")
    costs, layers = (_read(args.results / name) for name in ("costs.json", "link_layers.json"))
    page = fill(args.page.read_text(encoding="utf-8"), answers, costs, layers)
    write_atomically(args.page, page.encode())
    with printed_look():
        draw(answers).savefig(args.picture, dpi=200)


def _read(path: Path) -> Mapping[str, Any]:
    return read_json(path) if path.exists() else {}


def fill(page: str, answers: Answers, costs: Costs, layers: Mapping[str, Any]) -> str:
    """The page with its tables written anew."""
    tables = {
        "advice": lambda: advice_table(answers, costs),
        "answers": lambda: answer_table(answers),
        "costs": lambda: cost_table(costs),
        "layers": lambda: layer_table(layers),
    }
    for question in QUESTIONS:
        tables[question.name] = lambda question=question: question_table(question, answers)
        tables[f"further {question.name}"] = lambda question=question: further_table(question, answers)
    return _TABLE.sub(lambda match: f"{match[1]}\n{tables[match[2]]()}\n\n{match[3]}", page)


def advice_table(answers: Answers, costs: Costs) -> str:
    """Question → what to take → how much better than the next → what it costs."""
    rows = [("question", "take", "better than the next by", "seconds per sentence", "made for it")]
    for question in QUESTIONS:
        found = {subject: given[question.name] for subject, given in answers.items() if question.name in given}
        if found:
            advice = advise(question, found)
            taken = _taken(advice) if advice.take else _by_model(question, found)
            rows.append((question.title, taken, _lead(advice), _seconds(advice, costs), _beside(found)))
    return _lines(rows)


def answer_table(answers: Answers) -> str:
    """The method that wins, by question and model, with its lead over the next."""
    rows = [("question", *answers)]
    for question in QUESTIONS:
        cells = [_winner(given.get(question.name)) for given in answers.values()]
        if any(cells):
            rows.append((question.title, *cells))
    return _lines(rows)


def question_table(question: Question, answers: Answers) -> str:
    """A question's figures on the test half, by method and model, marked against the baseline."""
    found = {subject: given[question.name] for subject, given in answers.items() if question.name in given}
    sizes = [f"{subject}, {one['sentences']}" for subject, one in found.items()]
    rows = [("method", *sizes)]
    for name in in_order(name for one in found.values() for name in one["standings"]):
        rows.append((name_of(name), *(_standing(one["standings"].get(name)) for one in found.values())))
    return _lines(rows)


def further_table(question: Question, answers: Answers) -> str:
    """A question's figures without a verdict, by method: one column for each of them and model."""
    found = {subject: given[question.name] for subject, given in answers.items() if question.name in given}
    titles = [title for title, _ in question.further]
    rows = [("model", "method", *titles)]
    for subject, one in found.items():
        for name in in_order(one["standings"]):
            figures = one["standings"][name]["further"]
            rows.append((subject, name_of(name), *(_interval(figure) for figure in figures)))
    return _lines(rows)


def cost_table(costs: Costs) -> str:
    """Seconds and memory per sentence, by method and model."""
    rows = [("method", *costs)]
    for name in in_order(name for one in costs.values() for name in one["methods"]):
        rows.append((name_of(name), *(_cost(one["methods"].get(name)) for one in costs.values())))
    return _lines(rows)


def layer_table(layers: Mapping[str, Any]) -> str:
    """Error rates of word links by layer and step, on each model."""
    steps = {"predicts": "predicted", "reads": "read"}
    rows = [("values", *(f"{subject}, where {step}" for subject in layers for step in steps.values()))]
    for name in dict.fromkeys(name for one in layers.values() for name in one):
        found = [one.get(name) for one in layers.values()]
        rows.append((name, *("" if one is None else f"{one[step]:.3f}" for one in found for step in steps)))
    return _lines(rows)


def _by_model(question: Question, found: Answers) -> str:
    """The winners by model, and what may be taken on all models without one."""
    parts = [f"{subject} **{name_of(one['winner'])}**" for subject, one in found.items() if one["winner"] is not None]
    others = {subject: one for subject, one in found.items() if one["winner"] is None}
    take = advise(question, others).take if others else ()
    if take:
        parts.append(f"others {', '.join(map(name_of, take))}")
    return f"depends on the model: {'; '.join(parts)}" if parts else "depends on the model"


def _taken(advice: Advice) -> str:
    if len(advice.take) > 1:
        return "no winner: " + ", ".join(map(name_of, advice.take))
    return f"**{name_of(advice.take[0])}**"


def _lead(advice: Advice) -> str:
    if not advice.leads:
        return ""
    low, high = f"{min(advice.leads):.2f}", f"{max(advice.leads):.2f}"
    return low if low == high else f"{low} to {high}"


def _seconds(advice: Advice, costs: Costs) -> str:
    """Of each method that may be taken, over models."""
    cells = []
    for name in advice.take:
        taken = [one["methods"][name]["seconds"] for one in costs.values() if name in one["methods"]]
        if taken:
            cells.append(f"{name_of(name)} {min(taken):.2f} to {max(taken):.2f}")
    return "; ".join(cells)


def _beside(found: Answers) -> str:
    """What is made for a question, and by how much it leads the first of the methods, by model."""
    made = {name for one in found.values() for name in one["beside"] if name.startswith("hf")}
    return "; ".join(
        f"`{name}`: " + ", ".join(f"{one['beside'][name][0]:+.2f}" for one in found.values() if name in one["beside"])
        for name in sorted(made)
    )


def _winner(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    if found["winner"] is not None:
        return f"**{name_of(found['winner'])}**, by {_interval(found['ahead'])}"
    return f"none: {', '.join(name_of(name) for name in (found['first'], *found['rivals']))}"


def _standing(one: Mapping[str, Any] | None) -> str:
    return "" if one is None else f"{_interval(one['figure'])}{MARKS[one['against']]}"


def _interval(figure: Sequence[float]) -> str:
    value, low, high = figure
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _cost(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return ""
    memory = "" if one["bytes"] is None else f", {one['bytes'] / 2**20:.0f} MiB"
    return f"{one['seconds']:.2f} s{memory}"


def _lines(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = rows
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rest))


if __name__ == "__main__":
    main()
