"""Results that can be drawn: one `plot` with the same options for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hf_lrp.pictures.panels import Place


class PlotOptions(TypedDict, total=False):
    """Where and how large a picture is drawn, and what may be changed about it."""

    ax: Axes | None
    figsize: tuple[float, float] | None
    width: float | None
    cmap: str | None
    title: str | None


class Plotted:
    """A result with a picture; what is drawn is the subclass's `_draw`."""

    def plot(self, **options: Unpack[PlotOptions]) -> Figure:
        """A picture for papers and notebooks, as a matplotlib figure.

        One result: a heat map of the shares of source, prefix and, where there are any, of the other parts of a
        prompt, with the curve of R_t(source) beside it. A comparison: the same of the differences, or, where the
        targets differ, which source tokens each result uses and both curves. A list: R_t(source) of every sentence
        with their mean. Steps at which the explained token is not the written one are labelled `explained ≠ written`.

        Args:
            ax: axes to draw into instead of a new figure, such as one of `plt.subplots`; their figure is returned.
            width: of the new figure in inches; the height follows. 3.3 is a column of a two-column page, 6.9 the page,
                which is also the most that is taken by default.
            figsize: width and height of the new figure in inches.
            cmap: a matplotlib colour map for heat maps, instead of blues, or of purple and orange where there are
                negative numbers.
            title: replaces the title; `""` leaves it out, as for a figure with a caption.
        """
        from hf_lrp.pictures.panels import Place

        return self._draw(Place(**options))

    def _draw(self, place: Place) -> Figure:
        raise NotImplementedError
