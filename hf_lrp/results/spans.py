"""Parts of a prompt other than the source: what they are called, their tokens and their shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Span:
    """n tokens of a prompt.

    Attributes:
        tokens: n raw tokenizer pieces.
        shares: `[T, n]`, raw: with those of all other spans, of source and prefix, a step's shares sum to 1.
    """

    tokens: tuple[str, ...]
    shares: Tensor

    def __post_init__(self) -> None:
        with torch.inference_mode(False):
            kept = self.shares.detach().cpu().clone(memory_format=torch.contiguous_format)
        object.__setattr__(self, "shares", kept)
        object.__setattr__(self, "tokens", tuple(self.tokens))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Span) and self.tokens == other.tokens and torch.equal(self.shares, other.shares)

    def __hash__(self) -> int:
        return hash(self.tokens)

    @property
    def total(self) -> Tensor:
        """The span's share in each prediction, `[T]`."""
        return self.shares.sum(1)

    def at(self, steps: Tensor | list[int]) -> Span:
        """The same at some steps only, given by their indices, or as weights `[steps, T]` of their mean."""
        if isinstance(steps, Tensor):
            return Span(self.tokens, (steps.double() @ self.shares.double()).to(self.shares.dtype))
        return Span(self.tokens, self.shares[steps])


def all_tokens(spans: Mapping[str, Span]) -> tuple[str, ...]:
    """The tokens of all parts together: a short part may not show how its tokenizer marks words."""
    return tuple(token for span in spans.values() for token in span.tokens)


def check_spans(spans: Mapping[str, Any], steps: int) -> None:
    """Raise unless spans fit T steps."""
    for name, span in spans.items():
        if not isinstance(span, Span):
            raise ValueError(f"spans[{name!r}] must be a Span, got {type(span).__name__}.")
        if tuple(span.shares.shape) != (steps, len(span.tokens)):
            raise ValueError(
                f"spans[{name!r}] must have shares [{steps}, {len(span.tokens)}], got {list(span.shares.shape)}."
            )
