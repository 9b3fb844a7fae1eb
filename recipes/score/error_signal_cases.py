"""The cases of error_signals.py: pairs of source and translation, and which of their characters are marked."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import sacrebleu

FORCED = (0, 1, 3, 5, 8)  # tokens of another sentence's translation
BAD, GOOD = 20, 35  # chrF of a continuation
LEAST_CLAUSE = 4  # letters of a clause that is cut away


class Writer(Protocol):
    """What translates: a `Measurer`."""

    def translate(self, sources: Sequence[str], sample: bool = False) -> list[str]:
        """A translation of each: greedy, or drawn from the model's probabilities."""

    def continue_after(self, sources: Sequence[str], texts: Sequence[str], count: int) -> list[tuple[str, str]]:
        """Translations that begin with the first tokens of these texts: all of it, and what is new."""


@dataclass(frozen=True)
class Case:
    """A pair that signals are measured on.

    kind: own, sampled, omission, addition, mistranslation, sentence, made omission, made addition, forced; cluster:
    cases that are drawn together; chosen: of the half to choose on; marks: marked characters of the source (omissions)
    or of the translation; about: what else is known.
    """

    kind: str
    cluster: str
    chosen: bool
    source: str
    translation: str
    marks: tuple[tuple[int, int], ...] = ()
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """The kind; sentences without errors of accuracy are clean, forced beginnings became bad, good, or neither."""
        if self.kind == "sentence" and self.about["clean"]:
            return "clean"
        if self.kind != "forced":
            return self.kind
        chrf = self.about["chrf"]
        return "forced, bad" if chrf < BAD else "forced, good" if chrf >= GOOD else "forced, neither"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def own_cases(writer: Writer, sources: Sequence[str], references: Sequence[str]) -> list[Case]:
    """The model's own translations."""
    texts = writer.translate(sources)
    return [Case("own", str(n), n % 2 == 0, s, t) for n, (s, t) in enumerate(zip(sources, texts, strict=True)) if t]


def sampled_cases(writer: Writer, own: Sequence[Case]) -> list[Case]:
    """Translations of the chosen half that are drawn from the model's probabilities."""
    chosen = [case for case in own if case.chosen]
    texts = writer.translate([case.source for case in chosen], sample=True)
    rows = zip(chosen, texts, strict=True)
    return [Case("sampled", case.cluster, True, case.source, text) for case, text in rows if text]


def made_cases(writer: Writer, sources: Sequence[str], comma: str) -> list[Case]:
    """Clauses that are left out of a translation, or added to it."""
    found = [(n, *parts) for n, text in enumerate(sources) if (parts := cut_clause(text, comma)) is not None]
    firsts = writer.translate([first for _, first, _, _ in found])
    clauses = writer.translate([clause for *_, clause, _ in found])
    cases = []
    for (number, first, clause, start), one, other in zip(found, firsts, clauses, strict=True):
        if not (one and other):
            continue
        whole, name, chosen = sources[number], str(number), number % 2 == 0
        cases.append(Case("made omission", name, chosen, whole, one, ((start, start + len(clause)),)))
        joined = f"{one} {other}"
        marks = ((len(one) + 1, len(joined)),)
        cases.append(Case("made addition", name, chosen, first, joined, marks))
    return cases


def cut_clause(text: str, comma: str) -> tuple[str, str, int] | None:
    """A sentence without its last clause, the clause, and where it starts; None where there is none of some length."""
    text = text.strip()
    body, end = (text[:-1], text[-1]) if text and not text[-1].isalnum() else (text, "")
    at = body.rfind(comma)
    first, clause = body[:at], body[at + len(comma) :]
    if at < 0 or sum(map(str.isalnum, clause)) < LEAST_CLAUSE or sum(map(str.isalnum, first)) < LEAST_CLAUSE:
        return None
    return first + end, clause, at + len(comma)


def forced_cases(writer: Writer, own: Sequence[Case], references: Sequence[str]) -> list[Case]:
    """Greedy translations after some tokens of the translation of the next sentence."""
    found = []
    for count in FORCED:
        beginnings = [own[(n + 1) % len(own)].translation for n in range(len(own))]
        written = writer.continue_after([case.source for case in own], beginnings, count)
        for case, (whole, continuation) in zip(own, written, strict=True):
            reference = references[int(case.cluster)]
            if not whole:
                continue
            score = sacrebleu.sentence_chrf(continuation, [reference]).score
            about = {"forced": count, "chrf": score, "length": len(whole) / len(reference)}
            found.append(Case("forced", case.cluster, case.chosen, case.source, whole, (), about))
    return found


def mqm_cases(path: Path) -> list[Case]:
    """Translations with the errors that raters marked in them."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    chosen_talk = min(row["doc"] for row in rows)
    segments = sorted({(row["doc"], row["seg_id"]) for row in rows}, key=lambda key: (key[0], int(key[1])))
    third = set(segments[::3])
    by_translation: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    for row in rows:
        by_translation.setdefault((row["doc"], row["seg_id"], row["system"]), []).append(row)
    cases = []
    for (doc, segment, system), errors in by_translation.items():
        source, translation = _plain(errors[0]["source"]), _plain(errors[0]["target"])
        if not (source.strip() and translation.strip()):
            continue
        common = (f"{doc} {segment}", doc == chosen_talk, source, translation)
        for kind, category, side in (
            ("omission", "Accuracy/Omission", "source"),
            ("addition", "Accuracy/Addition", "target"),
            ("mistranslation", "Accuracy/Mistranslation", "target"),
        ):
            marks = [mark for row in errors if row["category"] == category for mark in _marks(row[side])]
            if marks and (kind != "mistranslation" or (doc, segment) in third):
                cases.append(Case(kind, *common, tuple(marks)))
        if (doc, segment) in third:
            accuracy = [row for row in errors if row["category"].startswith("Accuracy/")]
            about = {
                "system": system,
                "omission": any(row["category"] == "Accuracy/Omission" for row in accuracy),
                "major": any(row["severity"] == "Major" for row in accuracy),
                "clean": not accuracy,
            }
            cases.append(Case("sentence", *common, (), about))
    return cases


def _plain(text: str) -> str:
    return re.sub(r"</?v>", "", text)


def _marks(text: str) -> list[tuple[int, int]]:
    """Marked spans, in characters of the plain text."""
    spans, before = [], 0
    for match in re.finditer(r"<v>(.*?)</v>", text):
        start = match.start() - before
        spans.append((start, start + len(match[1])))
        before += len("<v></v>")
    return spans
