"""The figure of docs/referee.md: how far each method is from the paper's, question by question."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import Any

from judgement.questions import BASELINE, QUESTIONS, Question
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from referee_names import in_order, name_of

from hf_lrp.pictures.look import PAGE, curve_style

COLUMNS = 2
WIDTH = 40  # of a title, in letters
SPREAD = 0.6  # of a method's row, over which models are spread


def draw(answers: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Differences to the baseline with their intervals, a panel for each question."""
    questions = [one for one in QUESTIONS if any(one.name in given for given in answers.values())]
    rows = -(-len(questions) // COLUMNS)
    figure = Figure(figsize=(PAGE, 2.1 * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    labels: dict[str, Any] = {}
    for ax, question in zip(axes, questions, strict=False):
        _draw_question(ax, question, answers)
        handles, names = ax.get_legend_handles_labels()
        labels |= dict(zip(names, handles, strict=True))
    for ax in axes[len(questions) :]:
        ax.remove()
    ordered = [name for name in answers if name in labels]
    figure.legend([labels[name] for name in ordered], ordered, loc="outside lower center", ncols=len(ordered))
    return figure


def _draw_question(ax: Axes, question: Question, answers: Mapping[str, Mapping[str, Any]]) -> None:
    found = {subject: given.get(question.name, {"standings": {}})["standings"] for subject, given in answers.items()}
    names = in_order(name for one in found.values() for name in one)
    present = [name for name in names if name != BASELINE and not name.startswith("random-")]
    for number, (subject, standings) in enumerate(found.items()):
        shift = SPREAD * ((number + 0.5) / len(answers) - 0.5)
        points = [
            (place + shift, standings[name]["difference"]) for place, name in enumerate(present) if name in standings
        ]
        if not points:
            continue
        values = [value for _, (value, _, _) in points]
        ends = [[value - low for _, (value, low, _) in points], [high - value for _, (value, _, high) in points]]
        style = curve_style(number) | {"linestyle": "none"}
        ax.errorbar(values, [place for place, _ in points], xerr=ends, label=subject, elinewidth=0.8, **style)
    ax.axvline(0, color="#333333", linewidth=0.6)
    ax.axvspan(-question.minimum, question.minimum, color="#eeeeee", zorder=0)
    ax.set_yticks(range(len(present)), [name_of(name).strip("`") for name in present])
    ax.invert_yaxis()
    ax.set_title(fill(question.title, WIDTH))
    ax.set_xlabel(f"better than αβ-LRP by{f' ({question.unit})' if question.unit else ''}")
