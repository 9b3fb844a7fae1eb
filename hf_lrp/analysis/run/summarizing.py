"""The overall figures of a run: one number per quantity and prefix type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hf_lrp.analysis.measures.metrics import entropy, total_source
from hf_lrp.analysis.run.store import Sentence


def summarize(sentences: Iterable[Sentence]) -> dict[str, Any]:
    """Means over sentences of their means over steps, in one pass.

    ``source_total`` and ``target_entropy`` leave out step 1, where there is no prefix. None where nothing is defined.
    """
    totals: dict[str, float] = {}
    counts: dict[str, int] = {}
    number, steps, worst = 0, 0, 0.0
    for sentence in sentences:
        number, steps = number + 1, steps + len(sentence.target_ids)
        worst = max(worst, sentence.conservation_error)
        for name, values in _quantities(sentence).items():
            defined = values[~np.isnan(values)]
            if len(defined):
                totals[name] = totals.get(name, 0.0) + float(defined.mean())
                counts[name] = counts.get(name, 0) + 1
            else:
                totals.setdefault(name, 0.0)
    means = {name: totals[name] / counts[name] if name in counts else None for name in totals}
    return {"sentences": number, "steps": steps, **means, "worst_conservation_error": worst}


def _quantities(sentence: Sentence) -> dict[str, np.ndarray]:
    return {
        "source_total": total_source(sentence.source),
        "source_entropy": entropy(sentence.source),
        "target_entropy": entropy(sentence.target),
        "start_share": sentence.start.astype(np.float64),
        "accuracy": sentence.correct.astype(np.float64),
        "probability": sentence.probability.astype(np.float64),
    }
