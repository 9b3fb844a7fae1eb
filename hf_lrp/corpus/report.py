"""A comparison as one HTML page: figures, tables, sentences to look at and settings, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from hf_lrp.corpus.examples import choose_examples
from hf_lrp.corpus.run_comparison import RunComparison, in_words, settings_of
from hf_lrp.pages.page import SCRIPTS
from hf_lrp.pages.page_data import page_data
from hf_lrp.pages.skeleton import as_json, render
from hf_lrp.results.intervals import CONFIDENCE, DRAWS, write_estimate
from hf_lrp.results.prefix_types import PREFIXES


class Picture(NamedTuple):
    """A figure for the page."""

    stem: str
    caption: str
    svg: bytes


def render_report(comparison: RunComparison, pictures: Sequence[Picture]) -> str:
    """One page with everything about a comparison; texts of users are escaped, figures are inside."""
    first = comparison.runs[0]
    labels = [run.label for run in comparison.runs]
    lengths = first.run.lengths
    examples = choose_examples(comparison.runs)
    return render(
        "report.html",
        styles=("page.css", "explorer.css", "report.css"),
        scripts=SCRIPTS if examples else (),
        title="Source and target contributions: " + ", ".join(labels),
        labels=labels,
        sentences=first.run.number,
        lengths="mixed lengths" if lengths is None else "{} source and {} target tokens".format(*lengths),
        confidence=f"{CONFIDENCE:.0%}",
        draws=DRAWS,
        notes=comparison.notes,
        means=list(_tables(comparison.mean_estimates, "")),
        baseline=first.label,
        differences=list(_tables(comparison.difference_estimates, "+")),
        pictures=[
            {"stem": picture.stem, "caption": picture.caption, "data": base64.b64encode(picture.svg).decode()}
            for picture in pictures
        ],
        examples=None if examples is None else examples.caption,
        explorer=None if examples is None else as_json(page_data(examples.entries, numbers=examples.numbers)),
        settings=list(_settings(comparison)),
    )


def _tables(estimates: Sequence[Any], sign: str) -> Iterator[dict[str, Any]]:
    """For each prefix type a table with a row per run and a column per quantity, of means or differences."""
    for prefix in PREFIXES:
        found = [item for item in estimates if item.prefix == prefix]
        quantities = list(dict.fromkeys(item.quantity for item in found))
        rows = [
            {
                "run": run,
                "cells": [write_estimate(item.estimate, sign) for item in found if item.run == run],
            }
            for run in dict.fromkeys(item.run for item in found)
        ]
        if rows:
            yield {"prefix": prefix, "header": ["run", *map(in_words, quantities)], "rows": rows}


def _settings(comparison: RunComparison) -> Iterator[dict[str, Any]]:
    """Settings of all runs side by side, and whether they differ."""
    flat = [dict(_flatten(settings_of(run.run))) for run in comparison.runs]
    for name in dict.fromkeys(name for settings in flat for name in settings):
        values = [settings.get(name, "") for settings in flat]
        yield {"name": name, "values": values, "differs": len(set(values)) > 1}


def _flatten(settings: dict[str, Any], above: str = "") -> Iterable[tuple[str, str]]:
    """Nested settings as pairs of a name such as ``selection.seed`` and a text."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{above}{name}.")
        elif isinstance(value, list):
            yield f"{above}{name}", ", ".join(map(str, value))
        else:
            yield f"{above}{name}", "" if value is None else str(value)
