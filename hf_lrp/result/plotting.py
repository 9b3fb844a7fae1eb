"""Contributions as a matplotlib figure: heat maps of source and prefix, and the curve of R_t(source)."""

from __future__ import annotations

import contextlib
import io
import re
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage

from hf_lrp.data.visible import visible

if TYPE_CHECKING:
    from hf_lrp.result.contributions import Contributions

_NOT_WRITTEN = "#e4e4e4"  # cells of target tokens after the step; no shade of the colour maps
_CURVE = "#b8500c"
_WIDEST = 24  # inches; with more columns than fit, only some have labels
_COLUMNS_WITH_NUMBERS = 26  # with more columns the cells are too small to write shares into
_PREFERRED_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "Microsoft YaHei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Heiti SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "SimHei",
    "Arial Unicode MS",
    "Noto Sans Arabic",
    "Noto Naskh Arabic",
    "Noto Sans Thai",
    "Noto Sans Devanagari",
)


class _NotebookFigure(Figure):
    """A figure that a notebook shows without `%matplotlib inline` and that pyplot knows nothing of."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", bbox_inches="tight")
        return buffer.getvalue()


def plot_contributions(
    contributions: Contributions, figure: Figure | SubFigure | None = None, *, title: str | None = None
) -> Figure | SubFigure:
    """Draw `Contributions` into an empty figure or sub-figure, by default a new one of a fitting size.

    Rows are steps, labelled with the predicted token; columns are source tokens and, beside them, prefix
    tokens. Both share one colour scale, so they can be compared; it is symmetric where shares are negative.
    Tokens are drawn literally, with whatever installed fonts have their characters.
    """
    c = contributions
    title = title or _title(c)
    labels, text = drawable([*c.labels, (title,)])
    columns = len(c.source_tokens) + len(c.target_tokens)
    cell = float(np.clip(9 / columns, min(0.15, _WIDEST / columns), 0.5))  # inches
    text["fontsize"] = float(np.clip(cell * 72 * 0.6, 6.5, 10))
    if figure is None:
        figure = _NotebookFigure(figsize=_size(c, labels, cell), layout="constrained")
    widths = [len(c.source_tokens), max(len(c.target_tokens), 0.1 * columns), max(3.0, 0.12 * columns)]
    left, right, beside = figure.subplots(1, 3, width_ratios=widths)
    not_written = np.triu(np.ones(c.target.shape, dtype=bool), k=1 if c.level == "word" else 0)
    source, target = c.source.double().numpy(), np.ma.masked_array(c.target.double().numpy(), not_written)
    norm, colors = _color_scale(c)
    for axes, shares, tokens, side in (
        (left, source, labels[0], "source"),
        (right, target, labels[1], "prefix"),
    ):
        image = axes.imshow(shares, norm=norm, cmap=colors, aspect="auto", interpolation="nearest")
        _label_columns(axes, tokens, f"{side} {c.level}s", text, every=int(np.ceil(0.15 / cell)))
        if columns <= _COLUMNS_WITH_NUMBERS:
            _write_shares(axes, shares, c.color_limit, text["fontsize"] * 0.75)
    left.set_yticks(range(len(labels[2])), labels[2], **text)
    left.set_ylabel("predicted", fontsize=text["fontsize"])
    right.set_yticks([])
    right.set_facecolor(_NOT_WRITTEN)
    _draw_curve(beside, c.source_total.double().numpy(), text["fontsize"])
    _draw_color_bar(figure, image, beside, c)
    figure.suptitle(labels[3][0], **(text | {"fontsize": text["fontsize"] + 1}))
    return figure


def _title(c: Contributions) -> str:
    mean = c.source_total.double().mean()
    how = f"{visible(c.rule)}, prefix: {c.prefix}, predicted: {c.predict}"
    return f"{visible(c.model)}: mean R(source) {mean:.3f}\n{how}"


def _size(c: Contributions, labels: Sequence[Sequence[str]], cell: float) -> tuple[float, float]:
    """Width and height in inches: cells of a fixed size, and room for the longest labels."""
    steps, columns = len(c.target_tokens), len(c.source_tokens) + len(c.target_tokens)
    row_label, column_label = max(map(len, labels[2])), max(map(len, (*labels[0], *labels[1])))
    width = columns * cell * 1.12 + row_label * 0.08 + 2.4
    return max(width, 7.5), max(steps * max(cell, 0.15) + column_label * 0.08 + 1.4, 3.4)


def _color_scale(c: Contributions) -> tuple[Normalize, str]:
    """One colour scale for both blocks: from 0 up, or symmetric around 0 where shares are negative."""
    if min(c.source.min(), c.target.min()) < 0:
        return Normalize(-c.color_limit, c.color_limit), "PuOr_r"
    return Normalize(0, c.color_limit), "Blues"


def _label_columns(axes: Axes, tokens: Sequence[str], name: str, text: dict[str, Any], every: int) -> None:
    axes.xaxis.tick_top()
    axes.set_xticks(range(0, len(tokens), every), tokens[::every], rotation=90, **text)
    axes.set_xlabel(name, fontsize=text["fontsize"])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xticks(np.arange(len(tokens) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(axes.get_images()[0].get_size()[0] + 1) - 0.5, minor=True)
    if every == 1:
        axes.grid(which="minor", color="white", linewidth=0.5)
    axes.tick_params(which="minor", length=0)


def _write_shares(axes: Axes, shares: np.ndarray, limit: float, size: float) -> None:
    """Write each share into its cell, as hundredths without the leading zero."""
    for (step, position), share in np.ndenumerate(shares):
        if np.ma.getmaskarray(shares)[step, position]:
            continue
        dark = abs(share) > 0.6 * limit
        written = f"{share:.2f}".replace("0.", ".", 1)
        axes.text(position, step, written, ha="center", va="center", size=size, color="white" if dark else "#333333")


def _draw_curve(axes: Axes, totals: np.ndarray, size: float) -> None:
    """R_t(source) from 0 to 1, one point per row, with the steps numbered from 1."""
    steps = np.arange(len(totals))
    axes.plot(totals, steps, marker="o", markersize=size / 2.5, linewidth=1.2, color=_CURVE)
    axes.set_xlim(min(0.0, totals.min()) - 0.04, max(1.0, totals.max()) + 0.04)
    axes.set_ylim(len(totals) - 0.5, -0.5)
    axes.xaxis.tick_top()
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"], fontsize=size)
    axes.yaxis.tick_right()
    axes.set_yticks(steps, [str(step + 1) for step in steps], fontsize=size * 0.8)
    axes.tick_params(length=0)
    axes.set_xlabel("R(source) by step", fontsize=size)
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[:].set_color("#bbbbbb")


def _draw_color_bar(figure: Figure | SubFigure, image: AxesImage, beside: Axes, c: Contributions) -> None:
    """The scale that both blocks share, with arrows where shares lie beyond its ends."""
    shares = np.concatenate([c.source.double().numpy().ravel(), c.target.double().numpy().ravel()])
    above, below = shares.max() > c.color_limit, shares.min() < -c.color_limit
    extend = {(True, True): "both", (True, False): "max", (False, True): "min", (False, False): "neither"}
    bar = figure.colorbar(image, ax=beside, extend=extend[above, below], fraction=0.12, pad=0.12, aspect=30)
    bar.set_label("contribution")
    bar.outline.set_visible(False)


def drawable(groups: Iterable[Sequence[str]]) -> tuple[list[list[str]], dict[str, Any]]:
    """Texts as they can be drawn, and the text properties to draw them with.

    Characters that no installed font has are written as code points (`U+4F60`) instead of empty boxes.
    """
    drawn = [list(group) for group in groups]
    families, missing = _find_fonts(frozenset("".join(text for group in drawn for text in group)))
    if missing:
        _warn_of_missing_fonts(missing)
        run = re.compile("[" + "".join(map(re.escape, sorted(missing))) + "]+")
        drawn = [[run.sub(lambda found: _code_points(found[0]), text) for text in group] for group in drawn]
    return drawn, {"fontfamily": list(families), "parse_math": False, "usetex": False}


def _code_points(characters: str) -> str:
    return "U+" + "·".join(f"{ord(character):04X}" for character in characters)


def _warn_of_missing_fonts(missing: frozenset[str]) -> None:
    shown = " ".join(sorted(missing)[:8]) + (" ..." if len(missing) > 8 else "")
    warnings.warn(
        f"No installed font has {len(missing)} of the characters to draw ({shown}); they are drawn as code "
        "points. Install a font that has them, for Chinese, Japanese and Korean for example the Debian and "
        "Ubuntu package fonts-noto-cjk or Noto Sans CJK from https://fonts.google.com/noto, and plot again.",
        stacklevel=5,
    )


def _find_fonts(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Font families that together have the characters, the usual one first, and what none of them has."""
    families = [font_manager.FontProperties().get_name()]
    needed = {character for character in characters if _is_drawn(character)}
    missing = needed - _characters_of(families[0])
    if missing:
        _notice_new_fonts()
    installed = {entry.name for entry in font_manager.fontManager.ttflist}
    preferred = [name for name in ("DejaVu Sans", *_PREFERRED_FONTS) if name in installed]
    for name in [*preferred, *sorted(installed.difference(preferred))]:
        if not missing:
            break
        found = missing & _characters_of(name)
        if found:
            families.append(name)
            missing -= found
    return tuple(families), frozenset(missing)


def _is_drawn(character: str) -> bool:
    is_variation_selector = "\ufe00" <= character <= "\ufe0f"
    return unicodedata.category(character) not in ("Cc", "Cf", "Zs") and not is_variation_selector


def _notice_new_fonts() -> None:
    """Add fonts that were installed after matplotlib wrote its list of fonts."""
    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in known:
            with contextlib.suppress(OSError, RuntimeError):
                font_manager.fontManager.addfont(path)


@lru_cache(maxsize=1024)
def _characters_of(family: str) -> frozenset[str]:
    """The characters that a font family has; none for fonts of bitmaps, such as colour emoji."""
    faces = [face for face in font_manager.fontManager.ttflist if face.name == family]
    face = min(faces, key=lambda face: (face.style != "normal", face.weight != 400))
    path = font_manager.FontPath(face.fname, face.index) if hasattr(face, "index") else face.fname  # from 3.11 on
    with contextlib.suppress(OSError, RuntimeError):
        font = font_manager.get_font(path)
        if font.scalable:
            return frozenset(map(chr, font.get_charmap()))
    return frozenset()
