"""Views of answers: a page in a frame, messages, and files to download."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from html import escape
from threading import Lock
from typing import TypeAlias

from hf_lrp.data.visible import markup
from hf_lrp.results.collection import ContributionsList
from hf_lrp.results.comparison import Comparison
from hf_lrp.results.contributions import Contributions
from hf_lrp.results.exporting import numbers_of, picture_of

View: TypeAlias = Contributions | Comparison | ContributionsList

FILES = {
    "contributions.html": "text/html; charset=utf-8",
    "contributions.png": "image/png",
    "contributions.json": "application/json",
}


def side_by_side(first: Contributions, second: Contributions) -> Comparison | ContributionsList:
    """Two results of one source: by token, by word where tokenizers split it differently, or else one by one."""
    for a, b in ((first, second), (first.merge_subwords(), second.merge_subwords())):
        try:
            return a.compare(b)
        except ValueError:
            continue
    return ContributionsList([first, second])


def frame(view: View) -> str:
    """The page of results as HTML that can stand in another page.

    It is kept apart from that page: it has an origin of its own, and its scripts reach nothing outside.
    """
    page = escape(view.to_html(), quote=True)
    return f'<iframe class="contributions" title="contributions" sandbox="allow-scripts" srcdoc="{page}"></iframe>'


def message(text: str) -> str:
    """An error as HTML that shows it and does nothing else."""
    return f'<p class="message" role="alert">{markup(text)}</p>'


def links(key: str) -> str:
    """Links to the files of a view, as HTML."""
    names = {name.rpartition(".")[2]: f"download/{key}/{name}" for name in FILES}
    anchors = [f'<a href="{address}" download id="{kind}">{kind.upper()}</a>' for kind, address in names.items()]
    return f'<p class="downloads">Download: {" ".join(anchors)}</p>'


def make_file(view: View, name: str) -> bytes:
    """The content of one of `FILES`: the page, the picture or all numbers."""
    if name.endswith(".html"):
        return view.to_html().encode()
    if name.endswith(".png"):
        return picture_of(view)
    return numbers_of(results_of(view))


def results_of(view: View) -> list[Contributions]:
    """The one or two results of a view, the one that is new at the end."""
    if isinstance(view, Contributions):
        return [view]
    return [view.first, view.second] if isinstance(view, Comparison) else list(view)


class Recent:
    """The views shown last, by keys that nobody can guess: what visitors download or compare with later.

    Args:
        kept: how many.
    """

    def __init__(self, kept: int = 64) -> None:
        self._kept, self._lock = kept, Lock()
        self._views: OrderedDict[str, View] = OrderedDict()
        self._files: dict[str, dict[str, bytes]] = {}

    def put(self, view: View) -> str:
        """Keep a view, for as long as not too many others follow, and return its key."""
        key = secrets.token_hex()
        with self._lock:
            while len(self._views) >= self._kept:
                old, _ = self._views.popitem(last=False)
                del self._files[old]
            self._views[key], self._files[key] = view, {}
        return key

    def get(self, key: str) -> View:
        """The view of a key; a ValueError where it is gone."""
        view = self._views.get(key)
        if view is None:
            raise ValueError("This result is no longer kept. Explain it again.")
        return view

    def file(self, key: str, name: str) -> bytes:
        """One of the `FILES` of a view, made once; a ValueError where it is gone or there is no such file."""
        if name not in FILES:
            raise ValueError(f"There is no file {name!r} of a result.")
        with self._lock:
            view = self.get(key)
            if name not in self._files[key]:
                self._files[key][name] = make_file(view, name)
            return self._files[key][name]
