"""The recipe that explains a model from spelling to phonemes; its real checkpoint where it is at hand."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import tiny_model
from transformers import AutoModelForSeq2SeqLM

RECIPE = Path(__file__).parents[2] / "recipes" / "spelling_to_sound.py"
SHARED = Path(os.environ.get("HF_LRP_SHARED", Path(__file__).parents[3] / "shared"))
CHECKPOINT = SHARED / "models" / "bart-g2p-us"


@pytest.fixture(scope="module")
def recipe() -> Any:
    spec = importlib.util.spec_from_file_location("spelling_to_sound", RECIPE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def model() -> Any:
    model = tiny_model("bart", bos_token_id=2)
    model.config.grapheme_chars, model.config.phoneme_chars = "___" + "abcdefg" * 6, "___" + "hijklmn" * 6
    return model


def test_letters_and_sounds_have_their_own_characters(recipe: Any, model: Any) -> None:
    result = recipe.explain_word(model, "bad")
    assert result.source_tokens == ("<s>", "b", "a", "d", "</s>")
    assert set("".join(result.target_tokens[:-1])) <= set("hijklmn_<s>/")


@pytest.mark.parametrize("word", ["", "naïve"])
def test_words_with_other_characters_are_refused(recipe: Any, model: Any, word: str) -> None:
    with pytest.raises(SystemExit, match="--word must be made of the model's characters, ___abc"):
        recipe.explain_word(model, word)


@pytest.mark.skipif(not CHECKPOINT.exists(), reason=f"needs {CHECKPOINT.name}")
def test_sounds_come_from_their_letters(recipe: Any, tmp_path: Path) -> None:
    model = AutoModelForSeq2SeqLM.from_pretrained(CHECKPOINT, dtype=torch.float32).eval()
    result = recipe.explain_word(model, "photograph")
    assert result.conservation_error <= 1e-5
    assert "".join(result.target_tokens) == "<s>fˈOɾəɡɹˌæf</s>"
    strongest = {
        sound: result.source_tokens[int(result.source[step].argmax())]
        for step, sound in enumerate(result.target_tokens)
    }
    assert {sound: strongest[sound] for sound in "fOɾɡɹæ"} == dict(zip("fOɾɡɹæ", "potgra", strict=True))
    recipe.main(["--checkpoint", str(CHECKPOINT), "--word", "knight", "--output", str(tmp_path / "knight.png")])
    assert (tmp_path / "knight.png").stat().st_size > 10_000
