"""The quantities of the paper for a run: one pure function per definition, tables of them, and means with intervals.

Steps and positions count from 1, as in the paper. `docs/metrics.md` has the formulas.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest

import numpy as np

from hf_lrp.analysis.run.store import Run, RunError, Sentence
from hf_lrp.result.intervals import Estimate, bootstrap_mean

QUANTITIES = ("source_total", "source_entropy", "target_entropy", "correct")
DIVERGENCE = "divergence"  # the quantity in the tables of `influence_divergence`
BINS = 10  # of relative positions
# Below what sums of float32 shares resolve. A share of exactly 0 would make a divergence infinite.
SMALLEST_SHARE = 1e-8


# ---- definitions


def total_source(source: np.ndarray) -> np.ndarray:
    """R_t(source) = sum_i R_t(x_i), `[T]`, from shares `[T, S]`; nan at step 1, where it is 1 by definition."""
    totals = source.astype(np.float64).sum(axis=1)
    totals[:1] = np.nan
    return totals


def entropy(shares: np.ndarray) -> np.ndarray:
    """-sum_i p_i ln p_i in nats, `[T]`, with p_i = R_t(i) / sum_i R_t(i), from shares `[T, n]`.

    nan where the shares are no distribution: there are none (target contributions at step 1), or one is negative.
    """
    exact = shares.astype(np.float64)
    totals = exact.sum(axis=1, keepdims=True)
    defined = (exact >= 0).all(axis=1) & (totals[:, 0] > 0)
    p = np.divide(exact, totals, out=np.zeros_like(exact), where=defined[:, None])
    entropies = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1) + 0.0  # no -0.0
    return np.where(defined, entropies, np.nan)


def use_of_source_positions(source: np.ndarray) -> np.ndarray:
    """source(k) -> target = S/T · sum_t R_t(x_k) / R_t(source), `[S]`, from shares `[T, S]`; the average is 1.

    nan if the source has no positive share at some step, where the ratio means nothing.
    """
    exact = source.astype(np.float64)
    totals = exact.sum(axis=1, keepdims=True)
    steps, positions = exact.shape
    if not (totals > 0).all():
        return np.full(positions, np.nan)
    return (exact / totals).sum(axis=0) * positions / steps


def kl_divergence(reference: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """KL(reference || shares) = sum_i p_i ln(p_i / q_i) in nats, `[T]`, from shares `[T, n]` of both.

    Rows are scaled to sum to 1. A share under `SMALLEST_SHARE` counts as that, unless both are 0, as for tokens that
    are not yet written. nan where a share is negative or a row is empty.
    """
    p, q = reference.astype(np.float64), shares.astype(np.float64)
    defined = ((p >= 0) & (q >= 0)).all(axis=1) & (p.sum(axis=1) > 0) & (q.sum(axis=1) > 0)
    present = ((p > 0) | (q > 0)) & defined[:, None]
    p, q = (_distributions(side, present) for side in (p, q))
    ratios = np.divide(p, q, out=np.ones_like(p), where=present)
    # Rounding may leave less than 0, which no divergence is.
    return np.where(defined, np.maximum((p * np.log(ratios)).sum(axis=1), 0.0), np.nan)


def token_influence(sentence: Sentence) -> np.ndarray:
    """Shares of all source and prefix tokens together, `[T, S + T]`; rows sum to 1."""
    return np.hstack([sentence.source, sentence.target])


def bin_positions(values: np.ndarray) -> np.ndarray:
    """Means over bins of relative positions, `[BINS]`, of values `[T]` at positions t = 1 .. T.

    Bin b holds the positions with (b - 1) / BINS < t / T <= b / BINS. Undefined values (nan) are left out; a bin
    without any is nan.
    """
    bins = (BINS * np.arange(1, len(values) + 1) - 1) // len(values)  # in whole numbers: t / T is not exact
    defined = ~np.isnan(values)
    totals = np.bincount(bins[defined], weights=values[defined], minlength=BINS)
    counts = np.bincount(bins[defined], minlength=BINS)
    return np.divide(totals, counts, out=np.full(BINS, np.nan), where=counts > 0)


def _distributions(shares: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Rows of `[T, n]` as distributions over the entries that are present; 0 elsewhere."""
    raised = np.where(present, np.maximum(shares, SMALLEST_SHARE), 0.0)
    totals = raised.sum(axis=1, keepdims=True)
    return np.divide(raised, totals, out=raised, where=totals > 0)


# ---- tables


@dataclass(frozen=True, eq=False)
class Table:
    """Quantities of n sentences with one prefix type.

    Attributes:
        name: of the run.
        prefix: the prefix type.
        pairs: `[n]`, the numbers of the pairs in the corpus.
        relative: whether positions are relative to a sentence's length, as where lengths are mixed.
        positions: `[P]`: 1 .. T, or the middles of `BINS` bins of relative positions between 0 and 1.
        values: by quantity `[n, P]`; nan where a sentence has no value. What a model writes may be longer or shorter
            than T: there is no value after its end, and steps after T count in `means` only.
        means: by quantity `[n]`: the mean over all steps of the sentence where the quantity is defined.
        source_axis: `[S or BINS]`, likewise for the source.
        source_position: `[n, S or BINS]`, source(k) -> target; empty in tables of divergences.
    """

    name: str
    prefix: str
    pairs: np.ndarray
    relative: bool
    positions: np.ndarray
    values: dict[str, np.ndarray]
    means: dict[str, np.ndarray]
    source_axis: np.ndarray = field(default_factory=lambda: np.empty(0))
    source_position: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))


def read_table(run: Run, prefix: str) -> Table:
    """The quantities of a run for one prefix type, in one pass; the table is all that is kept in memory."""
    table = _empty_table(run, prefix, QUANTITIES)
    sources = _positions(run.lengths, side=0)
    use = np.full((run.number, len(sources)), np.nan)
    for row, sentence in enumerate(run.sentences(prefix)):
        quantities = {
            "source_total": total_source(sentence.source),
            "source_entropy": entropy(sentence.source),
            "target_entropy": entropy(sentence.target),
            "correct": sentence.correct.astype(np.float64),
        }
        _fill(table, row, sentence.pair, quantities)
        of_positions = use_of_source_positions(sentence.source)
        use[row] = bin_positions(of_positions) if table.relative else of_positions
    return replace(table, source_axis=sources, source_position=use)


def influence_divergence(run: Run, reference: Run, prefix: str) -> Table:
    """KL(reference || run) of the token influence distributions at each step, as the table's quantity "divergence".

    The influence distribution of a step is that of all source and prefix tokens together. For convergence in training,
    `reference` is the converged model and `run` the model in training: the divergence is what describing the
    converged model's influences by those of the model in training costs, in nats.

    Raises:
        RunError: the runs have other sentences, or other tokens in them, as where each model writes its own prefixes.
    """
    table = _empty_table(run, prefix, (DIVERGENCE,))
    for row, (ours, theirs) in enumerate(_same_sentences(run, reference, prefix)):
        _fill(table, row, ours.pair, {DIVERGENCE: kl_divergence(token_influence(theirs), token_influence(ours))})
    return table


def _positions(lengths: tuple[int, int] | None, side: int) -> np.ndarray:
    """Positions of the source (side 0) or target (side 1)."""
    return (np.arange(BINS) + 0.5) / BINS if lengths is None else np.arange(1, lengths[side] + 1)


def _empty_table(run: Run, prefix: str, quantities: tuple[str, ...]) -> Table:
    positions = _positions(run.lengths, side=1)
    return Table(
        name=run.name,
        prefix=prefix,
        pairs=np.zeros(run.number, dtype=np.int64),
        relative=run.lengths is None,
        positions=positions,
        values={name: np.full((run.number, len(positions)), np.nan) for name in quantities},
        means={name: np.full(run.number, np.nan) for name in quantities},
    )


def _fill(table: Table, row: int, pair: int, quantities: dict[str, np.ndarray]) -> None:
    """Enter what was measured at each step of a sentence, `[T]`, as a row of the table."""
    table.pairs[row] = pair
    for name, steps in quantities.items():
        by_position = bin_positions(steps) if table.relative else steps[: len(table.positions)]
        table.values[name][row, : len(by_position)] = by_position
        defined = steps[~np.isnan(steps)]
        if len(defined):
            table.means[name][row] = defined.mean()


def _same_sentences(run: Run, other: Run, prefix: str) -> Iterator[tuple[Sentence, Sentence]]:
    """Sentences of two runs side by side; raises RunError where they are not of the same tokens."""
    for ours, theirs in zip_longest(run.sentences(prefix), other.sentences(prefix)):
        if ours is None or theirs is None or ours.pair != theirs.pair:
            raise RunError(f"{_mismatch(run.name, other.name)}: they hold different sentences. {_SAME_SELECTION}")
        for side in ("source", "target"):
            if not np.array_equal(getattr(ours, f"{side}_ids"), getattr(theirs, f"{side}_ids")):
                remedy = (
                    "each model wrote its own: compare runs with reference or random prefixes"
                    if side == "target" and prefix == "model"
                    else "evaluate both with the same tokenizer, data, selection and seed"
                )
                raise RunError(
                    f"{_mismatch(run.name, other.name)}: the {side} tokens of pair {ours.pair} differ with {prefix} "
                    f"prefixes, so that their shares are not of the same tokens; {remedy}."
                )
        yield ours, theirs


_SAME_SELECTION = "Evaluate both on the same data with the same lengths, number and seed."


def _mismatch(name: str, other: str) -> str:
    return f"Mismatched runs {name!r} and {other!r}"


# ---- estimates


def by_position(table: Table, quantity: str) -> Estimate:
    """Means over sentences at each position, arrays `[P]`, with bootstrap intervals."""
    return bootstrap_mean(table.values[quantity])


def overall(table: Table, quantity: str) -> Estimate:
    """The mean over sentences of their means over steps, floats, with a bootstrap interval."""
    return bootstrap_mean(table.means[quantity])


def source_positions(table: Table) -> Estimate:
    """source(k) -> target: means over sentences at each source position, arrays `[S or BINS]`, with intervals."""
    return bootstrap_mean(table.source_position)


def paired_difference(table: Table, other: Table, quantity: str) -> tuple[Estimate, Estimate]:
    """Means over sentences of `table` - `other`, by position and overall, with intervals from drawing sentences.

    A difference of a sentence's two values varies less than the values do, so small effects show.

    Raises:
        RunError: the tables have other sentences or positions.
    """
    rows, other_rows = _align(table, other)
    by_positions = table.values[quantity][rows] - other.values[quantity][other_rows]
    means = table.means[quantity][rows] - other.means[quantity][other_rows]
    return bootstrap_mean(by_positions), bootstrap_mean(means)


def paired_change(earlier: Table, later: Table, quantity: str) -> tuple[Estimate, Estimate]:
    """Means over sentences of |later - earlier|, by position and overall (the mean over a sentence's positions).

    Unlike a difference of means, it also sees changes that go up in one sentence and down in another.
    """
    rows, later_rows = _align(earlier, later)
    changes = np.abs(later.values[quantity][later_rows] - earlier.values[quantity][rows])
    counts = (~np.isnan(changes)).sum(axis=1)
    means = np.divide(np.nansum(changes, axis=1), counts, out=np.full(len(changes), np.nan), where=counts > 0)
    return bootstrap_mean(changes), bootstrap_mean(means)


def _align(table: Table, other: Table) -> tuple[np.ndarray, np.ndarray]:
    """Rows of both tables such that the same pairs stand side by side."""
    names = _mismatch(table.name, other.name)
    if not np.array_equal(table.positions, other.positions):
        raise RunError(f"{names}: their sentences have other lengths. {_SAME_SELECTION}")
    rows, other_rows = np.argsort(table.pairs, kind="stable"), np.argsort(other.pairs, kind="stable")
    if not np.array_equal(table.pairs[rows], other.pairs[other_rows]):
        mine, theirs = np.setdiff1d(table.pairs, other.pairs), np.setdiff1d(other.pairs, table.pairs)
        raise RunError(
            f"{names}: {len(mine)} of {len(table.pairs)} sentences are in the first only, {len(theirs)} of "
            f"{len(other.pairs)} in the second only, so they cannot be paired. {_SAME_SELECTION}"
        )
    return rows, other_rows
