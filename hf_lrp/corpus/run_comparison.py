"""Several runs together: whether they can be compared, their means, and differences to the first, paired by sentence.

Everything here is plain data; `run_charts` turns it into figures and `report` into a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hf_lrp.corpus.endings import Endings, read_endings
from hf_lrp.corpus.manifest import RunError
from hf_lrp.corpus.measures import Table, overall, paired_difference, read_table
from hf_lrp.corpus.run import Run
from hf_lrp.data.json_files import json_bytes
from hf_lrp.data.tables import csv_table
from hf_lrp.results.intervals import CONFIDENCE, DRAWS, Estimate, say_if_few
from hf_lrp.results.prefix_types import PREFIXES
from hf_lrp.results.quantities import QUANTITIES
from hf_lrp.results.used_method import UsedMethod

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """A run with the quantities of its sentences, by prefix type."""

    run: Run
    label: str
    tables: dict[str, Table]
    endings: dict[str, Endings]


class Mean(NamedTuple):
    """The mean of a quantity over the sentences of a run."""

    run: str
    prefix: str
    quantity: str
    sentences: int
    estimate: Estimate


class Difference(NamedTuple):
    """The mean over sentences of a run's quantity minus that of the baseline."""

    run: str
    baseline: str
    prefix: str
    quantity: str
    sentences: int
    estimate: Estimate

    @property
    def excludes_zero(self) -> bool:
        """Whether 0 lies outside the interval."""
        return bool(self.estimate.low > 0 or self.estimate.high < 0)


@dataclass(frozen=True, eq=False)
class RunComparison:
    """Runs, their means, and the differences of all but the first to the first."""

    runs: tuple[MeasuredRun, ...]
    mean_estimates: tuple[Mean, ...]
    difference_estimates: tuple[Difference, ...]
    notes: tuple[str, ...]  # what a reader must know before comparing

    @property
    def means(self) -> DataFrame:
        """A row per run, prefix type and quantity: number of sentences, mean, and the ends of its interval."""
        return _frame(_MEANS, _mean_rows(self))

    @property
    def differences(self) -> DataFrame:
        """A row per run but the first, prefix type and quantity: its difference to the first, and the interval."""
        return _frame(_DIFFERENCES, _difference_rows(self))


def open_runs(folders: Sequence[Path], labels: Sequence[str] | None = None) -> list[tuple[Run, str]]:
    """Runs and what figures call them; refuses the same run twice and labels that tell nothing apart."""
    runs = [Run.open(folder) for folder in folders]
    for number, run in enumerate(runs):
        for other in runs[:number]:
            if run.folder.resolve() == other.folder.resolve():
                raise RunError(f"{run.folder} is listed twice: list each run once.")
            if run.manifest["shards"] == other.manifest["shards"]:
                raise RunError(f"{other.folder} and {run.folder} hold the same results: give one of them.")
    names = [run.name for run in runs] if labels is None else list(labels)
    if len(names) != len(runs):
        raise ValueError(f"there are {len(runs)} runs but {len(names)} labels: give one label per run, in this order.")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two runs have the label {twice!r}: tell them apart with --labels, one per run.")
    return list(zip(runs, names, strict=True))


def measure(run: Run, label: str) -> MeasuredRun:
    """Read a run's quantities."""
    tables = {prefix: read_table(run, prefix) for prefix in run.prefixes}
    endings = {prefix: read_endings(run, prefix) for prefix in run.prefixes}
    return MeasuredRun(run, label, tables, endings)


def compare(runs: Sequence[MeasuredRun]) -> RunComparison:
    """Means of all runs, and paired differences to the first for the prefix types that all have.

    Raises:
        RunError: the runs are not of the same sentences and positions.
    """
    notes = check_comparable(runs)
    notes += [note for note in [say_if_few(min(run.run.number for run in runs))] if note]
    means = [
        Mean(run.label, prefix, quantity, _count(run.tables[prefix].means[quantity]), overall(table, quantity))
        for run in runs
        for prefix, table in run.tables.items()
        for quantity in _quantities(prefix, [table])
    ]
    differences = []
    for run in runs[1:]:
        for prefix in shared_prefixes(runs):
            table, first = run.tables[prefix], runs[0].tables[prefix]
            for quantity in _quantities(prefix, [table, first]):
                _, estimate = paired_difference(table, first, quantity)
                number = min(_count(table.means[quantity]), _count(first.means[quantity]))
                differences.append(Difference(run.label, runs[0].label, prefix, quantity, number, estimate))
    return RunComparison(tuple(runs), tuple(means), tuple(differences), tuple(notes))


def check_comparable(runs: Sequence[MeasuredRun]) -> list[str]:
    """Raise a RunError for runs that cannot be compared; return what else a reader must know.

    Positions and entropies count tokens, so runs of equal lengths need the same tokenizer. With mixed lengths,
    sentences can be paired all the same.
    """
    notes = []
    prefixes = shared_prefixes(runs)
    if not prefixes:
        raise RunError("No prefix type is in all runs: evaluate all with the same --prefix.")
    first = runs[0].run
    for run in (other.run for other in runs[1:]):
        names = f"Runs {first.name!r} and {run.name!r}"
        if run.lengths != first.lengths:
            raise RunError(
                f"{names} differ in lengths: {_describe_lengths(first)}, and {_describe_lengths(run)}. Evaluate both "
                "on the same data with the same lengths, or draw each by itself."
            )
        same_tokenizer = run.manifest["tokenizer"]["sha256"] == first.manifest["tokenizer"]["sha256"]
        if not same_tokenizer and run.lengths is not None:
            raise RunError(
                f"{names} have different tokenizers, so that the same position is not the same token: evaluate both "
                "with mixed lengths, where positions are relative, or draw each by itself."
            )
        if not _have_same_sentences(first, run, prefixes[0] if same_tokenizer else None):
            raise RunError(
                f"{names} hold different sentences: evaluate both on the same data with the same lengths, number and "
                "seed, or draw each by itself."
            )
        if not same_tokenizer:
            notes.append(f"{names} have different tokenizers: entropies depend on the number of tokens.")
        notes += _different_settings(names, first, run, ("method", "predict", *["seed"] * ("random" in prefixes)))
        if run.manifest.get("prompt") != first.manifest.get("prompt"):
            notes.append(f"{names} were given different prompts.")
    return notes


def _have_same_sentences(run: Run, other: Run, prefix: str | None) -> bool:
    """Whether two runs were given the same selection, or else hold the same tokens with this type of prefix.

    Without a prefix type, for runs whose tokens differ anyway: whether they are of the same corpus.
    """
    ours, theirs = run.manifest["selection"], other.manifest["selection"]
    if ours["sha256"] == theirs["sha256"]:
        return True
    if prefix is None:
        return ours.get("corpus") == theirs.get("corpus")
    tokens = ({item.pair: item.source_ids.tolist() for item in each.rows(prefix)} for each in (run, other))
    return next(tokens) == next(tokens)


def _different_settings(names: str, run: Run, other: Run, settings: Sequence[str]) -> list[str]:
    values = [(name, *(_told(each.manifest[name]) for each in (run, other))) for name in settings]
    return [f"{names} differ in {name}: {ours} and {theirs}." for name, ours, theirs in values if ours != theirs]


def _told(setting: Any) -> Any:
    return UsedMethod(**setting) if isinstance(setting, dict) else setting


def shared_prefixes(runs: Sequence[MeasuredRun]) -> list[str]:
    """The prefix types that all runs have."""
    return [prefix for prefix in PREFIXES if all(prefix in run.tables for run in runs)]


def _quantities(prefix: str, tables: Sequence[Table]) -> list[str]:
    """Quantities that are compared: those of all tables, accuracy only where the prefix is the correct translation."""
    names = [name for name in tables[0].values if all(name in table.values for table in tables)]
    own = [name for name, quantity in QUANTITIES.items() if quantity.of_references and prefix != "reference"]
    return [name for name in names if name not in own]


def in_words(quantity: str) -> str:
    """Title of a quantity: the paper's words, or the share of a part of a prompt."""
    return QUANTITIES[quantity].title if quantity in QUANTITIES else quantity


def _count(values: np.ndarray) -> int:
    return int(np.isfinite(values).sum())


def _describe_lengths(run: Run) -> str:
    return "mixed lengths" if run.lengths is None else "{} source and {} target tokens".format(*run.lengths)


# ---- files


_MEANS = ("run", "prefix", "quantity", "sentences", "mean", "low", "high")
_DIFFERENCES = ("run", "baseline", "prefix", "quantity", "sentences", "difference", "low", "high", "excludes_zero")


def _mean_rows(comparison: RunComparison) -> list[tuple]:
    return [(*row[:4], *row.estimate) for row in comparison.mean_estimates]


def _difference_rows(comparison: RunComparison) -> list[tuple]:
    return [(*row[:5], *row.estimate, row.excludes_zero) for row in comparison.difference_estimates]


def _frame(header: tuple[str, ...], rows: list[tuple]) -> DataFrame:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("Tables of means and differences need pandas: pip install pandas.") from error
    return pandas.DataFrame(rows, columns=list(header))


def means_csv(comparison: RunComparison) -> bytes:
    """The means as CSV, one per row."""
    return csv_table(_MEANS, _mean_rows(comparison))


def differences_csv(comparison: RunComparison) -> bytes:
    """The paired differences as CSV, one per row."""
    return csv_table(_DIFFERENCES, _difference_rows(comparison))


def comparison_json(comparison: RunComparison) -> bytes:
    """Means, differences, notes and the settings of each run as JSON."""
    content = {
        "confidence": CONFIDENCE,
        "bootstrap_draws": DRAWS,
        "runs": [{"label": run.label, "settings": settings_of(run.run)} for run in comparison.runs],
        "means": [{**row._asdict(), "estimate": _plain(row.estimate)} for row in comparison.mean_estimates],
        "differences": [
            {**row._asdict(), "estimate": _plain(row.estimate), "excludes_zero": row.excludes_zero}
            for row in comparison.difference_estimates
        ],
        "notes": list(comparison.notes),
    }
    return json_bytes(content)


def settings_of(run: Run) -> dict[str, Any]:
    """A run's manifest without the checksums of its files."""
    return {name: value for name, value in run.manifest.items() if name not in ("shards", "metrics")}


def _plain(estimate: Estimate) -> dict[str, float | None]:
    """An estimate for JSON, which has no nan."""
    return {name: float(value) if np.isfinite(value) else None for name, value in estimate._asdict().items()}
