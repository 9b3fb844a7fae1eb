"""One table says which method explains which kind of model: results or refusals, names, docs, commands."""

import argparse
import re
from pathlib import Path

import pytest
import torch
from tiny_questions import model_of, values_of

from hf_lrp.commands.arguments import add_method
from hf_lrp.commands.loading import read_method
from hf_lrp.methods import NAMES
from hf_lrp.methods.table import DECODER, METHODS, SPEECH, TEXT
from hf_lrp.relevance.rules import Epsilon

MODELS = {TEXT: "marian", SPEECH: "whisper", DECODER: "llama"}
DOCS = Path(__file__).parents[2] / "docs" / "methods.md"


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", METHODS)
def test_each_kind_is_explained_or_refused(name: str, kind: str) -> None:
    row, model = METHODS[name], model_of(MODELS[kind], torch.float32)
    if kind not in row.kinds:
        with pytest.raises(ValueError, match=r"Use another method, such as"):
            values_of(row.method, model)
        return
    values = values_of(row.method, model)
    every = torch.cat([values.source, values.decoder], 1)
    assert bool(torch.isfinite(every).all()) and bool((every != 0).any(1).all())
    assert row.method.sums_to_one or bool((every < 0).any())
    if row.method.sums_to_one:
        assert bool((every >= 0).all())
    if row.method.conserves:
        torch.testing.assert_close(every.sum(1), torch.ones(len(every)), rtol=0, atol=1e-5)


def test_the_docs_have_a_row_for_each_method_with_its_kinds() -> None:
    rows = re.findall(r"^\| `(\w+)\(\)` \| `([\w-]+)` \| ([^|]*) \|", DOCS.read_text(encoding="utf-8"), re.M)
    described = {name: (cls, tuple(part.strip() for part in kinds.split(","))) for cls, name, kinds in rows}
    assert described == {name: (type(row.method).__name__, row.kinds) for name, row in METHODS.items()}


def test_the_command_line_names_every_method() -> None:
    assert tuple(METHODS) == NAMES
    parser = argparse.ArgumentParser()
    add_method(parser)
    for name, row in METHODS.items():
        assert read_method(parser.parse_args(["--method", name])) == row.method
    assert str(read_method(parser.parse_args(["--rule", "epsilon:0.1"]))) == f"LRP(rule={Epsilon(0.1)})"
