"""Explain a model that spells words out in phonemes, character by character, and draw its heat map.

    python recipes/spelling_to_sound.py --checkpoint FOLDER_OR_HUB_ID --word photograph --output photograph.png

The checkpoint's config lists its characters: `grapheme_chars` for the source, `phoneme_chars` for the target.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel

from hf_lrp import Contributions, explain


def explain_word(model: PreTrainedModel, word: str) -> Contributions:
    """Contributions of a word's letters and of earlier phonemes to each phoneme."""
    config = model.config
    unknown = sorted(set(word) - set(config.grapheme_chars))
    if not word or unknown:
        raise SystemExit(f"--word must be made of the model's characters, {config.grapheme_chars}; got {word!r}.")
    letters = [config.grapheme_chars.index(letter) for letter in word]
    source = torch.tensor([config.bos_token_id, *letters, config.eos_token_id])
    result = explain(model, None, source)
    assert isinstance(result, Contributions)
    return replace(
        result,
        source_tokens=_characters(source, config.grapheme_chars, model),
        target_tokens=_characters(result.target_ids, config.phoneme_chars, model),
        predicted_tokens=_characters(result.predicted_ids, config.phoneme_chars, model),
    )


def _characters(ids: Tensor, characters: Sequence[str], model: PreTrainedModel) -> tuple[str, ...]:
    special = {model.config.bos_token_id: "<s>", model.config.eos_token_id: "</s>"}
    return tuple(special.get(i, characters[i]) for i in ids.tolist())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, help="folder or Hub id")
    parser.add_argument("--word", required=True)
    parser.add_argument("--output", type=Path, required=True, help="picture, as PNG, PDF or SVG")
    options = parser.parse_args(arguments)
    model = AutoModelForSeq2SeqLM.from_pretrained(
        options.checkpoint, dtype=torch.float32, trust_remote_code=False
    ).eval()
    model.config.name_or_path = Path(options.checkpoint).name
    result = explain_word(model, options.word)
    print(result)
    result.plot().savefig(options.output, dpi=160)


if __name__ == "__main__":
    main()
