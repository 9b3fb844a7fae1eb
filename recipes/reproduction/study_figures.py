"""Figures of a study, from what is kept of it: curves by position, objectives, amounts of data, training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
from claims import Results
from claims.curves import USE, Curves, step_differences
from claims.reading import read_curves, read_training
from study import BASE, MINIMUM_RISK
from study_results import LABELS, KeptResults

from hf_lrp.corpus.measures import BINS, DIVERGENCE, bin_positions
from hf_lrp.corpus.stages import find_stages
from hf_lrp.pictures.charts import Chart, Curve, Panel, Stage, describe_bands
from hf_lrp.pictures.figures import write_figure
from hf_lrp.results.intervals import Estimate, bootstrap_mean
from hf_lrp.results.prefix_types import PREFIXES
from hf_lrp.results.quantities import QUANTITIES

SERIES = ("source_total", "source_entropy", "target_entropy")


def draw_study(kept: KeptResults, folder: Path) -> None:
    """Draw what there are results for, as PDF, SVG, PNG and CSV."""
    for chart in charts_of_study(kept):
        write_figure(replace(chart, line=f"{kept.corpus.name}, {chart.line}" if chart.line else ""), folder)


def charts_of_study(kept: KeptResults) -> Iterator[Chart]:
    """The charts of a corpus, as far as there are results."""
    corpus = kept.corpus
    for kind, lengths in product(corpus.curves, corpus.lengths):
        runs = kept.runs(kind, lengths)
        if runs:
            yield _model_chart(f"model-{lengths}" if kind == BASE else f"model-{kind}-{lengths}", runs)
    kinds = {kind: kept.runs(kind, corpus.lengths[0]) for kind in (BASE, *corpus.objectives)}
    present = {kind: runs for kind, runs in kinds.items() if runs}
    if BASE in present and len(present) > 1:
        for prefix in ("model", "random"):
            yield _objectives_chart(present, prefix)
    amounts = kept.amounts()
    if len(amounts) > 1:
        yield _amounts_chart(amounts)
    risks = {
        f"seed {name.removeprefix(f'{MINIMUM_RISK}-seed')}": content["risks"]
        for name, content in kept.trainings.items()
        if content["kind"] == MINIMUM_RISK
    }
    if risks:
        yield _risk_chart(risks)
    for kind in corpus.timelines:
        checkpoints = kept.checkpoints(kind)
        if len(checkpoints) > 1:
            yield from _training_charts(kind, checkpoints)


# ---- one model


def _model_chart(stem: str, runs: Mapping[int, Results]) -> Chart:
    first = next(iter(runs.values()))
    relative = first.about["lengths"] is None
    curves = {prefix: read_curves(runs, prefix) for prefix in PREFIXES}
    panels = [_position_panel(quantity, curves, relative) for quantity in SERIES[:2]]
    panels.append(_position_panel("target_entropy", {"reference": curves["reference"]}, relative))
    use = _by_position("reference", curves["reference"], USE, relative)
    title = "total contribution of source positions"
    place = "relative source position" if relative else "source token position"
    panels.append(Panel(USE, "total contribution", place, (use,), title=title))
    caption = (
        "Contribution of source (a) and entropy of source contributions (b) by prefix type; with reference prefixes, "
        "entropy of target contributions (c) and use of source positions (d)."
    )
    return Chart(stem, caption, tuple(panels), columns=2, line=_about(runs))


def _position_panel(quantity: str, curves: Mapping[str, Curves], relative: bool) -> Panel:
    """A quantity by target position, a line for each of the labelled curves."""
    place = "relative target position" if relative else "target token position"
    lines = tuple(_by_position(label, each, quantity, relative) for label, each in curves.items())
    return Panel(quantity, QUANTITIES[quantity].label, place, lines, title=QUANTITIES[quantity].title)


def _by_position(label: str, curves: Curves, quantity: str, relative: bool) -> Curve:
    """The mean over seeds and sentences at each position, with an interval over sentences."""
    values = curves.of(quantity)
    if quantity != USE:
        values = np.where(np.arange(values.shape[-1]) > 0, values, np.nan)  # from the second step on
    return _curve(label, *_over_sentences(_mean_of_seeds(values), relative))


def _over_sentences(values: np.ndarray, relative: bool) -> tuple[np.ndarray, Estimate]:
    """Positions and means of `[sentences, steps]`; relative positions where lengths are mixed.

    Positions that fewer than half of the sentences have are left out: they would show other sentences than the rest.
    """
    positions = np.arange(1.0, values.shape[-1] + 1)
    if relative:
        lengths = (np.isfinite(values) * np.arange(1, values.shape[-1] + 1)).max(axis=-1)
        values = np.stack([bin_positions(row[:length]) for row, length in zip(values, lengths, strict=True) if length])
        positions = (np.arange(BINS) + 0.5) / BINS
    counts = np.isfinite(values).sum(axis=0)
    kept = counts >= max(counts.max() / 2, 1)
    return positions[kept], bootstrap_mean(values[:, kept])


def _mean_of_seeds(values: np.ndarray) -> np.ndarray:
    """`[sentences, ...]` from `[seeds, sentences, ...]`; nan where no seed has a value."""
    defined = np.isfinite(values)
    counts = defined.sum(axis=0)
    totals = np.where(defined, values, 0.0).sum(axis=0)
    return np.divide(totals, counts, out=np.full(totals.shape, np.nan), where=counts > 0)


def _curve(label: str, x: np.ndarray, estimate: Estimate, step: int | None = None) -> Curve:
    return Curve(label, np.asarray(x, dtype=np.float64), *estimate, step=step)


def _about(runs: Mapping[int, Results]) -> str:
    first = next(iter(runs.values()))
    seeds = f", mean of {len(runs)} seeds" if len(runs) > 1 else ""
    return f"{first.number} sentences{seeds}. {describe_bands(first.number)}"


# ---- objectives, amounts of data


def _objectives_chart(kinds: Mapping[str, Mapping[int, Results]], prefix: str) -> Chart:
    curves = {kind: read_curves(runs, prefix) for kind, runs in kinds.items()}
    panels = []
    for quantity in SERIES[:2]:
        lines = []
        for kind, own in curves.items():
            if kind != BASE:
                differences = step_differences(own, curves[BASE], quantity, equal=True)
                differences[..., 0] = np.nan
                lines.append(_curve(LABELS[kind], *_over_sentences(_mean_of_seeds(differences), relative=False)))
        title = f"{QUANTITIES[quantity].title}: difference"
        panels.append(
            Panel(
                f"{quantity}_difference",
                "difference to the baseline",
                "target token position",
                tuple(lines),
                title=title,
                is_difference=True,
            )
        )
    caption = (
        f"Differences to the baseline of the same seed with {prefix} prefixes, where both targets are equally long."
    )
    return Chart(f"objectives-{prefix}", caption, tuple(panels), columns=2, line=_about(kinds[BASE]))


def _amounts_chart(amounts: Mapping[int, Mapping[int, Results]]) -> Chart:
    """References, which have the same tokens for all models, so that whole curves can be compared."""
    curves = {f"{pairs:,} pairs": read_curves(runs, "reference") for pairs, runs in amounts.items()}
    relative = next(iter(next(iter(amounts.values())).values())).about["lengths"] is None
    panels = [_position_panel(quantity, curves, relative) for quantity in SERIES[:2]]
    caption = "By the number of training pairs, with reference prefixes."
    return Chart("data", caption, tuple(panels), columns=2, line=_about(next(iter(amounts.values()))))


def _risk_chart(risks: Mapping[str, Sequence[Sequence[float]]]) -> Chart:
    lines = []
    for seed, points in risks.items():
        updates, values = (np.array(side, dtype=np.float64) for side in zip(*points, strict=True))
        lines.append(_curve(seed, updates, Estimate(values, values, values)))
    panel = Panel("expected_risk", "held-out expected risk", "updates of minimum risk", tuple(lines))
    return Chart("minimum-risk", "Held-out expected risk while minimum risk trains.", (panel,))


# ---- training


def _training_charts(kind: str, checkpoints: Mapping[int, Results]) -> Iterator[Chart]:
    training = read_training({0: checkpoints})
    updates = training.updates
    number = next(iter(checkpoints.values())).number
    found = find_stages(updates, np.nanmean(training.series("source_total")[0], axis=1))
    ends = [end for end in (found.first_end, found.second_end) if end is not None]
    bounds = [int(end) for end in (updates[0], *ends, updates[-1])]
    stages = tuple(Stage(f"stage {n}", start, end) for n, (start, end) in enumerate(pairwise(bounds), 1))
    series: dict[str, np.ndarray] = {name: training.series(name)[0] for name in SERIES}
    series[DIVERGENCE] = training.divergence[0]
    words = {name: quantity.title for name, quantity in QUANTITIES.items()} | {DIVERGENCE: "KL to the last checkpoint"}
    axes = {name: quantity.label for name, quantity in QUANTITIES.items()} | {DIVERGENCE: "KL to the last (nats)"}
    panels = [
        Panel(
            name,
            axes[name],
            "updates",
            (_curve(words[name], updates, bootstrap_mean(values.T)),),
            title=words[name],
        )
        for name, values in series.items()
    ]
    about = f"{len(updates)} checkpoints, reference prefixes, {number} sentences. {describe_bands(number)}"
    lines = " Dashed lines part the stages of source contribution." if ends else f" No stages: {found.reason}."
    yield Chart(
        f"training-{kind}",
        f"Over updates.{lines}",
        tuple(panels),
        columns=2,
        kind="steps",
        stages=stages,
        line=about,
    )
    relative = next(iter(checkpoints.values())).about["lengths"] is None
    place = "relative target position" if relative else "target token position"
    panels = [
        Panel(name, axes[name], place, _checkpoint_curves(values, updates, relative, first), title=words[name])
        for name, values, first in (
            ("source_total", training.source_total[0], 2),
            ("accuracy", training.correct[0], 1),
        )
    ]
    yield Chart(
        f"positions-{kind}",
        "By target position for each checkpoint, coloured by updates: source contribution (a), accuracy (b).",
        tuple(panels),
        columns=2,
        kind="checkpoints",
        stages=stages,
        line=about,
    )


def _checkpoint_curves(values: np.ndarray, updates: np.ndarray, relative: bool, first: int) -> tuple[Curve, ...]:
    counted = np.where(np.arange(1, values.shape[-1] + 1) >= first, values, np.nan)
    return tuple(
        _curve(f"{step:.0f}", *_over_sentences(rows, relative), step=int(step))
        for step, rows in zip(updates, counted, strict=True)
    )
