"""A picture of the way of relevance through the layers: what is where, and where it enters the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from hf_lrp.models.words import plain_tokens
from hf_lrp.pictures.fonts import drawable
from hf_lrp.pictures.look import PAGE, new_figure, printed_look

if TYPE_CHECKING:
    from hf_lrp.results.contributions import Contributions

_POWER = 0.65  # of shares that colours follow
_LONGEST = 16  # characters


def draw_flow(contributions: Contributions, step: int | None = None) -> Figure:
    """Shares by layer and position: of the decoder, sent by each of its layers to the source, and of the encoder.

    Layers from bottom to top; one colour scale. The top's output, which is all at the predicting position, is left
    out.

    Args:
        contributions: of one sentence, explained with ``inside=True``, between tokens or words.
        step: whose prediction, by its number, which counts from 1; None: the mean over all steps.
    """
    c = contributions
    if c.inside is None:
        raise ValueError("These contributions have no inside to draw: explain with inside=True.")
    if step is not None and step not in c.steps:
        raise ValueError(f"there is no step {step}: there are {', '.join(map(str, c.steps))}.")
    rows = range(len(c)) if step is None else [c.steps.index(step)]
    inside = c.inside.at(list(rows))
    panels = {"decoder": inside["decoder.positions"][:, :-1]}
    if "decoder.sent" in inside:
        panels |= {"sent to the source": inside["decoder.sent"], "encoder": inside["encoder.positions"]}
    means = {name: tensor.double().mean(0).numpy() for name, tensor in panels.items()}
    sides = [inside.tokens["decoder" if name == "decoder" else "encoder"] for name in panels]
    what = "all predictions" if step is None else f"the prediction of {c.labels[2][rows[0]]}"
    (title, *labels), text = drawable([(f"Relevance of {what}, by layer",), *map(_labels, sides)])
    with printed_look(text["fontfamily"]):
        height = 1.3 + 0.17 * max(len(shares) for shares in means.values()) + 0.05 * max(map(len, sum(sides, ())))
        figure = new_figure(PAGE, height)
        axes = figure.subplots(1, len(panels), squeeze=False, width_ratios=[len(side) + 3 for side in sides])[0]
        norm = PowerNorm(_POWER, 0.0, max(float(shares.max()) for shares in means.values()))
        for one, (name, shares), words in zip(axes, means.items(), labels, strict=True):
            _draw(one, name, shares, words, norm)
        bar = figure.colorbar(axes[-1].images[0], ax=list(axes), aspect=25, pad=0.01)
        bar.set_label("share")
        figure.suptitle(title[0], fontsize=8)
    return figure


def _labels(tokens: tuple[str, ...]) -> tuple[str, ...]:
    shown = plain_tokens(tokens)
    return tuple(label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…" for label in shown)


def _draw(axes: Axes, name: str, shares: np.ndarray, words: list[str], norm: PowerNorm) -> None:
    layers = len(shares)
    axes.imshow(shares, norm=norm, cmap="Blues", aspect="auto", origin="lower", interpolation="nearest")
    below = {"decoder": "into", "encoder": "into", "sent to the source": "from"}[name]
    numbers = [f"{below} {layer + 1}" for layer in range(layers)]
    if name == "encoder":
        numbers[-1] = "output"
    axes.set_yticks(range(layers), numbers)
    axes.set_xticks(range(len(words)), words, rotation=90, fontsize=6)
    axes.set_title(name)
    axes.grid(visible=False)
    axes.tick_params(length=0)
