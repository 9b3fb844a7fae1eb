"""Words that were left out, and words without support: which tokens a method points at, which are meant."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_lrp.corpus.own_translations import HEADS
from hf_lrp.corpus.support import token_support
from hf_lrp.links.agreement import link_heads
from hf_lrp.links.texts import piece_spans, read_texts
from hf_lrp.links.weights import HeadReader
from trials.sentences import as_texts, translate
from trials.subjects import Subject

sys.path.append(str(Path(__file__).parents[2] / "score"))
from error_signal_cases import Case, cut_clause, made_cases, mqm_cases

CASES = 40  # of a kind
LONGEST = 20  # tokens of a source
KINDS = {  # of cases, by question
    "left-out": "made omission",
    "without-support": "made addition",
    "left-out-real": "omission",
    "without-support-real": "addition",
}
PURPOSE_BUILT = "hf-lrp score"  # coverage by link heads, log-probability: what that command reads

Row = dict[str, list[float]]


class Writer:
    """What translates clauses: the subject's model, greedily."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def translate(self, sources: Sequence[str]) -> list[str]:
        """A translation of each."""
        return as_texts(self._subject, translate(self._subject, sources))

    def continue_after(self, sources: Sequence[str], texts: Sequence[str], count: int) -> list[tuple[str, str]]:
        """Not needed for clauses."""
        raise NotImplementedError


def find_cases(subject: Subject) -> list[dict[str, Any]]:
    """Clauses of the subject's own file that are left out or added, and errors that raters marked, if there is a file.

    The kinds take turns. Of marked errors, one translation of each segment, drawn by a hash: cases are independent.
    """
    lines = Path(subject.data).read_text(encoding="utf-8").splitlines()
    sources = [text for line in lines if _fits(subject, text := line.split("\t")[0].strip())]
    cut = [text for text in sources if cut_clause(text, subject.comma) is not None][:CASES]
    cases = made_cases(Writer(subject), cut, subject.comma) if cut else []
    if subject.errors is not None:
        marked = [case for case in mqm_cases(Path(subject.errors)) if case.kind in KINDS.values()]
        cases += _one_of_each([case for case in marked if _fits(subject, case.source)])
    in_turns = zip_longest(*([case for case in cases if case.kind == kind] for kind in KINDS.values()))
    return [case.as_dict() for turn in in_turns for case in turn if case is not None]


def _fits(subject: Subject, text: str) -> bool:
    tokenizer: Any = subject.explainer.tokenizer
    return bool(text) and len(tokenizer(text, verbose=False)["input_ids"]) <= LONGEST


def _one_of_each(cases: Sequence[Case]) -> list[Case]:
    """The first case of each kind and segment in an order drawn by a hash, at most `CASES` of a kind."""
    order = sorted(cases, key=lambda case: hashlib.sha256(f"{case.source}\t{case.translation}".encode()).digest())
    kept = list({(case.kind, case.cluster): case for case in reversed(order)}.values())[::-1]
    return [case for kind in KINDS.values() for case in [one for one in kept if one.kind == kind][:CASES]]


class CasesRead:
    """Cases as a subject's model reads them: which tokens count, and which are marked."""

    def __init__(self, subject: Subject, cases: Sequence[dict[str, Any]]) -> None:
        self.cases, self._subject = cases, subject
        self._reader = HeadReader(subject.explainer.model, subject.explainer.tokenizer, subject.prompt)
        self._read = self._reader.read([case["source"] for case in cases], [case["translation"] for case in cases])

    def texts(self, number: int) -> tuple[str, list[int]]:
        """The source, and the ids of the target."""
        return self.cases[number]["source"], self._read.prefixes[number].ids.tolist()

    def row(self, number: int, scores: Any) -> Row:
        """Scores and marks of the tokens with letters on the side that is asked about.

        Args:
            scores: of all tokens of that side.
        """
        case = self.cases[number]
        side = "source" if "omission" in case["kind"] else "target"
        sources = self._read.reading.sources
        ids = sources.describe(sources.items[number]).ids if side == "source" else self._read.prefixes[number].ids
        text = case["source" if side == "source" else "translation"]
        score, marked = [], []
        for span, value in zip(piece_spans(text, ids, side, self._reader.vocabulary), list(scores), strict=True):
            if span is not None and any(map(str.isalnum, text[slice(*span)])):
                score.append(float(value))
                marked.append(float(any(span[0] < stop and start < span[1] for start, stop in case["marks"])))
        return {"score": score, "marked": marked}

    def ask(self, number: int, result: Any) -> Row:
        """A result's scores: minus the largest value of source tokens over steps, −R(source) of target tokens."""
        left_out = "omission" in self.cases[number]["kind"]
        return self.row(number, -np.asarray(result.source).max(0) if left_out else -np.asarray(result.source_total))

    def purpose_built(self, texts: Sequence[str], targets: Sequence[Sequence[int]]) -> Iterator[tuple[int, Row]]:
        """What `hf-lrp score` reads; link heads, where the model names none, are found on translations of its own."""
        sides = read_texts(texts, "source"), read_texts(as_texts(self._subject, targets), "target")
        heads = link_heads(self._reader, *sides).heads[:HEADS]
        with torch.no_grad():
            for number, found in token_support(self._reader, self._read, heads):
                left_out = "omission" in self.cases[number]["kind"]
                yield number, self.row(number, -found.coverage if left_out else -found.log_probability)
