"""Charts of one run and of several runs: what their figures show, by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hf_lrp.corpus.endings import LAST, Endings
from hf_lrp.corpus.measures import Table, by_position, paired_difference, source_positions
from hf_lrp.corpus.run_comparison import MeasuredRun, check_comparable, shared_prefixes
from hf_lrp.corpus.summarizing import part_of
from hf_lrp.pictures.charts import Chart, Curve, Kind, Panel, describe_bands
from hf_lrp.results.intervals import Estimate, bootstrap_mean
from hf_lrp.results.quantities import QUANTITIES

_LONGEST_BASELINE = 22  # characters of a label that fit beside a panel


def charts_of_run(run: MeasuredRun) -> list[Chart]:
    """Contributions by position, use of source positions, entropies; and prefix types, where there are several.

    For a model that reads prompts, also the raw shares of their parts.

    The first three are with reference prefixes, as in the paper, or else with the first type that the run has.
    """
    prefix = "reference" if "reference" in run.tables else next(iter(run.tables))
    line = _line(run.run.number, f"{run.label}, {prefix} prefixes")
    charts = [
        Chart(
            "1-contributions-by-position",
            "Contribution of the whole source at each target position, from the second on.",
            (_panel("source_total", [(run.label, run.tables[prefix])], [run.endings[prefix]]),),
            line=line,
        ),
        _source_positions(run, prefix, line),
        Chart(
            "3-entropies-by-position",
            "Entropy of source contributions (a) and of target contributions (b) at each target position, in nats.",
            tuple(
                _panel(quantity, [(run.label, run.tables[prefix])], [run.endings[prefix]])
                for quantity in ("source_entropy", "target_entropy")
            ),
            line=line,
        ),
    ]
    if len(run.tables) > 1:
        charts.append(
            Chart(
                "4-prefix-types",
                "Contribution of source (a) and entropy of source contributions (b) with prefixes of "
                f"different types.{_say_whose_end_is_named(run.endings)}",
                tuple(
                    _panel(quantity, list(run.tables.items()), list(run.endings.values()))
                    for quantity in ("source_total", "source_entropy")
                ),
                line=_line(run.run.number, run.label),
            )
        )
    return [*charts, *_prompt_parts(run)]


def charts_of_runs(runs: Sequence[MeasuredRun], *, growth: bool = False) -> list[Chart]:
    """Runs side by side for each prefix type that all have, with paired differences to the first.

    With `growth` also in their order, with arrows from the first (the least data) to the last (the most).
    """
    check_comparable(runs)
    charts = [_objectives(runs, prefix) for prefix in shared_prefixes(runs)]
    if growth:
        charts += [_growth(runs, prefix) for prefix in shared_prefixes(runs)]
    return charts


def _prompt_parts(run: MeasuredRun) -> list[Chart]:
    """Raw shares of the parts of a prompt, for a model that reads one: a panel for each prefix type."""
    panels = []
    for prefix, table in run.tables.items():
        parts = {quantity: part for quantity in table.values if (part := part_of(quantity)) is not None}
        curves = [_curve(part, table.positions, by_position(table, quantity)) for quantity, part in parts.items()]
        if curves:
            title = f"{prefix} prefixes" if len(run.tables) > 1 else ""
            panels.append(Panel("share", "raw share", position_label(table.relative), tuple(curves), title=title))
    if not panels:
        return []
    caption = "Raw shares of the parts of the prompt, of source and of target at each target position; they sum to 1."
    line = _line(run.run.number, run.label)
    return [Chart("12-parts-of-the-prompt", caption, tuple(panels), columns=min(2, len(panels)), line=line)]


def _source_positions(run: MeasuredRun, prefix: str, line: str) -> Chart:
    table, endings = run.tables[prefix], run.endings[prefix]
    label = "total contribution"
    curve = _curve(run.label, table.source_axis, source_positions(table))
    caption = "Total contribution of each source position to the whole target; the average is 1."
    if not table.relative:
        names = tuple(sorted(endings.source.items()))
        panels = [Panel("source_position", label, "source token position", (curve,), named_positions=names)]
    else:
        last = _curve(run.label, np.arange(-LAST, 0), bootstrap_mean(endings.last_source_use))
        names = tuple(sorted(endings.last_source.items()))
        panels = [
            Panel("source_position", label, "relative source position", (curve,), title="whole source"),
            Panel("last_source", label, "position from the end", (last,), title="last tokens", named_positions=names),
        ]
        caption += " (b): the last source tokens, counted from the end."
    return Chart("2-source-positions", caption, tuple(panels), line=line)


def _objectives(runs: Sequence[MeasuredRun], prefix: str) -> Chart:
    tables, endings = _of_prefix(runs, prefix)
    quantities = ("source_total", "source_entropy")
    panels = [_panel(quantity, tables, endings) for quantity in quantities]
    panels += [_difference_panel(quantity, tables, endings) for quantity in quantities]
    return Chart(
        f"5-side-by-side-{prefix}",
        f"Contribution of source (a) and entropy of source contributions (b) with {prefix} prefixes; below, the "
        f"differences to {runs[0].label}, paired by sentence.",
        tuple(panels),
        columns=2,
        line=_line(runs[0].run.number, f"{prefix} prefixes"),
    )


def _growth(runs: Sequence[MeasuredRun], prefix: str) -> Chart:
    tables, endings = _of_prefix(runs, prefix)
    kind: Kind = "growth"
    return Chart(
        f"6-growth-{prefix}",
        f"Contribution of source (a) and entropy of source contributions (b) with {prefix} prefixes, from "
        f"{runs[0].label} to {runs[-1].label}; arrows lead from the first to the last where their intervals "
        "do not overlap.",
        tuple(_panel(quantity, tables, endings) for quantity in ("source_total", "source_entropy")),
        kind=kind,
        line=_line(runs[0].run.number, f"{prefix} prefixes"),
    )


def _line(sentences: int, whose: str) -> str:
    """The line below a figure: whose contributions, of how many sentences, and its bands."""
    return f"{whose}, {sentences:,} sentences. {describe_bands(sentences)}"


def _of_prefix(runs: Sequence[MeasuredRun], prefix: str) -> tuple[list[tuple[str, Table]], list[Endings]]:
    return [(run.label, run.tables[prefix]) for run in runs], [run.endings[prefix] for run in runs]


def _panel(quantity: str, tables: Sequence[tuple[str, Table]], endings: Sequence[Endings]) -> Panel:
    """A quantity of several tables by target position."""
    curves = tuple(_curve(label, table.positions, by_position(table, quantity)) for label, table in tables)
    place = position_label(tables[0][1].relative)
    return Panel(quantity, QUANTITIES[quantity].label, place, curves, named_positions=_common_names(endings))


def _difference_panel(quantity: str, tables: Sequence[tuple[str, Table]], endings: Sequence[Endings]) -> Panel:
    (baseline, first), *others = tables
    unit = f" ({QUANTITIES[quantity].unit})" if QUANTITIES[quantity].unit else ""
    curves = tuple(
        _curve(label, table.positions, paired_difference(table, first, quantity)[0]) for label, table in others
    )
    return Panel(
        f"{quantity}_difference",
        f"difference to {baseline if len(baseline) <= _LONGEST_BASELINE else 'the first'}{unit}",
        position_label(first.relative),
        curves,
        title=QUANTITIES[quantity].title,
        is_difference=True,
        named_positions=_common_names(endings),
    )


def position_label(relative: bool) -> str:
    """Label of the axis of target positions."""
    return "relative target position" if relative else "target token position"


def _curve(label: str, positions: np.ndarray, estimate: Estimate) -> Curve:
    return Curve(label, positions.astype(float), *estimate)


def _common_names(endings: Sequence[Endings]) -> tuple[tuple[float, str], ...]:
    """Target positions that hold the same token in all sentences of all tables whose targets are of one length."""
    named = [set(ending.target.items()) for ending in endings if ending.target]
    common = set.intersection(*named) if named else set()
    return tuple((float(position), token) for position, token in sorted(common))


def _say_whose_end_is_named(endings: Mapping[str, Endings]) -> str:
    """For a caption: which prefixes a named position does not belong to, since they are of all lengths."""
    others = [prefix for prefix, ending in endings.items() if not ending.target]
    if not others or len(others) == len(endings):
        return ""
    return (
        f" The position that is named by its token is that of the other prefixes, not of {' and '.join(others)} ones."
    )
