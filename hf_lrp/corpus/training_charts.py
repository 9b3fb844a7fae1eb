"""Charts of a training run: quantities over its checkpoints, overall and by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hf_lrp.corpus.measures import DIVERGENCE
from hf_lrp.corpus.run_charts import position_label
from hf_lrp.corpus.timeline import CHANGE, STAGED, Timeline
from hf_lrp.pictures.charts import Chart, Curve, Panel, Stage, describe_bands
from hf_lrp.results.quantities import QUANTITIES

_WORDS = {name: quantity.title for name, quantity in QUANTITIES.items()} | {
    DIVERGENCE: "KL to the last checkpoint",
    CHANGE + "source_total": f"change of {QUANTITIES['source_total'].title}",
    CHANGE + DIVERGENCE: "change of token influences",
}
_LABELS = {name: quantity.label for name, quantity in QUANTITIES.items()} | {
    DIVERGENCE: "KL to the last (nats)",
    CHANGE + "source_total": f"|change| of {QUANTITIES['source_total'].label}",
    CHANGE + DIVERGENCE: "KL to the one before (nats)",
}


def charts_of_timeline(timeline: Timeline, label: str) -> list[Chart]:
    """Training stages, entropies, accuracy and change by position, and the timeline; as far as they were measured."""
    stages, about = find_stages_of(timeline)
    line = f"{label}, {timeline.prefix} prefixes, {timeline.number:,} sentences. {describe_bands(timeline.number)}"
    dashed = " Dashed lines part the stages." if len(stages) > 1 else ""
    over_steps = [name for name in (DIVERGENCE, *STAGED) if name in timeline.overall]
    # Only reference prefixes are the correct translation.
    accuracy = ["accuracy"] * (timeline.prefix == "reference")
    changes = [name for name in (CHANGE + "source_total", CHANGE + DIVERGENCE) if name in timeline.by_position]
    charts = [
        Chart(
            "7-training-stages",
            f"Over training steps: {_enumerate(over_steps)}.{dashed} {about}",
            tuple(_over_steps(timeline, name) for name in over_steps),
            columns=2,
            kind="steps",
            stages=stages,
        ),
        _over_positions(timeline, "8-entropies-over-checkpoints", STAGED[1:], stages, about),
        *(_over_positions(timeline, "9-accuracy-over-checkpoints", [name], stages, about) for name in accuracy),
        _over_positions(timeline, "10-change-over-checkpoints", changes, stages, about),
        Chart(
            "11-training-timeline",
            f"The training timeline, with numbers where training and its stages begin and end. {about}",
            tuple(_over_steps(timeline, name) for name in (*over_steps, *accuracy)),
            kind="timeline",
            stages=stages,
        ),
    ]
    return [replace(chart, line=line) for chart in charts]


def find_stages_of(timeline: Timeline) -> tuple[tuple[Stage, ...], str]:
    """The stages of training, and a sentence on where they come from.

    They are those of the source contribution, or else of the first entropy that shows any; one stage where none does.
    """
    first, last = int(timeline.steps[0]), int(timeline.steps[-1])
    for quantity in STAGED:
        found = timeline.stages[quantity]
        if found.first_end is not None:
            ends = [int(end) for end in (found.first_end, found.second_end) if end is not None]
            bounds = [first, *ends, last]
            stages = tuple(
                Stage(f"stage {number}", start, end) for number, (start, end) in enumerate(pairwise(bounds), 1)
            )
            missing = f" No third stage: {found.reason}." if found.second_end is None else ""
            return stages, f"Stages by the turning points of {_WORDS[quantity]}.{missing}"
    reason = timeline.stages[STAGED[0]].reason
    return (Stage("training", first, last),), f"No stages were found in source contribution: {reason}."


def _over_steps(timeline: Timeline, quantity: str) -> Panel:
    curve = Curve(_WORDS[quantity], timeline.steps.astype(float), *timeline.overall[quantity])
    return Panel(quantity, _LABELS[quantity], "training step", (curve,))


def _over_positions(
    timeline: Timeline, stem: str, quantities: Sequence[str], stages: tuple[Stage, ...], about: str
) -> Chart:
    """One curve by target position for each checkpoint."""
    panels = []
    for quantity in quantities:
        rows = zip(timeline.steps.tolist(), *timeline.by_position[quantity], strict=True)
        curves = tuple(
            Curve(f"step {step}", timeline.positions.astype(float), value, low, high, step)
            for step, value, low, high in rows
        )
        names = tuple((float(position), token) for position, token in sorted(timeline.names.items()))
        place = position_label(timeline.relative)
        panels.append(Panel(quantity, _LABELS[quantity], place, curves, named_positions=names))
    since = " Changes are since the checkpoint before." if quantities[0].startswith(CHANGE) else ""
    caption = (
        f"By target position for each checkpoint, coloured by training step: {_enumerate(quantities)}.{since} "
        f"Circles: the first {'change' if since else 'checkpoint'}, squares: the last, both with bands. {about}"
    )
    return Chart(stem, caption, tuple(panels), kind="checkpoints", stages=stages)


def _enumerate(quantities: Sequence[str]) -> str:
    """Quantities in words, with the letters of their panels."""
    if len(quantities) == 1:
        return _WORDS[quantities[0]]
    return ", ".join(f"({chr(ord('a') + n)}) {_WORDS[name]}" for n, name in enumerate(quantities))
