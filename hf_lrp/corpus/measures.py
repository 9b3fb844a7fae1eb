"""The quantities of the paper for a run: tables of them, and means with intervals.

Steps and positions count from 1, as in the paper. `hf_lrp.results.quantities` has the definitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest

import numpy as np

from hf_lrp.corpus.manifest import RunError
from hf_lrp.corpus.run import Run
from hf_lrp.corpus.shards import Row
from hf_lrp.corpus.summarizing import quantities_of
from hf_lrp.results.intervals import Estimate, bootstrap_mean
from hf_lrp.results.quantities import (
    QUANTITIES,
    defined_mean,
    kl_divergence,
    mean_over_steps,
    source_use,
    token_influence,
)

DIVERGENCE = "divergence"  # the quantity in the tables of `influence_divergence`
BINS = 10  # of relative positions


# ---- positions


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
            than T: there is no value after its end, and steps after T count in `means` only. For models that read
            prompts, the raw share of each part too (`summarizing.share_of`).
        means: by quantity `[n]`: the mean over the steps of the sentence from the second on.
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
    table = _empty_table(run, prefix, tuple(QUANTITIES))
    sources = _positions(run.lengths, side=0)
    use = np.full((run.number, len(sources)), np.nan)
    for row, sentence in enumerate(run.rows(prefix)):
        _fill(table, row, sentence.pair, quantities_of(sentence))
        of_positions = source_use(sentence.source)
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
        influences = [token_influence(sentence.source, sentence.target) for sentence in (theirs, ours)]
        _fill(table, row, ours.pair, {DIVERGENCE: kl_divergence(*influences)})
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
        if name not in table.values:  # the share of a part of the prompt
            table.values[name] = np.full((len(table.pairs), len(table.positions)), np.nan)
            table.means[name] = np.full(len(table.pairs), np.nan)
        by_position = bin_positions(steps) if table.relative else steps[: len(table.positions)]
        table.values[name][row, : len(by_position)] = by_position
        table.means[name][row] = mean_over_steps(steps)


def _same_sentences(run: Run, other: Run, prefix: str) -> Iterator[tuple[Row, Row]]:
    """Sentences of two runs side by side; raises RunError where they are not of the same tokens."""
    for ours, theirs in zip_longest(run.rows(prefix), other.rows(prefix)):
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
    """The mean over sentences of their means over steps from the second on, floats, with a bootstrap interval."""
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
    """Means over sentences of |later - earlier|, by position and overall: the mean over a sentence's positions.

    Overall, the first position is left out as in all means over steps, except where positions are relative.

    Unlike a difference of means, it also sees changes that go up in one sentence and down in another.
    """
    rows, later_rows = _align(earlier, later)
    changes = np.abs(later.values[quantity][later_rows] - earlier.values[quantity][rows])
    counted = changes if earlier.relative else changes[:, 1:]
    return bootstrap_mean(changes), bootstrap_mean(defined_mean(counted))


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
