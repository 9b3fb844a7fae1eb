"""Heat maps of heads' shares by layer, and what masking heads costs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hf_lrp.pictures.look import INK, PAGE, curve_style, letter, new_figure, printed_look
from hf_lrp.results.intervals import Estimate

_NAMES = {"encoder": "encoder", "self": "decoder, self", "cross": "decoder, cross"}
_ORDERS = {"lowest": "lowest share first", "random": "random", "highest": "highest share first"}


def draw_heads(heads: Mapping[str, Estimate], masked: Mapping[str, Mapping[float, Estimate]] | None = None) -> Figure:
    """Shares of heads, in percent, a panel per kind with one colour scale each; layers from bottom to top.

    heads: by kind, estimates of arrays [layers, heads].
    masked: by order and fraction masked, the mean chrF; drawn in one more panel.
    """
    panels = len(heads) + (masked is not None)
    layers = max(len(estimate.value) for estimate in heads.values())
    with printed_look():
        figure = new_figure(min(PAGE, 0.6 + 2.1 * panels), max(2.2, 1.1 + 0.2 * layers))
        axes = figure.subplots(1, panels, squeeze=False)[0]
        for number, (kind, estimate) in enumerate(heads.items()):
            _draw_kind(figure, axes[number], estimate.value)
            letter(axes[number], number, _NAMES[kind])
        if masked is not None:
            _draw_masked(axes[-1], masked)
            letter(axes[-1], panels - 1, "heads masked")
    return figure


def _draw_kind(figure: Figure, axes: Axes, shares: np.ndarray) -> None:
    """A cell per head, heads of a layer sorted from the largest: their numbers mean nothing."""
    layers, heads = shares.shape
    shown = -np.sort(-100 * shares, axis=1)
    image = axes.imshow(shown, cmap="Blues", vmin=0, aspect="auto", origin="lower", interpolation="nearest")
    axes.set_yticks(range(layers), [str(layer + 1) for layer in range(layers)])
    axes.set_xticks(range(heads), (-shares).argsort(axis=1, kind="stable")[-1] + 1 if layers == 1 else [""] * heads)
    axes.set_xlabel("heads, by share")
    axes.set_ylabel("layer")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    numbers = (-shares).argsort(axis=1, kind="stable") + 1
    if heads <= 16:
        for (layer, place), share in np.ndenumerate(shown):
            color = "white" if share > 0.6 * shown.max() else INK
            axes.text(place, layer, str(numbers[layer, place]), ha="center", va="center", size=5.5, color=color)
    bar = figure.colorbar(image, ax=axes, location="bottom", aspect=30, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2, labelsize=6)
    bar.set_label("% of a prediction's relevance", size=6)


def _draw_masked(axes: Axes, masked: Mapping[str, Mapping[float, Estimate]]) -> None:
    """Mean chrF by the fraction of heads that is masked, a curve per order, with intervals."""
    for number, (order, curve) in enumerate(masked.items()):
        look = curve_style(number)
        fractions = list(curve)
        axes.plot(fractions, [curve[f].value for f in fractions], label=_ORDERS[order], **look)
        low, high = ([getattr(curve[f], end) for f in fractions] for end in ("low", "high"))
        axes.fill_between(fractions, low, high, color=look["color"], alpha=0.15, linewidth=0)
    axes.set_xlabel("fraction of heads masked")
    axes.set_ylabel("chrF")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.35), fontsize=6, handlelength=2.5)
