"""Contributions as inseq's attribution object, for its views and aggregations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from hf_lrp.results.contributions import Contributions


def to_inseq(c: Contributions) -> Any:
    """inseq's object of a result, as `Contributions.to_inseq` gives it; probabilities are its `step_scores`."""
    try:
        from inseq.data import FeatureAttributionSequenceOutput
        from inseq.utils.typing import TokenWithId
    except ImportError as error:
        raise ImportError("to_inseq() needs inseq: pip install inseq.") from error
    first, last = c.steps[0], c.steps[-1]
    if last - first + 1 != len(c):
        raise ValueError(f"inseq's object has steps that follow each other, and these do not: {c.steps}. Slice them.")
    start = "<prompt>" if c.spans else " ".join(c.start_tokens) or "<start>"
    shares = c.start if c.start_token == "keep" else torch.zeros_like(c.start)
    target = c.target.masked_fill(~c.known, torch.nan)
    return FeatureAttributionSequenceOutput(
        source=[TokenWithId(*pair) for pair in zip(c.source_tokens, c.source_ids.tolist(), strict=True)],
        target=[
            TokenWithId(start, -1),
            *(TokenWithId(*pair) for pair in zip(c.target_tokens, c.target_ids.tolist(), strict=True)),
        ],
        source_attributions=c.source.T.clone(),
        target_attributions=torch.cat([shares[:, None], target], dim=1).T.clone(),
        step_scores={"probability": c.probability.clone()},
        sequence_scores={},
        attr_pos_start=first,
        attr_pos_end=last + 1,
    )
