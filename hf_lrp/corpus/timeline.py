"""A training run over its checkpoints: the quantities of each, convergence to the last one, and stages of training.

A timeline's folder holds a run per checkpoint (``step-000200``), ``timeline.json`` with all numbers, and two CSV
files: ``timeline.csv`` with what is overall and ``timeline-positions.csv`` with what is by position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from hf_lrp.corpus.endings import read_endings
from hf_lrp.corpus.manifest import RunError
from hf_lrp.corpus.measures import (
    DIVERGENCE,
    Table,
    by_position,
    influence_divergence,
    overall,
    paired_change,
    read_table,
)
from hf_lrp.corpus.run import Run
from hf_lrp.corpus.stages import Stages, find_stages
from hf_lrp.data.files import write_atomically
from hf_lrp.data.json_files import read_json, write_json
from hf_lrp.data.tables import csv_table
from hf_lrp.models.checkpoints import step_of, whole_checkpoints
from hf_lrp.results.intervals import Estimate
from hf_lrp.results.quantities import QUANTITIES

STAGED = tuple(name for name, quantity in QUANTITIES.items() if quantity.staged)
CHANGE = "change of "  # in front of a quantity: its change since the checkpoint before

_FILE, _FORMAT, _VERSION = "timeline.json", "hf_lrp.timeline", 1
_ENDS = Estimate._fields
_NUMBERS = ("fall", "rise", "noise")  # of stages, where None in JSON was nan

Measured: TypeAlias = tuple[Estimate, Estimate]  # overall and by position


@dataclass(frozen=True, eq=False)
class Timeline:
    """A timeline: what was measured of K checkpoints on the same sentences, with bootstrap intervals.

    Quantities are those of a run (`Table.values`); ``divergence``, KL(last || checkpoint) of the token influence
    distributions; and ``change of <quantity>`` since the checkpoint before: means over sentences of |difference|, for
    divergence KL(checkpoint || the one before), nan for the first. Prefixes that a model writes are other tokens at
    each checkpoint, so there are no divergences then.

    Attributes:
        prefix: the prefix type.
        steps: `[K]`, the training steps of the checkpoints.
        folders: K names of the runs' folders within the timeline's.
        number: of sentences.
        relative: whether positions are relative, as where lengths are mixed.
        positions: `[P]`, as in `metrics.Table`.
        overall: by quantity, an estimate of arrays `[K]`.
        by_position: by quantity, an estimate of arrays `[K, P]`.
        stages: for R(source) and the entropies, the turning points of the overall values.
        names: by position, the token that all targets have there, such as `</s>`; not in files of older versions.
    """

    prefix: str
    steps: np.ndarray
    folders: tuple[str, ...]
    number: int
    relative: bool
    positions: np.ndarray
    overall: dict[str, Estimate]
    by_position: dict[str, Estimate]
    stages: dict[str, Stages]
    names: dict[int, str] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: str | Path) -> Timeline:
        """Read what `save` wrote.

        Raises:
            RunError: there is none, it is damaged, or it was written by a newer version.
        """
        path = Path(folder) / _FILE
        if not path.is_file():
            raise RunError(f"{folder} holds no timeline (no {_FILE}): write one with `hf-lrp timeline`.")
        try:
            content = read_json(path)
            kind, version = content.pop("format"), content.pop("version")
            if kind == _FORMAT and version <= _VERSION:
                return cls(**_from_json(content))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RunError(f"{path} is damaged ({error}): start the same `hf-lrp timeline` again.") from error
        raise RunError(
            f"{path} has format {kind!r} {version}, this hf_lrp reads {_FORMAT!r} up to {_VERSION}: install a "
            "newer hf_lrp, or write the timeline anew."
        )

    def save(self, folder: str | Path) -> None:
        """Write the JSON and CSV files into the timeline's folder."""
        folder = Path(folder)
        one = [
            (step, name, *ends)
            for name, estimate in self.overall.items()
            for step, *ends in zip(self.steps, *estimate, strict=True)
        ]
        many = [
            (step, name, position, *ends)
            for name, estimate in self.by_position.items()
            for step, *rows in zip(self.steps, *estimate, strict=True)
            for position, *ends in zip(self.positions, *rows, strict=True)
        ]
        write_atomically(folder / "timeline.csv", csv_table(("step", "quantity", *_ENDS), one))
        positions = csv_table(("step", "quantity", "position", *_ENDS), many)
        write_atomically(folder / "timeline-positions.csv", positions)
        content = {name: _to_json(value) for name, value in vars(self).items()}
        content["stages"] = {name: _to_json(asdict(stages)) for name, stages in self.stages.items()}
        write_json(folder / _FILE, {"format": _FORMAT, "version": _VERSION, **content})


def is_timeline(folder: str | Path) -> bool:
    """Whether a folder holds a timeline."""
    return (Path(folder) / _FILE).is_file()


def find_checkpoints(folders: Sequence[Path]) -> dict[int, Path]:
    """Checkpoints by training step, in order: of a run's folder with checkpoint-STEP folders, or those that are given.

    Raises:
        ValueError: there are fewer than two, one's step is not known, or two have the same.
    """
    if len(folders) == 1 and not (folders[0] / "config.json").is_file():
        found = list(whole_checkpoints(folders[0]).items())
    else:
        found = [(step_of(folder), folder) for folder in folders]
    checkpoints: dict[int, Path] = {}
    for step, folder in sorted(found):
        if step in checkpoints:
            raise ValueError(f"{checkpoints[step]} and {folder} are both of step {step}: give one of them.")
        checkpoints[step] = folder
    if len(checkpoints) < 2:
        raise ValueError(
            f"A timeline needs at least two checkpoints, got {len(checkpoints)}: give the folder of a run with "
            "folders checkpoint-STEP, or the checkpoints."
        )
    return checkpoints


def run_folder(step: int) -> str:
    """The name of the folder for the run of a checkpoint."""
    return f"step-{step:06d}"


def evaluate_timeline(
    checkpoints: Mapping[int, Path],
    load: Callable[[Path], tuple[Any, Any]],
    pairs: Any,
    folder: str | Path,
    *,
    prefix: str = "reference",
    **options: Any,
) -> Timeline:
    """Evaluate checkpoints on the same pairs, each into a folder of its own, then measure and save the timeline.

    Interrupted and called again with the same arguments, it continues; with further checkpoints, these are evaluated.

    Args:
        checkpoints: folders by training step, such as `find_checkpoints` gives.
        load: gives the model and the tokenizer of a folder, such as `hf_lrp.models.loading.load_checkpoint`.
        pairs: as for `evaluate`.
        folder: of the timeline.
        prefix: the prefix type.
        **options: for `evaluate`.
    """
    from hf_lrp.corpus.evaluating import evaluate  # with torch and transformers: timelines are read without
    from hf_lrp.corpus.processes import this_process

    runs = {}
    for step, checkpoint in checkpoints.items():
        model, tokenizer = load(checkpoint)
        place, label = Path(folder) / run_folder(step), f"step {step}"
        runs[step] = evaluate(model, tokenizer, pairs, place, prefixes=[prefix], label=label, **options)
    timeline = measure_timeline(runs, prefix)
    if this_process().is_main_process:
        timeline.save(folder)
    return timeline


def measure_timeline(runs: Mapping[int, Run], prefix: str) -> Timeline:
    """Measure runs of checkpoints, by training step, on the same sentences.

    Raises:
        RunError: the runs have other sentences or tokens.
    """
    if len(runs) < 2:
        raise ValueError(f"A timeline needs at least two checkpoints, got {len(runs)}.")
    steps = sorted(runs)
    last = runs[steps[-1]]
    measured: list[dict[str, Measured]] = []
    before = None
    for step in steps:
        table = read_table(runs[step], prefix)
        measured.append(_measure(runs[step], table, last, before))
        before = runs[step], table
    totals, positions = ({name: _stack(measured, name, part) for name in measured[-1]} for part in (0, 1))
    return Timeline(
        prefix=prefix,
        steps=np.array(steps),
        folders=tuple(runs[step].folder.name for step in steps),
        number=last.number,
        relative=table.relative,
        positions=table.positions,
        overall=totals,
        by_position=positions,
        stages={name: find_stages(steps, totals[name].value) for name in STAGED},
        names=read_endings(last, prefix).target,
    )


def _measure(run: Run, table: Table, last: Run, before: tuple[Run, Table] | None) -> dict[str, Measured]:
    """By quantity the overall estimate and that by position, for one checkpoint."""
    measured = {name: (overall(table, name), by_position(table, name)) for name in table.values}
    if table.prefix != "model":
        measured[DIVERGENCE] = _diverge(run, last, table.prefix)
    if before is None:
        return measured
    both = [name for name in table.values if name in before[1].values]
    measured |= {CHANGE + name: paired_change(before[1], table, name)[::-1] for name in both}
    if table.prefix != "model":
        measured[CHANGE + DIVERGENCE] = _diverge(before[0], run, table.prefix)
    return measured


def _diverge(run: Run, reference: Run, prefix: str) -> Measured:
    table = influence_divergence(run, reference, prefix)
    return overall(table, DIVERGENCE), by_position(table, DIVERGENCE)


def _stack(measured: Sequence[dict[str, Measured]], name: str, part: int) -> Estimate:
    """Estimates of a quantity at all checkpoints as one; nan where a checkpoint does not have it."""
    like = measured[-1][name][part]
    nothing = Estimate(*(np.full_like(end, np.nan) for end in like))
    found = [row[name][part] if name in row else nothing for row in measured]
    return Estimate(*(np.stack(ends) for ends in zip(*found, strict=True)))


# ---- files


def _to_json(value: Any) -> Any:
    """Plain lists and numbers, with None for nan."""
    if isinstance(value, Estimate):
        return {end: _to_json(part) for end, part in value._asdict().items()}
    if isinstance(value, dict):
        return {name: _to_json(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    return None if isinstance(value, float) and np.isnan(value) else value


def _from_json(content: dict[str, Any]) -> dict[str, Any]:
    """The fields of a timeline."""
    for kind in ("overall", "by_position"):
        content[kind] = {
            name: Estimate(*(np.array(estimate[end], dtype=np.float64) for end in _ENDS))
            for name, estimate in content[kind].items()
        }
    for stages in content["stages"].values():
        stages |= {name: np.nan for name in _NUMBERS if stages[name] is None}
    content["stages"] = {name: Stages(**stages) for name, stages in content["stages"].items()}
    content["names"] = {int(position): token for position, token in content.get("names", {}).items()}
    arrays = {name: np.array(content[name]) for name in ("steps", "positions")}
    return content | arrays | {"folders": tuple(content["folders"])}
