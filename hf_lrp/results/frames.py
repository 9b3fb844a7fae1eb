"""Results as tables of pandas. Steps and positions count from 1, sentences from 0, as the list that holds them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame

    from hf_lrp.results.contributions import Contributions

QUANTITIES = (
    "probability",
    "log_probability",
    "source_total",
    "target_total",
    "source_entropy",
    "target_entropy",
    "start",
)


def import_pandas() -> ModuleType:
    """pandas, which is not needed for anything else here."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_pandas needs pandas: pip install pandas.") from error
    return pandas


def shares_frame(c: Contributions) -> DataFrame:
    """One row per step and input token that is known at that step; see `Contributions.to_pandas`."""
    pandas = import_pandas()
    rows: list[tuple[int, str, str, int, str, float]] = []
    for number, step in enumerate(c):
        for side, tokens, shares in (
            *((name, span.tokens, span.shares[number].tolist()) for name, span in c.spans.items()),
            ("source", step.source_tokens, step.source.tolist()),
            ("target", step.prefix_tokens, step.target.tolist()),
        ):
            inputs = enumerate(zip(tokens, shares, strict=True), 1)
            rows += [(step.number, step.predicted_token, side, i, token, share) for i, (token, share) in inputs]
    return pandas.DataFrame(rows, columns=["step", "predicted", "side", "position", "token", "contribution"])


def steps_frame(results: Sequence[Contributions]) -> DataFrame:
    """One row per sentence and step; see `ContributionsList.to_pandas`."""
    pandas = import_pandas()
    spans = list(dict.fromkeys(name for c in results for name in c.spans))
    columns = ["sentence", "step", "token", "predicted", *QUANTITIES, *spans]
    rows = []
    for sentence, c in enumerate(results):
        written = [c.target_tokens[step - 1] for step in c.steps]
        numbers = [getattr(c, name).tolist() for name in QUANTITIES]
        numbers += [c.spans[name].total.tolist() if name in c.spans else [math.nan] * len(c) for name in spans]
        rows += [(sentence, *row) for row in zip(c.steps, written, c.predicted_tokens, *numbers, strict=True)]
    return pandas.DataFrame(rows, columns=columns)
