"""What trials found for one subject, put together as the evidence of each question."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from trials import errors, faithfulness, links, meaning
from trials.bench import COUNTERFACTUAL, RANDOMISED, Bench
from trials.contestants import WITHOUT_SHARE

from judgement.measures import Row, alignment_error_rate
from judgement.questions import Question

Evidence = dict[str, list[Row]]  # by method, what was found for each sentence


def evidence(bench: Bench, question: Question) -> Evidence:
    """By method, what was found for each sentence; up to the first that lacks one, empty where nothing was tried."""
    sentences = range(len(bench.texts))
    if question.name in ("tokens", "source", "prefix"):
        names = [*bench.methods, *faithfulness.RANDOM, faithfulness.NEAREST]
        found = bench.findings("faithfulness").complete(sentences, names)
        long_enough = [all(rows) for rows in zip(*found.values(), strict=True)]
        return {name: list(compress(rows, long_enough)) for name, rows in found.items()}
    if question.name == "randomisation":
        return bench.findings("randomisation").complete(sentences[:RANDOMISED], list(bench.methods))
    if question.name == "links":
        return _links(bench)
    if question.name == "meaning":
        return _meaning(bench)
    if question.name in errors.KINDS:
        return _errors(bench, question)
    raise ValueError(f"There are no trials for the question {question.name!r}.")


def _links(bench: Bench) -> Evidence:
    """Of the two steps that a target word may have its values from, each method takes the better on development."""
    if bench.subject.gold is None:
        return {}
    pairs = range(len(links.read_pairs(Path(bench.subject.gold))))
    rows: Evidence = {}
    names = [*bench.methods, links.PURPOSE_BUILT, *bench.subject.aligners]
    for name, found in bench.findings("links").complete(pairs, names).items():
        by_step = {step: [one[step] for one in found] for step in links.STEPS}
        development = np.arange(0, len(found), 2)
        best = min(by_step.values(), key=lambda one: alignment_error_rate()(one)(development))
        rows[name] = [chosen | _by_step(one) for chosen, one in zip(best, found, strict=True)]
    return rows


def _by_step(found: Mapping[str, Mapping[str, list[int]]]) -> dict[str, list[int]]:
    return {f"{step} {name}": counts for step in links.STEPS for name, counts in found[step].items()}


def _errors(bench: Bench, question: Question) -> Evidence:
    """Cases of the kind that is asked about; where R(source) is asked for, of methods that have one."""
    numbers = [number for number, case in enumerate(bench.cases()) if case["kind"] == errors.KINDS[question.name]]
    shares = question.name.startswith("without-support")
    names = [name for name in bench.methods if not (shares and name in WITHOUT_SHARE)]
    return bench.findings("errors").complete(numbers, [*names, errors.PURPOSE_BUILT]) if numbers else {}


def _meaning(bench: Bench) -> Evidence:
    values = bench.values()
    moved = bench.findings("meaning").complete(range(len(bench.texts)), [COUNTERFACTUAL]).get(COUNTERFACTUAL)
    if not moved or not values:
        return {}
    rows: Evidence = {name: [] for name in values if name not in WITHOUT_SHARE}
    for number, sentence in enumerate(bench.sentences[: min(map(len, (moved, *values.values())))]):
        one: dict[str, Any] = next(iter(values.values()))[number]
        ended = sentence.target[-1] in bench.ends
        kinds = meaning.classes(one["tokens"], one["words"], ended)
        shares = {name: np.array(values[name][number]["totals"]) for name in rows}
        for name, row in meaning.rows(shares, moved[number], kinds).items():
            rows[name].append(row)
    return rows
