"""What type checkers see of `explain`: one source gives one result, a list a list."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hf_lrp

USER = """
from typing import assert_type

from hf_lrp import Contributions, ContributionsList, Explainer, explain, load

model, tokenizer = load()
assert_type(explain(model, tokenizer, "The cat."), Contributions)
assert_type(explain(model, tokenizer, "The cat.", "Le chat.", predict="target", max_new_tokens=4), Contributions)
assert_type(explain(model, tokenizer, ["The cat."]), ContributionsList)
assert_type(explain(model, None, [3, 4, 1]), Contributions)
assert_type(explain(model, None, [[3, 4, 1], [3, 1]], target=[[5, 1], [6, 1]]), ContributionsList)
assert_type(explain("path/to/model", source="The cat."), Contributions)
assert_type(explain("path/to/model", source=("The cat.", "The dog.")), ContributionsList)
assert_type(Explainer(model, tokenizer).explain("The cat."), Contributions)
assert_type(Explainer(model, tokenizer).explain(iter(["The cat."])), ContributionsList)
explain(model, tokenizer, "The cat.").merge_subwords().compare(explain(model, tokenizer, "The cat.")).show()
explain(model, tokenizer, ["The cat."]).lowest_source(1)
"""
WRONG = 'explain(model, tokenizer, "The cat.").lowest_source(1)\n'
OPTIONS = """[mypy]
ignore_missing_imports = True
[mypy-torch.*,transformers.*,numpy.*,matplotlib.*,pandas.*,peft.*]
follow_imports = skip
"""


@pytest.mark.slow  # mypy reads the package
def test_mypy_knows_what_explain_gives(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "mypy.ini").write_text(OPTIONS)
    (tmp_path / "user.py").write_text(USER + WRONG)
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "user.py"]
    # Where the package is: mypy follows no hook of an editable install.
    where = os.environ | {"MYPYPATH": str(Path(hf_lrp.__file__).parents[1])}
    found = subprocess.run(command, cwd=tmp_path, env=where, capture_output=True, text=True)
    lines = [line for line in found.stdout.splitlines() if line.startswith("user.py")]
    number = len((USER + WRONG).splitlines())
    assert lines == [f'user.py:{number}: error: "Contributions" has no attribute "lowest_source"  [attr-defined]']
