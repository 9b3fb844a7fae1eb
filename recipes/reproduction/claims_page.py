"""Write the tables of docs/claims.md, docs/claim_details.md and of the README anew from the results that are kept.

    python recipes/reproduction/claims_page.py

Tables stand between `<!-- table NAME -->` and `<!-- end -->`; the rest of a page stays as it is. Names: `findings` (a
row each), `in short` (three sentences), `models`, `missing`, `one model`, `kinds of models`, `training` (verdicts on
these claims), `C1` to `C15` (every statement). Headings of the details are `C1: ` and the name of the finding.
"""

from __future__ import annotations

import argparse
import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from claims import Claim, Statement
from study import read_study
from study_results import KeptResults

from hf_lrp.data.files import write_atomically

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGES = (ROOT / "docs" / "claims.md", ROOT / "docs" / "claim_details.md", ROOT / "README.md")
GROUPS = {"one model": range(1, 8), "kinds of models": range(8, 12), "training": range(12, 16)}
FINDINGS = {
    "C1": "the source's share falls as generation goes on",
    "C2": "the source's share drops at the last step",
    "C3": "the last three source tokens are used most, then the early ones",
    "C4": "source entropy rises, then falls",
    "C5": "target entropy grows",
    "C6": "own prefixes draw on more of the source, from fewer tokens, than references",
    "C7": "random prefixes cut the source's share and spread it evenly",
    "C8": "minimum risk and target-side word dropout alone raise the source's share",
    "C9": "minimum risk alone lowers source entropy, word dropout raises it",
    "C10": "with random prefixes minimum risk keeps the highest share of the source",
    "C11": "more data raise the source's share and lower source entropy",
    "C12": "shares converge early in training",
    "C13": "training has three stages",
    "C14": "early positions change most in training",
    "C15": "after the first stage early positions are the most accurate",
}
UNITS = {
    "one model": ("one model", "models"),
    "kinds of models": ("one set of models", "sets of models"),
    "training": ("one training", "trainings"),
}
WIDTH = 128  # of lines of text
DETAILS = "claim_details.md"  # the page that has every statement
SHORT = {"holds": "holds", "does not hold": "**no**", "not decided": "open"}
_TABLE = re.compile(r"(<!-- table ([^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


class Checked(NamedTuple):
    """Claims that were checked on one part of a study: a column of the tables."""

    title: str
    claims: dict[str, Claim]


class Page:
    """The tables of a study."""

    def __init__(self, study: str, results: Path) -> None:
        self._kept = [KeptResults(corpus, results) for corpus in read_study(HERE / "studies" / f"{study}.yaml")]
        self._parts = [
            Checked(f"{kept.corpus.name}, {part}", {claim.name: claim for claim in claims})
            for kept in self._kept
            for part, claims in kept.decide().items()
        ]

    def fill(self, text: str) -> str:
        """A page with its tables written anew."""
        return _TABLE.sub(lambda match: f"{match[1]}\n{self._table(match[2])}\n{match[3]}", text)

    def _table(self, name: str) -> str:
        makers: dict[str, Callable[[], str]] = {
            "findings": self._findings,
            "in short": self._in_short,
            "models": self._models,
            "missing": self._missing,
        }
        if name in GROUPS:
            return self._verdicts([f"C{number}" for number in GROUPS[name]])
        return makers[name]() if name in makers else self._claim(name)

    def _counts(self) -> dict[str, Counter[str]]:
        """By claim, how often each verdict was reached."""
        found = {
            name: Counter(part.claims[name].verdict for part in self._parts if name in part.claims)
            for name in FINDINGS
        }
        return {name: counts for name, counts in found.items() if counts}

    def _findings(self) -> str:
        """A row per claim: its name, and what came of it on all that it was checked on."""
        rows = []
        for name, counts in self._counts().items():
            unit = next(unit for unit, numbers in GROUPS.items() if int(name[1:]) in numbers)
            link = f"[{name}]({DETAILS}#{_anchor(heading(name))})"
            rows.append((f"{link} {_capital(FINDINGS[name])}", _in_words(counts, *UNITS[unit])))
        return _markdown(("finding of the paper", "here"), rows)

    def _in_short(self) -> str:
        """Three sentences: the findings that hold in most cases, those that do not, and the others."""
        groups: dict[str, list[str]] = {"Hold": [], "Do not hold": [], "Open or divided": []}
        for name, counts in self._counts().items():
            held, refused, opened = (counts[verdict] for verdict in SHORT)
            if max(held, refused) > counts.total() / 2:
                group, said = "Hold" if held > refused else "Do not hold", f"{held} of {counts.total()}"
            else:
                group = "Open or divided"
                said = ", ".join(
                    f"{many} {word}" for many, word in ((held, "hold"), (refused, "no"), (opened, "open")) if many
                )
            groups[group].append(f"{FINDINGS[name]} ({said})")
        said = [f"- **{group}**: {'; '.join(findings)}." for group, findings in groups.items() if findings]
        return "\n".join(textwrap.fill(sentence, WIDTH, subsequent_indent="  ") for sentence in said) + "\n"

    def _verdicts(self, names: Sequence[str]) -> str:
        """A row for each thing that was checked, a column per claim."""
        parts = [part for part in self._parts if any(name in part.claims for name in names)]
        if not parts:
            return f"There are no results for {names[0]} to {names[-1]}."
        rows = []
        for part in parts:
            found = [part.claims.get(name) for name in names]
            rows.append((part.title, *("" if claim is None else SHORT[claim.verdict] for claim in found)))
        return _markdown(("checked on", *(f"[{name}](#{_anchor(heading(name))})" for name in names)), rows)

    def _claim(self, name: str) -> str:
        """A row for each thing that was checked, and below it one per statement."""
        rows = []
        for part in self._parts:
            if name in part.claims:
                claim = part.claims[name]
                rows.append((f"**{part.title}**", "", SHORT[claim.verdict]))
                rows += [_cells(statement) for statement in claim.statements]
        return _markdown(("statement", "measured", "verdict"), rows) if rows else "There are no results."

    def _models(self) -> str:
        header = ("model", "updates", "BLEU", "chrF", "of sentences", "held-out loss", "held-out risk", "converged")
        rows = []
        for kept in self._kept:
            for row in kept.models():
                risks = [risk for _, risk in kept.trainings[row["model"]]["risks"]]
                lowered = f"{risks[0]:.3f} to {risks[-1]:.3f}" if risks else ""
                numbers = (f"{row['updates']:,}", f"{row['bleu']:.1f}", f"{row['chrf']:.1f}", f"{row['sentences']:,}")
                loss, yes = f"{row['held_out_loss']:.3f}", "yes" if row["converged"] else "no"
                rows.append((f"{kept.corpus.name}/{row['model']}", *numbers, loss, lowered, yes))
        return _markdown(header, rows)

    def _missing(self) -> str:
        rows = [(kept.corpus.name, ", ".join(kept.missing)) for kept in self._kept if kept.missing]
        return _markdown(("corpus", "no results of"), rows) if rows else "Nothing is missing."


def heading(name: str) -> str:
    """A claim's heading on the page of details."""
    return f"{name}: {FINDINGS[name]}"


def _anchor(text: str) -> str:
    """Where a heading is found: what Markdown makes of it."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", text).lower())


def _in_words(counts: Counter[str], one: str, several: str) -> str:
    """`holds in 5 of 6 models, no in 1`; `no (1 model)`, `holds in all 6 models` where there is one verdict."""
    if counts.total() == 1:
        return f"{SHORT[next(iter(counts))]} ({one})"
    if len(counts) == 1:
        return f"{SHORT[next(iter(counts))]} in all {counts.total()} {several}"
    said = [f"{word} in {counts[verdict]}" for verdict, word in SHORT.items() if counts[verdict]]
    return f"{said[0]} of {counts.total()} {several}, {', '.join(said[1:])}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _cells(statement: Statement) -> tuple[str, ...]:
    value, low, high, sentences, seeds = statement.interval
    measured = ""
    if math.isfinite(value):
        count = f"{sentences} sentences" + (f", {seeds} seeds" if seeds > 1 else "")
        measured = f"{value:+.4f} [{low:+.4f}, {high:+.4f}], {count}; "
    verdict = SHORT[statement.verdict]
    if statement.verdict == "not decided":
        verdict += f": {statement.reason}"
    return statement.text, f"{measured}wanted: {statement.wanted}", verdict


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"| {' | '.join('---' for _ in header)} |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", default="small", help="name of a file in recipes/reproduction/studies")
    parser.add_argument("--results", type=Path, help="what is kept of it; default: recipes/reproduction/results/STUDY")
    parser.add_argument("--pages", type=Path, nargs="+", default=PAGES, metavar="FILE", help="the pages to fill")
    options = parser.parse_args(arguments)
    page = Page(options.study, options.results or HERE / "results" / options.study)
    for path in options.pages:
        write_atomically(path, page.fill(path.read_text(encoding="utf-8")).encode())


if __name__ == "__main__":
    main()
