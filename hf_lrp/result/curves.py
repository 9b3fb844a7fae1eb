"""R_t(source) by step, of many sentences or of two results with different targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from hf_lrp.result.fonts import drawable
from hf_lrp.result.panels import open_columns, open_figure, set_title
from hf_lrp.result.quantities import describe_mean, source_use

if TYPE_CHECKING:
    from hf_lrp.result.collection import ContributionsList
    from hf_lrp.result.comparison import Comparison
    from hf_lrp.result.contributions import Contributions

_MEAN, _EACH = "#b8500c", "#9a9a9a"
_TWO = ("#b8500c", "#1d5fb8")


def plot_mean_curve(
    results: ContributionsList,
    figure: Figure | SubFigure | None = None,
    *,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    title: str | None = None,
) -> Figure | SubFigure:
    """R_t(source) of every sentence, and the mean over sentences with its interval, from step 2 on."""
    means = results.mean()
    overall = means.overall["source_total"]
    ends = f" [{overall.low:.3f}, {overall.high:.3f}]" if not np.isnan(overall.value) else ""
    wanted = title or f"{len(results)} sentences: {describe_mean(overall.value)}{ends}"
    ((drawn,),), text = drawable([(wanted,)])
    figure = open_figure(figure, ax, figsize, (6.0, 3.6))
    axes = figure.subplots() if ax is None else ax
    for c in results:
        _draw_curve(axes, c, color=_EACH, linewidth=0.6, alpha=0.5)
    later = means.steps > 1
    curve = means.by_step["source_total"]
    steps = means.steps[later]
    axes.fill_between(steps, curve.low[later], curve.high[later], color=_MEAN, alpha=0.25, linewidth=0)
    axes.plot(steps, curve.value[later], color=_MEAN, marker="o", markersize=3, label="mean, with its 95 % interval")
    _finish(axes)
    axes.legend(frameon=False)
    set_title(figure, ax, drawn, **text)
    return figure


def plot_side_by_side(
    comparison: Comparison,
    figure: Figure | SubFigure | None = None,
    *,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    title: str | None = None,
) -> Figure | SubFigure:
    """Two results whose steps do not match: source(k) -> target of both, and both curves of R_t(source)."""
    both = (comparison.first, comparison.second)
    tokens = comparison.first.labels[0]
    (tokens_drawn, names, (heading,)), text = drawable([tokens, comparison.names, (title or comparison.title,)])
    fitting = (max(7.5, 0.3 * len(tokens) + 4), 3.8)
    figure = open_figure(figure, ax, figsize, fitting)
    use, curves = open_columns(figure, ax, [max(4.0, 0.3 * len(tokens)), 4.0])
    for c, name, color in zip(both, names, _TWO, strict=True):
        use.plot(source_use(c.source).double().numpy(), marker="o", markersize=4, linewidth=1.2, color=color)
        _draw_curve(curves, c, color=color, marker="o", markersize=4, linewidth=1.2, label=name)
    use.set_xticks(range(len(tokens)), tokens_drawn, rotation=90, **text)
    use.set_ylabel("source(k) → target, average 1")
    use.grid(color="#dddddd", linewidth=0.5)
    _finish(curves)
    curves.yaxis.tick_right()
    curves.yaxis.set_label_position("right")
    curves.legend(prop={"family": text["fontfamily"]}, frameon=False)
    set_title(figure, ax, heading, **text)
    return figure


def _draw_curve(axes: Axes, c: Contributions, **look: Any) -> None:
    """R_t(source) from step 2 on: R_1(source) is 1 by definition."""
    steps = np.array(c.steps)
    axes.plot(steps[steps > 1], c.source_total.double().numpy()[steps > 1], **look)


def _finish(axes: Axes) -> None:
    axes.set_xlabel("step")
    axes.set_ylabel("R(source)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)
