"""Check that a tokenizer splits the text of a translation into the tokens that the model wrote."""

from __future__ import annotations

from hf_lrp.data.warning import warn

_FEW = 0.5  # of a model's translations


def warn_of_other_splits(kept: float) -> None:
    """Warn where only a few translations come back, given their share."""
    if kept < _FEW:
        warn(
            f"the tokenizer splits only {kept:.0%} of the model's own translations as the model wrote them, "
            "so results for given texts mean little: is the tokenizer that of the model?"
        )
