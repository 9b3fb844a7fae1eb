"""Explain the cases of the gallery and keep the results, from which the site makes its pages.

    python recipes/pictures/gallery.py --out docs/gallery
    python recipes/pictures/gallery.py --out docs/gallery --chinese FOLDER_OR_HUB_ID --language-model FOLDER

The embedded model explains most of them; the others need a checkpoint each: OPUS-MT Chinese-English, a language
model such as SmolLM2-135M-Instruct. What is not asked for stays as it is. One safetensors file per result
(`Contributions.save`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hf_lrp import Contributions, Prompt, explain, load

# name: source, target (None: what the model writes), options of explain
TRANSLATIONS: dict[str, tuple[str, str | None, dict[str, object]]] = {
    "everyday": ("He forgot his umbrella in the red car.", None, {}),
    "name": ("Tom and Mary came from Boston yesterday.", None, {}),
    "agreement": ("The door is open.", None, {}),
    "contrast": ("He went to the bank.", "Il est allé à la banque.", {"predict": {"banque": "gare"}}),
    "invented": ("Photosynthesis turns light into sugar.", None, {}),
    "detached": ("My brother bought a new bicycle.", "La petite fille a peur des chiens.", {"predict": "target"}),
    "attached": ("My brother bought a new bicycle.", "Mon frère a acheté un nouveau vélo.", {"predict": "target"}),
    "half-detached": (
        "I left my keys on the kitchen table.",
        "J'ai laissé mes clés dans le train pour Paris hier soir.",
        {"predict": "target"},
    ),
    "repetition": (
        "I am very tired today.",
        "Je suis très très très très très très très fatigué aujourd'hui.",
        {"predict": "target"},
    ),
    "unknown-words": ("I have been to Timbuktu and Reykjavik.", None, {}),
}
CHINESE = "昨天晚上我在图书馆遇见了一位老朋友。"
PROMPT = Prompt(
    "{instruction}\n\n{examples}English: {source}\nFrench:",
    {
        "instruction": "Translate from English to French.",
        "examples": "English: The cat sleeps on the sofa.\nFrench: Le chat dort sur le canapé.\n\n"
        "English: I am reading a good book.\nFrench: Je lis un bon livre.\n\n",
    },
)


def embedded_cases() -> Iterator[tuple[str, Contributions]]:
    """What the model that ships with the package explains."""
    model, tokenizer = load()
    for name, (source, target, options) in TRANSLATIONS.items():
        result = explain(model, tokenizer, source, target, **options)  # type: ignore[arg-type]
        yield name, result


def chinese_case(checkpoint: str) -> Contributions:
    """A sentence without spaces, through six layers on each side."""
    model, tokenizer = load(checkpoint)
    result = explain(model, tokenizer, CHINESE)
    return result


def language_model_case(checkpoint: str) -> Contributions:
    """A model without an encoder, with two examples in its prompt."""
    model, tokenizer = load(checkpoint)
    result = explain(
        model,
        tokenizer,
        "The big dog eats an apple.",
        "Le gros chien mange une pomme.",
        prompt=PROMPT,
        start_token="keep",
    )
    return replace(result, model=Path(checkpoint).name.partition(".")[0])  # without the ending of a GGUF file


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--chinese", metavar="CHECKPOINT", help="OPUS-MT zh-en")
    parser.add_argument("--language-model", metavar="CHECKPOINT", help="a decoder-only model")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    found = dict(embedded_cases())
    if options.chinese:
        found["chinese"] = chinese_case(options.chinese)
    if options.language_model:
        found["language-model"] = language_model_case(options.language_model)
    for name, result in found.items():
        result = replace(result, model=Path(result.model).name)  # not where it lies on this machine
        result.save(options.out / f"{name}.safetensors")
        print(f"{name}: {result.conservation_error:.0e}, {''.join(result.target_tokens).replace('▁', ' ').strip()}")


if __name__ == "__main__":
    main()
