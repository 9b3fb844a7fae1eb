"""A finished run as a checkpoint to ship."""

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from toy_corpus import toy_pairs
from transformers import MarianMTModel

from hf_lrp import explain
from hf_lrp.data.pairs import load_pairs
from hf_lrp.models.loading import load_checkpoint
from hf_lrp.training.tokenization import train_tokenizer, translation_config

RECIPES = Path(__file__).parents[2] / "recipes" / "training"
SETTINGS = {
    "data": {"path": "elsewhere.tsv", "source": "en", "target": "fr", "test": 4, "validation": 2},
    "training": {"seed": 1},
    "average": 2,
}


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(RECIPES))
    return importlib.import_module("export")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "toy.tsv"
    path.write_text("".join(f"{english}\t{french}\n" for english, french in toy_pairs(60, seed=1)), encoding="utf-8")
    return path


@pytest.fixture
def run(tmp_path: Path, corpus: Path) -> Path:
    """What recipes/training/train.py leaves, without training."""
    folder = tmp_path / "run"
    tokenizer = train_tokenizer(load_pairs(str(corpus), source="en", target="fr"), vocab_size=120, joint=True)
    torch.manual_seed(0)
    model = MarianMTModel(translation_config(tokenizer, d_model=16, layers=1, heads=2, ffn_dim=24, dropout=0.1))
    model.save_pretrained(folder / "averaged")
    tokenizer.save_pretrained(folder / "averaged")
    (folder / "config.yaml").write_text(yaml.safe_dump(SETTINGS))
    checkpoint = folder / "checkpoint-7"
    checkpoint.mkdir()
    history = [{"step": 5, "eval_loss": 3.25}, {"step": 6, "loss": 3.0}]
    (checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": 7, "log_history": history}))
    return folder


def test_the_checkpoint_is_half_as_large_and_can_be_explained(recipe: Any, run: Path, corpus: Path) -> None:
    output = run.parent / "shipped"
    output.mkdir()
    (output / "old").touch()
    recipe.main([str(run), "--data", str(corpus), "--output", str(output)])
    assert not (output / "old").exists()
    weights = load_file(output / "model.safetensors")
    before = load_file(run / "averaged" / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, before[name].half())
    model, tokenizer = load_checkpoint(output)
    assert model.dtype == torch.float32
    assert explain(model, tokenizer, "The cat sleeps.", max_new_tokens=5).conservation_error < 1e-5


def test_card_and_settings_say_what_was_done(recipe: Any, run: Path, corpus: Path) -> None:
    output = run.parent / "shipped"
    results = recipe.export(run, str(corpus), output)
    training = json.loads((output / "training.json").read_text())
    assert training["updates"] == 7
    assert training["validation"] == [{"step": 5, "loss": 3.25}]
    assert training["test"]["bleu"] == results["bleu"]
    assert training["test"]["sentences"] == 4
    text = (output / "training.json").read_text() + (output / "README.md").read_text()
    assert "elsewhere" not in text and str(run.parent) not in text
    assert f"BLEU {results['bleu']:.1f}" in (output / "README.md").read_text()


def test_an_unfinished_run_is_refused(recipe: Any, run: Path, corpus: Path) -> None:
    shutil.rmtree(run / "averaged")
    with pytest.raises(SystemExit, match="finished"):
        recipe.export(run, str(corpus), run.parent / "shipped")
    assert not (run.parent / "shipped").exists()
