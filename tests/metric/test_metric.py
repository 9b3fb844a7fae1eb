"""The module for `evaluate`: loaded offline, and its numbers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import evaluate
import pytest
from tiny_checkpoint import save_checkpoint

from hf_lrp import explain
from hf_lrp.metric import SOURCE_CONTRIBUTION
from hf_lrp.models.loading import load_checkpoint

SOURCES = ["the cat sees the dog", "he eats", "she was in the house"]
PREDICTIONS = ["the dog is big", "they eats it and", "she"]

SCRIPT = """
import evaluate, json, sys
folder, model, data = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
print(json.dumps(evaluate.load(folder).compute(**data, model=model)))
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> str:
    return str(save_checkpoint(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def metric(tmp_path_factory):
    return evaluate.load(SOURCE_CONTRIBUTION, cache_dir=str(tmp_path_factory.mktemp("cache")))


def slow_version(checkpoint: str, predict: str) -> dict[str, float]:
    """The mean over sentences of means over steps, written out."""
    model, tokenizer = load_checkpoint(checkpoint)
    values: dict[str, list[float]] = {"source_contribution": [], "source_entropy": [], "target_entropy": []}
    for source, prediction in zip(SOURCES, PREDICTIONS, strict=True):
        c = explain(model, tokenizer, source, prediction, predict=predict)
        steps = range(len(c.target_tokens))
        values["source_contribution"].append(sum(float(c.source_total[t]) for t in steps[1:]) / len(steps[1:]))
        values["source_entropy"].append(sum(float(c.source_entropy[t]) for t in steps[1:]) / len(steps[1:]))
        values["target_entropy"].append(sum(float(c.target_entropy[t]) for t in steps[1:]) / len(steps[1:]))
    return {name: sum(numbers) / len(numbers) for name, numbers in values.items()}


@pytest.mark.parametrize("predict", ["top1", "target"])
def test_values_agree_with_a_slow_version(metric, checkpoint, predict):
    computed = metric.compute(predictions=PREDICTIONS, sources=SOURCES, model=checkpoint, predict=predict)
    assert computed == pytest.approx(slow_version(checkpoint, predict), rel=1e-5)
    assert 0 < computed["source_contribution"] < 1


def test_without_source_tokens_there_is_no_source_entropy(metric, checkpoint):
    options = {"predictions": PREDICTIONS, "sources": SOURCES, "model": checkpoint}
    whole, alone = metric.compute(**options), metric.compute(**options, source_tokens=False)
    assert whole.pop("source_entropy") > 0
    assert alone == pytest.approx(whole, rel=1e-5)


def test_a_loaded_model_gives_the_same(metric, checkpoint):
    model, tokenizer = load_checkpoint(checkpoint)
    by_name = metric.compute(predictions=PREDICTIONS, sources=SOURCES, model=checkpoint)
    metric.add_batch(predictions=PREDICTIONS[:2], sources=SOURCES[:2])
    metric.add(predictions=PREDICTIONS[2], sources=SOURCES[2])
    assert metric.compute(model=model, tokenizer=tokenizer) == by_name


def test_the_model_must_be_given(metric, checkpoint):
    model, _ = load_checkpoint(checkpoint)
    for options in ({}, {"model": model}):
        with pytest.raises(ValueError, match="Give the model to explain"):
            metric.compute(predictions=PREDICTIONS, sources=SOURCES, **options)


def test_the_metric_describes_itself(metric):
    assert list(metric.features) == ["predictions", "sources"]
    assert "Voita" in metric.citation and "R_t(source)" in metric.inputs_description
    assert "no measure\nof their quality" in metric.description


def test_the_folder_alone_loads_offline(checkpoint, tmp_path):
    folder = tmp_path / "source_contribution"
    shutil.copytree(SOURCE_CONTRIBUTION, folder, ignore=shutil.ignore_patterns("__pycache__"))
    data = json.dumps({"predictions": PREDICTIONS, "sources": SOURCES})
    offline = {"HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), checkpoint, data],
        env={**os.environ, **offline},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == pytest.approx(slow_version(checkpoint, "top1"), rel=1e-5)


def test_the_card_has_what_the_hub_reads():
    card = (Path(SOURCE_CONTRIBUTION) / "README.md").read_text()
    header = card.split("---\n")[1]
    assert "tags:\n- evaluate\n- metric\n" in header and "title: Source contribution" in header
