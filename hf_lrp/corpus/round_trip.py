"""Whether a tokenizer splits the text of a translation into the tokens that the model wrote."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hf_lrp.kinds.decoder_only import read_prompted

if TYPE_CHECKING:
    from hf_lrp.inputs.prompts import Prompt
    from hf_lrp.models.vocabulary import Vocabulary

_FEW = 0.5  # of a model's translations


def is_kept(vocabulary: Vocabulary, ids: Sequence[int], prompt: Prompt | None = None) -> bool:
    """Whether the tokens of a translation, written after a prompt if there is one, become text and the same again."""
    if prompt is not None:
        return read_prompted("a", prompt, vocabulary)[1].keeps(ids, 0)
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
