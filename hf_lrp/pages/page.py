"""Results as one HTML page that needs nothing else: `page_data` says what, the scripts in templates draw it."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from hf_lrp.data.files import write_atomically
from hf_lrp.pages.page_data import UsualRange, page_data, results_of
from hf_lrp.pages.page_links import WordLinks
from hf_lrp.pages.skeleton import as_json, render, render_plain

if TYPE_CHECKING:
    from hf_lrp.results.comparison import Comparison
    from hf_lrp.results.contributions import Contributions

STYLES = ("page.css", "explorer.css", "results.css")
SCRIPTS = ("reading.js", "texts.js", "curve.js", "heat_map.js", "result.js", "entry.js", "list.js", "explorer.js")
TITLE = "Source and target contributions"


def render_page(
    entries: Sequence[Contributions | Comparison],
    title: str = TITLE,
    *,
    calibration: UsualRange | None = None,
    links: WordLinks | Sequence[WordLinks | None] | None = None,
) -> str:
    """One self-contained page: one sentence open, or a list of many to search, sort and open.

    Args:
        entries: results, and comparisons of two results, which are shown side by side.
        title: of the page.
        calibration: how much the model usually depends on its source, drawn behind R(source).
        links: word links (what `hf_lrp.align` gives), one per entry, None where there are none.
    """
    data = as_json(page_data(entries, calibration, links=_links_of(entries, links)))
    return render("results.html", styles=STYLES, scripts=SCRIPTS, title=title, explorer=data)


def write_page(
    path: str | os.PathLike[str],
    entries: Sequence[Contributions | Comparison],
    title: str = TITLE,
    *,
    calibration: UsualRange | None = None,
    links: WordLinks | Sequence[WordLinks | None] | None = None,
) -> None:
    """Write `render_page` to a file, which replaces an old one only once all is written."""
    write_atomically(path, render_page(entries, title, calibration=calibration, links=links).encode())


def render_fragment(entries: Sequence[Contributions | Comparison], *, calibration: UsualRange | None = None) -> str:
    """The same page in a frame, to be put into a notebook or another page.

    A frame, because a notebook has many outputs in one document: each needs its own styles, keys, policy and address,
    and what it shows must not reach the notebook around it (the frame is sandboxed). It says how high it is, which is
    all that the script beside it hears.
    """
    page = render_page(entries, calibration=calibration)
    return render_plain("fragment.html", title=TITLE, page=Markup(html.escape(page)), height=_height(entries))


def _links_of(
    entries: Sequence[Contributions | Comparison], links: WordLinks | Sequence[WordLinks | None] | None
) -> Sequence[WordLinks | None]:
    """Word links of each entry."""
    if links is None:
        return [None] * len(entries)
    listed = links if isinstance(links, Sequence) else [links]
    if len(listed) != len(entries):
        raise ValueError(f"{len(entries)} results, but links of {len(listed)}: give as many, None for those without.")
    return listed


def _height(entries: Sequence[Contributions | Comparison]) -> int:
    """Pixels of a frame that cannot grow with its page: about what one sentence takes, or the rows of a list."""
    if len(entries) != 1:
        return min(190 + 70 * len(entries), 700)
    (first, *_) = results_of(entries[0])
    letters = sum(map(len, (*first.source_tokens, *first.target_tokens)))
    return min(680 + 26 * len(first) + 35 * (letters // 80), 1200)
