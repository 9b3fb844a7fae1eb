"""The overall figures of a run: one number per quantity and prefix type."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hf_lrp.analysis.measures.metrics import quantities_of
from hf_lrp.analysis.run.store import Sentence
from hf_lrp.result.quantities import mean_over_steps


def summarize(sentences: Iterable[Sentence]) -> dict[str, Any]:
    """Means over sentences of their means over steps from the second on, in one pass; None where nothing is defined.

    At step 1 there is no prefix, so that R(source) is 1 whatever the model does: no mean counts it.
    """
    totals: dict[str, float] = {}
    counts: dict[str, int] = {}
    number, steps, worst = 0, 0, 0.0
    for sentence in sentences:
        number, steps = number + 1, steps + len(sentence.target_ids)
        worst = max(worst, sentence.conservation_error)
        further = {"start_share": sentence.start, "probability": sentence.probability}
        for name, values in (quantities_of(sentence) | further).items():
            mean = mean_over_steps(values.astype(np.float64))
            defined = not math.isnan(mean)
            totals[name] = totals.get(name, 0.0) + (mean if defined else 0.0)
            counts[name] = counts.get(name, 0) + defined
    means = {name: totals[name] / counts[name] if counts[name] else None for name in totals}
    return {"sentences": number, "steps": steps, **means, "worst_conservation_error": worst}
