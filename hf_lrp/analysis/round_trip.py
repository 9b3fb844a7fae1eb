"""Whether a tokenizer splits the text of a translation into the tokens that the model wrote."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hf_lrp.data.vocabulary import Vocabulary

_FEW = 0.5  # of a model's translations


def is_kept(vocabulary: Vocabulary, ids: Sequence[int]) -> bool:
    """Whether the tokens of a translation become text and the same tokens again."""
    assert vocabulary.tokenizer is not None
    text = str(vocabulary.tokenizer.decode(list(ids), skip_special_tokens=True)).strip()
    return bool(text) and vocabulary.encode([text], "target")[0] == list(ids)


def warn_if_lost(kept: float) -> None:
    """Warn where only a few translations come back, given their share."""
    if kept < _FEW:
        warnings.warn(
            f"hf_lrp: the tokenizer splits only {kept:.0%} of the model's own translations as the model wrote them, "
            "so results for given texts mean little: is the tokenizer that of the model?",
            stacklevel=2,
        )
