"""Texts of target sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from hf_lrp.results.contributions import Contributions


def target_texts(tokenizer: PreTrainedTokenizerBase, results: Sequence[Contributions]) -> list[str]:
    """The target sentences as text; only tokens have them, words (`merge_subwords`) do not."""
    return [str(tokenizer.decode(c.target_ids.tolist(), skip_special_tokens=True)) for c in results]
