"""The notebook runs from top to bottom, and its kept output is what it prints."""

from pathlib import Path
from typing import Any

import nbformat
import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "paper_story.ipynb"


def kinds_of_output(notebook: Any) -> list[list[str]]:
    """Of each code cell, the kinds of what it shows."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        [kind for output in cell.outputs for kind in output.get("data", {output.get("name"): None})] for cell in cells
    ]


def test_output_is_kept_and_says_nothing_of_the_machine() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    shown = kinds_of_output(notebook)
    assert shown.count([]) == 1  # the cell that loads the model
    assert sum("image/png" in kinds for kinds in shown) == 3
    assert not any("stderr" in kinds for kinds in shown)
    assert "site-packages" not in NOTEBOOK.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_notebook_runs() -> None:
    nbclient = pytest.importorskip("nbclient")
    kept = nbformat.read(NOTEBOOK, as_version=4)
    again = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(again, timeout=600, kernel_name="python3").execute()
    assert [set(kinds) for kinds in kinds_of_output(again)] == [set(kinds) for kinds in kinds_of_output(kept)]
    printed = ["".join(output.text for output in notebook.cells[-2].outputs) for notebook in (kept, again)]
    assert "moustiques" in printed[0] and printed[0].splitlines()[0] == printed[1].splitlines()[0]
