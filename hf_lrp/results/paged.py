"""Results that have a page: one `to_html` with the same options for all of them, and the same page in notebooks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from hf_lrp.pages.page_data import UsualRange
    from hf_lrp.pages.page_links import WordLinks
    from hf_lrp.results.comparison import Comparison
    from hf_lrp.results.contributions import Contributions


class Paged:
    """A result with a page; what is on it is the subclass's `_entries`."""

    @overload
    def to_html(
        self,
        path: None = None,
        *,
        calibration: UsualRange | None = None,
        links: WordLinks | Sequence[WordLinks | None] | None = None,
    ) -> str: ...

    @overload
    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        calibration: UsualRange | None = None,
        links: WordLinks | Sequence[WordLinks | None] | None = None,
    ) -> None: ...

    def to_html(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        calibration: UsualRange | None = None,
        links: WordLinks | Sequence[WordLinks | None] | None = None,
    ) -> str | None:
        """A self-contained page on which words are chosen to see what they were made from (`docs/page.md`).

        A comparison has both results side by side with their differences; a list can be searched and sorted, and each
        sentence opens as on its own page.

        Args:
            path: the file to write; by default the page is returned.
            calibration: how much the model usually depends on its source, drawn behind R(source): a
                `hf_lrp.corpus.calibration.Calibration`, which `hf-lrp score --source-share` writes. In a comparison,
                for results of the first one's model.
            links: word links of these texts, which `hf_lrp.align` gives: a chosen word marks its own on the other
                side. For a list, one per result, None where there are none.
        """
        from hf_lrp.pages.page import render_page, write_page

        if path is None:
            return render_page(self._entries(), calibration=calibration, links=links)
        write_page(path, self._entries(), calibration=calibration, links=links)
        return None

    def _repr_html_(self) -> str:
        from hf_lrp.pages.page import render_fragment

        return render_fragment(self._entries())

    def _entries(self) -> Sequence[Contributions | Comparison]:
        raise NotImplementedError
