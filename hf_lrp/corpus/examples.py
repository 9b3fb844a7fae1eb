"""Sentences of runs to look at: where a run depends least on the source, or where two runs differ most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hf_lrp.corpus.run_comparison import MeasuredRun, shared_prefixes
from hf_lrp.results.contributions import Contributions

if TYPE_CHECKING:
    from hf_lrp.results.comparison import Comparison

NUMBER = 10  # of examples


class Examples(NamedTuple):
    """Examples: results or pairs of them, the numbers of their sentences from 1, and how they were chosen."""

    entries: list[Contributions | Comparison]
    numbers: list[int]
    caption: str


def choose_examples(runs: Sequence[MeasuredRun]) -> Examples | None:
    """One run: its sentences with the lowest R(source). Several: those where the last differs most from the first.

    None where the runs share no prefix type.
    """
    prefixes = shared_prefixes(runs)
    if not prefixes:
        return None
    prefix, first, last = prefixes[0], runs[0], runs[-1]
    means = [run.tables[prefix].means["source_total"] for run in (first, last)]
    if len(runs) == 1:
        key, how = means[0], f"where {first.label} depends least on the source"
    else:
        key, how = -np.abs(means[1] - means[0]), f"where R(source) of {last.label} differs most from {first.label}"
    chosen = sorted(np.argsort(key, kind="stable")[: int(np.isfinite(key).sum())][:NUMBER].tolist())
    shown = runs[:1] if len(runs) == 1 else (first, last)
    found = [_read(run, prefix, chosen) for run in shown]
    entries = [_entry([results[number] for results in found]) for number in chosen]
    return Examples(entries, [number + 1 for number in chosen], f"{len(chosen)} sentences {how}, {prefix} prefixes.")


def _read(run: MeasuredRun, prefix: str, numbers: Sequence[int]) -> dict[int, Contributions]:
    """The results of some sentences, by number, called what the run is called."""
    found = run.run.results(prefix).stored(numbers)
    return {stored.sentence: replace(stored.result, model=run.label) for stored in found}


def _entry(results: Sequence[Contributions]) -> Contributions | Comparison:
    """One result, or two side by side; where tokenizers split the source in different ways, the first of them."""
    if len(results) > 1 and results[0].source_tokens == results[1].source_tokens:
        return results[0].compare(results[1])
    return results[0]
