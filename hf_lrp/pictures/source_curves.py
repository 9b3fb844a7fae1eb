"""R_t(source) by step, of many sentences or of two results with different targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hf_lrp.models.words import plain_tokens
from hf_lrp.pictures.arrangement import SMALLEST
from hf_lrp.pictures.fonts import drawable
from hf_lrp.pictures.look import COLUMN, FAINT, INK, PAGE, curve_style
from hf_lrp.pictures.panels import Canvas, Place
from hf_lrp.results.quantities import describe_mean, source_use

if TYPE_CHECKING:
    from hf_lrp.results.collection import ContributionsList
    from hf_lrp.results.comparison import Comparison
    from hf_lrp.results.contributions import Contributions

_EACH = "#9a9a9a"
_SIZE = 7.0  # points
_LEFT, _RIGHT, _BOTTOM, _MARGIN = 0.42, 0.1, 0.36, 0.05  # inches around axes
_LONGEST_NAME = 34  # characters


def plot_mean_curve(results: ContributionsList, place: Place) -> Figure:
    """R_t(source) of every sentence, and the mean over sentences with its interval, from step 2 on."""
    means = results.mean()
    overall = means.overall["source_total"]
    ends = f" [{overall.low:.3f},\u00a0{overall.high:.3f}]" if not np.isnan(overall.value) else ""
    wanted = f"{len(results)} sentences: {describe_mean(overall.value)}{ends}"
    ((title,),), text = drawable([(wanted if place.title is None else place.title,)])
    canvas, top = _open(place, title, text | {"fontsize": _SIZE}, width=1.3 * COLUMN, ratio=0.55)
    axes = canvas.add_axes(_LEFT, top, canvas.width - _LEFT - _RIGHT, canvas.height - top - _BOTTOM)
    for c in results:
        _draw_curve(axes, c, color=_EACH, linewidth=0.5, alpha=0.6)
    later = means.steps > 1
    curve = means.by_step["source_total"]
    steps = means.steps[later]
    look = curve_style(0) | {"linewidth": 1.3, "markersize": 3}
    axes.fill_between(steps, curve.low[later], curve.high[later], color=look["color"], alpha=0.25, linewidth=0)
    axes.plot(steps, curve.value[later], label="mean, with its 95 % interval", **look)
    _finish(axes, text)
    axes.legend(frameon=False, fontsize=_SIZE)
    return canvas.figure


def plot_side_by_side(comparison: Comparison, place: Place) -> Figure:
    """Two results whose steps do not match: source(k) -> target of both, and both curves of R_t(source)."""
    both = (comparison.first, comparison.second)
    names = [name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…" for name in comparison.names]
    wanted = comparison.title if place.title is None else place.title
    (tokens, names, (title,)), text = drawable([plain_tokens(comparison.first.source_tokens), names, (wanted,)])
    columns = len(tokens)
    canvas, top = _open(place, title, text | {"fontsize": _SIZE}, width=min(PAGE, max(COLUMN, 0.2 * columns + 3)))
    labels = canvas.widest(tokens, fontsize=_SIZE, **text) + 0.1
    legend = 0.17
    if place.is_new:
        canvas.resize(canvas.width, top + legend + 1.5 + labels)
        canvas.put_title_on_top(_MARGIN)
    between = 0.55
    room = canvas.width - _LEFT - between - _RIGHT
    width = room * min(0.7, max(0.5, columns / (columns + 12)))
    height = canvas.height - top - legend - max(labels, _BOTTOM) - _MARGIN
    use = canvas.add_axes(_LEFT, top + legend, width, height)
    curves = canvas.add_axes(_LEFT + width + between, top + legend, room - width, height)
    for number, (c, name) in enumerate(zip(both, names, strict=True)):
        look = curve_style(number) | {"linewidth": 1.1, "markersize": 3}
        use.plot(source_use(c.source).double().numpy(), label=name, **look)
        _draw_curve(curves, c, **look)
    size = float(np.clip(width * 72 / (columns * 1.15), SMALLEST, _SIZE))
    every = int(np.ceil(columns * size * 1.1 / 72 / width))
    _finish(use, text)
    use.set_xticks(range(0, columns, every), tokens[::every], rotation=90, fontsize=size, **text)
    use.set_xlabel("")
    use.set_ylabel("source(k) → target", fontsize=_SIZE, **text)
    use.legend(
        prop={"family": text["fontfamily"], "size": _SIZE},
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=2,
        frameon=False,
        borderaxespad=0.1,
        handlelength=2.4,
    )
    _finish(curves, text)
    return canvas.figure


def _open(place: Place, title: str, text: dict[str, Any], width: float, ratio: float = 1.0) -> tuple[Canvas, float]:
    """The canvas with its title, and where the room below that begins; a new figure gets a fitting size."""
    canvas = place.open()
    if place.is_new:
        wanted = place.width or width
        canvas.resize(wanted, ratio * wanted + 0.5)
    top = canvas.set_title(title, **text) + 2 * _MARGIN
    canvas.put_title_on_top(_MARGIN)
    return canvas, top


def _draw_curve(axes: Axes, c: Contributions, **look: Any) -> None:
    """R_t(source) from step 2 on: R_1(source) is 1 by definition."""
    steps = np.array(c.steps)
    axes.plot(steps[steps > 1], c.source_total.double().numpy()[steps > 1], **look)


def _finish(axes: Axes, text: dict[str, Any]) -> None:
    axes.set_xlabel("step", fontsize=_SIZE, labelpad=2, **text)
    axes.set_ylabel("R(source)", fontsize=_SIZE, labelpad=2, **text)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.tick_params(labelsize=_SIZE, length=2, width=0.5, color=INK)
    axes.grid(color=FAINT, linewidth=0.4)
    axes.set_axisbelow(True)
    axes.spines[:].set_linewidth(0.5)
    axes.spines[["top", "right"]].set_visible(False)
