"""One step of a result: what was predicted, and from what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from hf_lrp.results.contributions import Contributions


@dataclass(frozen=True, eq=False, repr=False)
class Step:
    """One prediction, with the shares of S source tokens and of the n target tokens before it.

    Attributes:
        number: of the step, from 1.
        token: the written token: what the target has at this step.
        predicted_token: the token that is explained.
        is_written: whether these two are the same.
        probability, log_probability: of the explained token, the latter as the natural logarithm.
        logit: the explained logit (contrastive: the difference of two).
        source_tokens: S pieces.
        source: `[S]`, R_t(x_i).
        prefix_tokens: n pieces; at word level also the word that is being written.
        target: `[n]`, R_t(y_j).
        source_total, target_total: R_t(source), R_t(target).
        start: the raw share of the decoder start token and of forced tokens.
        spans: raw shares of the parts of a prompt, by name.
    """

    number: int
    token: str
    predicted_token: str
    is_written: bool
    probability: float
    log_probability: float
    logit: float
    source_tokens: tuple[str, ...]
    source: Tensor
    prefix_tokens: tuple[str, ...]
    target: Tensor
    source_total: float
    target_total: float
    start: float
    spans: Mapping[str, float] = field(default_factory=dict)

    def top_source(self, n: int = 5) -> list[tuple[str, float]]:
        """The n source tokens with the largest shares, the largest first."""
        return _largest(self.source_tokens, self.source, n)

    def top_target(self, n: int = 5) -> list[tuple[str, float]]:
        """The n prefix tokens with the largest shares, the largest first."""
        return _largest(self.prefix_tokens, self.target, n)

    def __repr__(self) -> str:
        written = "" if self.is_written else f" (written: {self.token!r})"
        return (
            f"<Step {self.number}: {self.predicted_token!r}{written}, probability {self.probability:.2f}, "
            f"R(source) {self.source_total:.3f}, R(target) {self.target_total:.3f}>"
        )


def step_at(c: Contributions, i: int) -> Step:
    """Step of a result at an index, which counts from 0."""
    known = c.known[i]
    return Step(
        number=c.steps[i],
        token=c.target_tokens[c.steps[i] - 1],
        predicted_token=c.predicted_tokens[i],
        is_written=c.is_written[i],
        probability=c.probability[i].item(),
        log_probability=c.log_probability[i].item(),
        logit=c.logits[i].item(),
        source_tokens=c.source_tokens,
        source=c.source[i],
        prefix_tokens=c.target_tokens[: int(known.sum())],
        target=c.target[i, known],
        source_total=c.source_total[i].item(),
        target_total=c.target_total[i].item(),
        start=c.start[i].item(),
        spans={name: span.total[i].item() for name, span in c.spans.items()},
    )


def _largest(tokens: Sequence[str], shares: Tensor, n: int) -> list[tuple[str, float]]:
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}.")
    pairs = zip(tokens, shares.tolist(), strict=True)
    return sorted(pairs, key=lambda pair: -abs(pair[1]))[:n]
