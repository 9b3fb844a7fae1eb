"""All analyses of the paper from one command, in the smallest size there is."""

import importlib
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from toy_corpus import toy_pairs

from hf_lrp.commands.cli import build_parser

RECIPES = Path(__file__).parents[2] / "recipes"
TINY = (
    "data.test=30",
    "data.validation=6",
    "tokenizer.vocab_size=160",
    "model.d_model=16",
    "model.layers=1",
    "model.heads=2",
    "model.ffn_dim=24",
    "training.source_tokens=400",
    "training.device_tokens=400",
    "training.max_steps=6",
    "training.warmup_steps=2",
    "training.report_to=none",
    "training.candidates=3",
)


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(RECIPES))
    return importlib.import_module("paper")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "toy.tsv"
    path.write_text("".join(f"{english}\t{french}\n" for english, french in toy_pairs(300, seed=1)), encoding="utf-8")
    return path


@pytest.mark.parametrize("size", ["toy", "tatoeba-mini", "wmt14-en-fr"])
def test_every_step_is_a_command_that_is_understood(
    recipe: Any, corpus: Path, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(recipe.Steps, "_run", lambda self, *command: commands.append(list(command)))
    monkeypatch.setattr(recipe.Run, "open", lambda folder: folder)
    for name in ("check_model", "check_objectives", "check_growth", "check_training"):
        monkeypatch.setattr(recipe, name, lambda *given: [given])
    steps = recipe.Steps(recipe.SIZES[size], str(corpus), corpus.parent / "paper", None)
    monkeypatch.setattr(steps, "test_set", lambda: corpus)
    assert len(recipe.reproduce(steps)) == 4
    trainings = [command for command in commands if command[1].endswith("train.py")]
    others = [command[3:] for command in commands if command[2] == "hf_lrp"]
    assert len(trainings) == 4 + len(recipe.SIZES[size].subsets)
    assert len(trainings) + len(others) == len(commands)
    train = importlib.import_module("train")
    for command in trainings:
        settings = [value for flag, value in pairwise(command) if flag == "--set"]
        config = train.with_settings(train.read_config(Path(command[2])), settings)
        assert config["data"]["path"] == str(corpus)
        if config["training"]["objective"] == "mrt":
            assert config["training"].get("schedule_scale") is None
    names = [build_parser().parse_args(command).command for command in others]
    assert [names.count(name) for name in ("analyze", "timeline", "compare")] == [len(trainings), 1, 4]


def test_a_failing_step_ends_the_reproduction(recipe: Any, corpus: Path) -> None:
    steps = recipe.Steps(recipe.SIZES["toy"], str(corpus), corpus.parent / "paper", None)
    with pytest.raises(SystemExit, match="failed"):
        steps.compare("nothing", [corpus.parent / "no-such-run"])


@pytest.mark.slow
def test_a_tiny_reproduction(recipe: Any, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = recipe.Size("tatoeba-mini", 264, (100,), 10, TINY, ("training.max_steps=2",), every=2)
    monkeypatch.setitem(recipe.SIZES, "toy", tiny)
    output = corpus.parent / "paper"
    recipe.main(["toy", "--data", str(corpus), "--output", str(output)])
    rows = json.loads((output / "claims.json").read_text())
    assert {row["claim"] for row in rows} == {f"C{number}" for number in range(1, 16)}
    for report in ("model", "objectives", "data", "training"):
        assert (output / "reports" / report / "report.html").stat().st_size > 10_000
    assert len(list((output / "runs" / "timeline").glob("step-*"))) == 3
    before = (output / "claims.json").read_bytes()
    recipe.main(["toy", "--data", str(corpus), "--output", str(output)])
    assert (output / "claims.json").read_bytes() == before
