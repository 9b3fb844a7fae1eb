"""Show results where the user is: as pages in a notebook, as tables in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hf_lrp.results.comparison import Comparison
    from hf_lrp.results.contributions import Contributions


def show(results: Sequence[Contributions | Comparison]) -> None:
    """Display the results in a notebook, as a page; elsewhere print their tables, with colours if it can."""
    if _in_notebook():
        from IPython.display import HTML, display

        from hf_lrp.pages.page import render_fragment

        display(HTML(render_fragment(results)))
        return
    from rich.console import Console

    console = Console()
    for i, c in enumerate(results):
        if i:
            console.print()
        if hasattr(c, "table"):
            console.print(c.table())
        else:
            console.print(str(c), markup=False, highlight=False, soft_wrap=True)


def _in_notebook() -> bool:
    """Whether this runs in a kernel that shows HTML: Jupyter, Colab, VS Code; not IPython in a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")
