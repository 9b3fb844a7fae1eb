"""From sub-word pieces to words: contributions between words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hf_lrp.models.words import detect_marking, join_predicted, join_words
from hf_lrp.results.shares import kept_without_start
from hf_lrp.results.spans import Span

if TYPE_CHECKING:
    from hf_lrp.results.contributions import Contributions


def merge_subwords(c: Contributions) -> Contributions:
    """See `Contributions.merge_subwords`."""
    if c.level == "word":
        return c
    if len(c) < len(c.target_tokens):
        raise ValueError(
            f"These are {len(c)} of {len(c.target_tokens)} steps, which may cut words: call merge_subwords() on the "
            "whole result, then take steps of it."
        )
    columns, rows = _membership(c.source_words), _membership(c.target_words)
    mean = rows / rows.sum(1, keepdim=True)
    first_column, first_row = columns.argmax(1), rows.argmax(1)
    target_marking = detect_marking(c.target_tokens + c.predicted_tokens)
    source_marking = detect_marking(c.source_tokens)
    merged = replace(
        c,
        source=(mean @ c.source.double() @ columns.T).to(c.source.dtype),
        target=(mean @ c.target.double() @ rows.T).to(c.target.dtype),
        start=(mean @ c.start.double()).to(c.start.dtype),
        logits=(mean @ c.logits.double()).to(c.logits.dtype),
        log_probability=(rows @ c.log_probability.double()).to(c.log_probability.dtype),
        source_tokens=join_words(c.source_tokens, c.source_words, source_marking),
        target_tokens=join_words(c.target_tokens, c.target_words, target_marking),
        predicted_tokens=join_predicted(c.predicted_tokens, c.target_tokens, c.target_words, target_marking),
        source_ids=c.source_ids[first_column],
        target_ids=c.target_ids[first_row],
        predicted_ids=c.predicted_ids[first_row],
        source_words=tuple(range(len(columns))),
        target_words=tuple(range(len(rows))),
        spans={name: span.at(mean) for name, span in c.spans.items()},
        contrasted=tuple(c.contrasted[i] for i in first_row) if c.contrasted else (),
        scale=_common(c.scale, rows, mean),
        inside=c.inside and c.inside.merge_words(mean),
        level="word",
        steps=(),
    )
    return merged if c.sums_to_one else _sizes_to_one(merged)


def _sizes_to_one(c: Contributions) -> Contributions:
    """Shares with signs divided again so that their sizes sum to 1: those of pieces of a word may have cancelled."""
    sizes = (c.source.abs().sum(1) + c.target.abs().sum(1)).double()
    sizes, start = sizes.where(sizes > 0, 1), c.start.double()
    kept = kept_without_start(start, sums_to_one=False) if c.start_token == "exclude" else 1
    whole = sizes * kept + start.abs()
    inner = sizes if c.start_token == "exclude" else whole
    kind = c.source.dtype
    return replace(
        c,
        source=(c.source / inner[:, None]).to(kind),
        target=(c.target / inner[:, None]).to(kind),
        start=(start / whole).to(kind),
        scale=(c.scale * whole).to(c.scale.dtype),
        spans={name: Span(span.tokens, (span.shares / whole[:, None]).to(kind)) for name, span in c.spans.items()},
    )


def _common(scale: Tensor, rows: Tensor, mean: Tensor) -> Tensor:
    """`[W]`, the scale that all pieces of a word have; nan where they have not the same."""
    means = mean @ scale.double()
    same = ((scale.double() - rows.T @ means) ** 2 @ rows.T) == 0
    return means.where(same, torch.nan).to(scale.dtype)


def _membership(words: Sequence[int]) -> Tensor:
    """`[W, n]`, 1 where token n belongs to word W."""
    return torch.nn.functional.one_hot(torch.tensor(words)).double().T
