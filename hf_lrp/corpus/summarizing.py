"""The quantities of a sentence at each step, and the overall figures of a run: one number per quantity."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hf_lrp.corpus.shards import Row
from hf_lrp.results.quantities import QUANTITIES, mean_over_steps

_SHARE = "share of "


def quantities_of(row: Row) -> dict[str, np.ndarray]:
    """`QUANTITIES` at each step of a sentence, `[T]`; nan where one is not defined, as R(source) at step 1.

    Raw shares of the parts of a prompt follow, named by `share_of`.
    """
    values = {name: quantity.by_step(row) for name, quantity in QUANTITIES.items()}
    return values | {share_of(part): total for part, total in row.part_totals.items()}


def share_of(part: str) -> str:
    """Name of the raw share of a part of a prompt, among quantities."""
    return f"{_SHARE}{part}"


def part_of(quantity: str) -> str | None:
    """The part of a prompt whose raw share a quantity is; None for the paper's quantities."""
    return quantity.removeprefix(_SHARE) if quantity.startswith(_SHARE) else None


def summarize(rows: Iterable[Row]) -> dict[str, Any]:
    """Means over sentences of their means over steps from the second on, in one pass; None where nothing is defined.

    At step 1 there is no prefix, so that R(source) is 1 whatever the model does: no mean counts it.
    """
    totals: dict[str, float] = {}
    counts: dict[str, int] = {}
    number, steps, worst = 0, 0, 0.0
    for row in rows:
        number, steps = number + 1, steps + len(row.target_ids)
        worst = max(worst, row.conservation_error)
        further = {"start_share": row.start, "probability": row.probability}
        for name, values in (quantities_of(row) | further).items():
            mean = mean_over_steps(values.astype(np.float64))
            defined = not math.isnan(mean)
            totals[name] = totals.get(name, 0.0) + (mean if defined else 0.0)
            counts[name] = counts.get(name, 0) + defined
    means = {name: totals[name] / counts[name] if counts[name] else None for name in totals}
    return {"sentences": number, "steps": steps, **means, "worst_conservation_error": worst}
