"""The quantities of the paper: one function per definition, for everything that shows or stores them.

Shares are arrays or tensors with one row per step: `source` `[T, S]` holds R_t(x_i), `target` `[T, n]` holds R_t(y_j).
Sums run in float64, since effects are in the third decimal. Arrays give float64 arrays, tensors give tensors of their
own type. Steps count from 1. What is not defined is nan. `docs/metrics.md` has the formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Shares = TypeVar("Shares", np.ndarray, "Tensor")

# Below what sums of float32 shares resolve. A share of exactly 0 would make a divergence infinite.
SMALLEST_SHARE = 1e-8


def source_total(source: Shares) -> Shares:
    """R_t(source) = sum_i R_t(x_i), `[T]`; 1 at step 1, where there is no prefix, if the start token is excluded."""
    return _like(source, _exact(source).sum(axis=1))


def target_total(target: Shares) -> Shares:
    """R_t(target) = sum_j R_t(y_j) over j < t, `[T]`."""
    return _like(target, _exact(target).sum(axis=1))


def source_entropy(source: Shares) -> Shares:
    """The entropy of R_t(x_i) / R_t(source) in nats, `[T]`."""
    return entropy(source)


def target_entropy(target: Shares) -> Shares:
    """The entropy of R_t(y_j) / R_t(target) in nats, `[T]`; nan at step 1, where there is no prefix."""
    return entropy(target)


def entropy(shares: Shares) -> Shares:
    """-sum_i p_i ln p_i in nats, `[T]`, with p_i = R_t(i) / sum_i R_t(i).

    nan where the shares are no distribution: there are none, or one is negative.
    """
    exact = _exact(shares)
    totals = exact.sum(axis=1, keepdims=True)
    defined = (exact >= 0).all(axis=1) & (totals[:, 0] > 0)
    p = np.divide(exact, totals, out=np.zeros_like(exact), where=defined[:, None])
    entropies = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1) + 0.0  # no -0.0
    return _like(shares, np.where(defined, entropies, np.nan))


def source_use(source: Shares) -> Shares:
    """source(k) -> target = S/T · sum_t R_t(x_k) / R_t(source), `[S]`; the average is 1.

    nan if the source has no positive share at some step, where the ratio means nothing.
    """
    exact = _exact(source)
    totals = exact.sum(axis=1, keepdims=True)
    steps, positions = exact.shape
    if not (totals > 0).all():
        return _like(source, np.full(positions, np.nan))
    return _like(source, (exact / totals).sum(axis=0) * positions / steps)


def token_influence(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Shares of all source and prefix tokens together, `[T, S + n]`; rows sum to 1 if the start token is excluded."""
    return np.hstack([source, target])


def kl_divergence(reference: Shares, shares: Shares) -> Shares:
    """KL(reference || shares) = sum_i p_i ln(p_i / q_i) in nats, `[T]`, from shares `[T, n]` of both.

    Rows are scaled to sum to 1. A share under `SMALLEST_SHARE` counts as that, unless both are 0, as for tokens that
    are not yet written. nan where a share is negative or a row is empty.
    """
    p, q = _exact(reference), _exact(shares)
    defined = ((p >= 0) & (q >= 0)).all(axis=1) & (p.sum(axis=1) > 0) & (q.sum(axis=1) > 0)
    present = ((p > 0) | (q > 0)) & defined[:, None]
    p, q = (_distributions(side, present) for side in (p, q))
    ratios = np.divide(p, q, out=np.ones_like(p), where=present)
    # Rounding may leave less than 0, which no divergence is.
    return _like(shares, np.where(defined, np.maximum((p * np.log(ratios)).sum(axis=1), 0.0), np.nan))


def from_second_step(values: Shares) -> Shares:
    """A copy of values `[T]` at steps 1 to T that is nan at step 1, as curves and bins of positions show them."""
    kept = _exact(values).copy()
    kept[:1] = np.nan
    return _like(values, kept)


def mean_over_steps(values: Shares, steps: Sequence[int] | None = None) -> float:
    """The mean of values `[T]` over the steps from the second on where they are defined; nan where nothing is left.

    Step 1 is left out of every mean over steps: it has no prefix, so that R_1(source) = 1 whatever the model does.
    `steps`: the numbers of the steps, if they are not 1 to T.
    """
    exact = _exact(values)
    return float(defined_mean(exact[1:] if steps is None else exact[np.asarray(steps) > 1]))


def defined_mean(values: np.ndarray) -> np.ndarray:
    """Means `[...]` of `[..., n]` over what is defined, which is not nan; nan where nothing is."""
    defined = ~np.isnan(values)
    counts = defined.sum(axis=-1)
    totals = np.where(defined, values, 0.0).sum(axis=-1)
    return np.divide(totals, counts, out=np.full(np.shape(counts), np.nan), where=counts > 0)


def describe_mean(source_total: float) -> str:
    """A mean of R_t(source) over steps in words, which say that step 1 is left out."""
    known = "undefined" if np.isnan(source_total) else f"{source_total:.3f}"
    return f"mean R(source) from step 2 on {known}"


# ---- the table


class Measured(Protocol):
    """Arrays of a result from which quantities are computed."""

    @property
    def source(self) -> np.ndarray:
        """`[T, S]`, shares of source tokens."""

    @property
    def target(self) -> np.ndarray:
        """`[T, N]`, shares of prefix tokens."""

    @property
    def correct(self) -> np.ndarray:
        """`[T]`, whether the token that follows in the prefix was the most probable one."""


class Quantity(NamedTuple):
    """A quantity of each step, as tables, comparisons and figures name it.

    Attributes:
        title: the paper's words.
        axis: what axes of figures call it, without the unit.
        column: what tables in the terminal call it, over several lines.
        by_step: its values `[T]`, given the arrays of a result; nan where it is not defined.
        unit: `"nats"`, or none.
        of_references: whether it says something of reference prefixes only.
        staged: whether stages of training are looked for in it.
    """

    title: str
    axis: str
    column: str
    by_step: Callable[[Measured], np.ndarray]
    unit: str = ""
    of_references: bool = False
    staged: bool = False

    @property
    def label(self) -> str:
        """The axis with the unit."""
        return f"{self.axis} ({self.unit})" if self.unit else self.axis


# What is measured of corpora. A quantity that is added here is in every table, comparison, report and timeline.
QUANTITIES: dict[str, Quantity] = {
    "source_total": Quantity(
        title="source contribution",
        axis="source contribution",
        column="R(source)",
        by_step=lambda c: from_second_step(source_total(c.source)),
        staged=True,
    ),
    "source_entropy": Quantity(
        title="entropy of source contributions",
        axis="entropy of source",
        column="source\nentropy",
        by_step=lambda c: source_entropy(c.source),
        unit="nats",
        staged=True,
    ),
    "target_entropy": Quantity(
        title="entropy of target contributions",
        axis="entropy of target",
        column="prefix\nentropy",
        by_step=lambda c: target_entropy(c.target),
        unit="nats",
        staged=True,
    ),
    "accuracy": Quantity(
        title="accuracy",
        axis="accuracy",
        column="accuracy",
        by_step=lambda c: c.correct.astype(np.float64),
        of_references=True,
    ),
}
AVERAGED = tuple(name for name, quantity in QUANTITIES.items() if quantity.staged)  # of which results give means


def _distributions(shares: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Rows of `[T, n]` as distributions over the entries that are present; 0 elsewhere."""
    raised = np.where(present, np.maximum(shares, SMALLEST_SHARE), 0.0)
    totals = raised.sum(axis=1, keepdims=True)
    return np.divide(raised, totals, out=raised, where=totals > 0)


def _exact(shares: np.ndarray | Tensor) -> np.ndarray:
    """Shares as an array of float64."""
    if isinstance(shares, np.ndarray):
        return shares.astype(np.float64, copy=False)
    return shares.detach().cpu().double().numpy()


def _like(shares: Shares, result: np.ndarray) -> Shares:
    """A result as what the shares were."""
    if isinstance(shares, np.ndarray):
        return result
    return shares.new_tensor(result)
