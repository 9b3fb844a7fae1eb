"""Doubts about a result though it can be computed: said in a warning, and in the notes of the result."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor
from transformers import PreTrainedModel

from hf_lrp.data.warning import warn
from hf_lrp.models.configs import as_list
from hf_lrp.models.vocabulary import Side, Vocabulary
from hf_lrp.models.words import WORD_START


def doubts_about_tokenizer(model: PreTrainedModel, vocabulary: Vocabulary) -> tuple[str, ...]:
    """Signs that the tokenizer is another model's: other numbers of tokens, or another end of the sentence."""
    tokenizer, size = vocabulary.tokenizer, vocabulary.sizes["source"]
    if tokenizer is None:
        return ()
    signs = []
    if not size / 2 <= len(tokenizer) <= size:  # some models have more ids than tokens, to round numbers
        signs.append(f"it has {len(tokenizer)} tokens, the model {size}")
    ends = {*vocabulary.ends, *as_list(model.config.eos_token_id)}
    end = tokenizer.eos_token_id
    if ends and end is not None and end not in ends:
        signs.append(f"its end of the sentence is {end}, the model's {' or '.join(map(str, sorted(ends)))}")
    return (f"the tokenizer is perhaps not this model's: {'; '.join(signs)}",) if signs else ()


def doubts_about_text(vocabulary: Vocabulary, ids: Tensor, side: Side) -> tuple[str, ...]:
    """Doubts about a text, ids [n], most of which is unknown to the tokenizer."""
    unknown = getattr(vocabulary.tokenizer, "unk_token_id", None)
    if unknown is None or unknown in vocabulary.ends:
        return ()
    special = vocabulary.is_special(ids)
    text = [n for n, i in enumerate(ids.tolist()) if i == unknown or not special[n]]
    count = int((ids == unknown).sum())
    if count:  # a mark that a word begins, alone, is no text: an emoji is often such a mark and the unknown token
        tokens = vocabulary.tokens(ids, side)
        text = [n for n in text if tokens[n] != WORD_START]
    if count * 2 <= len(text):
        return ()
    return (f"{count} of the {len(text)} tokens of the {side} are unknown to the tokenizer",)


def warn_of(doubts: Iterable[str]) -> None:
    """One warning, be it of one sentence or of many."""
    first, *others = (*doubts, None)
    if first is not None:
        many = f" (and so on: {len(others)} sentences)" if len(others) > 1 else ""
        warn(f"{first}{many}. Is it the right tokenizer, and the right language?")


def warn_of_sums(rule: str) -> None:
    """That a rule's shares do not sum to 1; the notes of each result say by how much."""
    warn(
        f"with {rule}, raw shares do not sum to 1 and say little (notes tell by how much): use a rule closer "
        "to AlphaBeta(1, 0), or explain model.double()."
    )
