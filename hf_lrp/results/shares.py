"""From a method's own values to shares of each step, and back.

A step's values v are those of source and target tokens, and one for the start (forced tokens, or what a prompt has
besides the source), their sum. Values that belong together as parts of a sum become v / sum v: shares that sum to 1.
Values of both signs that have no such sum become v / sum |v|: shares that keep their signs and whose sizes sum to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

if TYPE_CHECKING:
    from hf_lrp.results.contributions import Contributions


class Shares(NamedTuple):
    """`source` `[T, S]`, `target` `[T, N]`, `start` `[T]`, and the `scale` `[T]` by which values were divided."""

    source: Tensor
    target: Tensor
    start: Tensor
    scale: Tensor


class RawValues(NamedTuple):
    """A method's own values: `source` `[T, S]`, `target` `[T, N]`, `start` `[T]`, `[T, n]` of a prompt's parts."""

    source: Tensor
    target: Tensor
    start: Tensor
    spans: Mapping[str, Tensor]


def to_shares(source: Tensor, target: Tensor, start: Tensor, *, sums_to_one: bool) -> Shares:
    """Shares of values `[T, S]`, `[T, N]` and `[T]`; all 0 at steps where the values have no sum or size."""
    if sums_to_one:
        scale = source.sum(1) + target.sum(1) + start
    else:
        scale = source.abs().sum(1) + target.abs().sum(1) + start.abs()
    divisor = scale.where(scale != 0, 1)
    source, target = (values / divisor[:, None] for values in (source, target))
    return Shares(source, target, start / divisor, scale)


def kept_without_start(start: Tensor, *, sums_to_one: bool) -> Tensor:
    """`[T]`, what is left for source and target where the start, whose share is given, is left out."""
    return 1 - (start if sums_to_one else start.abs())


def raw_values(c: Contributions) -> RawValues:
    """See `Contributions.raw`."""
    scale = c.scale
    if scale.isnan().any():
        raise ValueError(
            "Words are means over their pieces' shares, and this method's own values have another sum at each piece: "
            "take raw of the result before merge_subwords()."
        )
    kept = kept_without_start(c.start, sums_to_one=c.sums_to_one) if c.start_token == "exclude" else 1
    inner = (scale * kept)[:, None]
    spans = {name: span.shares * scale[:, None] for name, span in c.spans.items()}
    return RawValues(c.source * inner, c.target * inner, c.start * scale, spans)
