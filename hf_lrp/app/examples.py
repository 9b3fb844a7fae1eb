"""Sentences to begin with, in the language that a model reads."""

from __future__ import annotations

import re
from typing import NamedTuple

from hf_lrp.app.models import EMBEDDED

_CODES = re.compile(r"[-_/]([a-z]{2,3})[-_]([a-z]{2,3})$")
SENTENCES = {
    "en": (
        "I would like a cup of coffee, please.",
        "Where is the station?",
        "She forgot her umbrella in the red car.",
    ),
    "fr": (
        "Je voudrais un café, s'il vous plaît.",
        "Où est la gare ?",
        "Elle a oublié son parapluie dans la voiture rouge.",
    ),
    "de": (
        "Ich hätte gern eine Tasse Kaffee.",
        "Wo ist der Bahnhof?",
        "Sie hat ihren Schirm im roten Auto vergessen.",
    ),
    "es": (
        "Quisiera una taza de café, por favor.",
        "¿Dónde está la estación?",
        "Olvidó su paraguas en el coche rojo.",
    ),
    "it": (
        "Vorrei una tazza di caffè, per favore.",
        "Dov'è la stazione?",
        "Ha dimenticato l'ombrello nella macchina rossa.",
    ),
    "pt": (
        "Eu queria uma xícara de café, por favor.",
        "Onde fica a estação?",
        "Ela esqueceu o guarda-chuva no carro vermelho.",
    ),
    "nl": (
        "Ik wil graag een kop koffie.",
        "Waar is het station?",
        "Ze heeft haar paraplu in de rode auto laten liggen.",
    ),
    "ro": ("Aș dori o ceașcă de cafea, vă rog.", "Unde este gara?", "Și-a uitat umbrela în mașina roșie."),
    "ru": ("Чашку кофе, пожалуйста.", "Где находится вокзал?", "Она забыла зонт в красной машине."),
    "zh": ("请给我一杯咖啡。", "车站在哪里？", "她把雨伞忘在红色的车里了。"),
    "ja": ("コーヒーを一杯お願いします。", "駅はどこですか。", "彼女は赤い車に傘を忘れた。"),
}
_SAME = {"eng": "en", "fra": "fr", "deu": "de", "spa": "es", "ita": "it", "por": "pt", "nld": "nl", "ron": "ro"} | {
    "rus": "ru",
    "zho": "zh",
    "jpn": "ja",
}


class Examples(NamedTuple):
    """Three sentences that a model may be asked for, and two in its target's language that are unrelated to them."""

    sources: tuple[str, ...]
    unrelated: str


def examples_for(label: str) -> Examples:
    """Examples in the languages that a model's label names (`opus-mt-zh-en`); English to French if it names none."""
    source, target = languages_of(label)
    return Examples(SENTENCES[source], "\n".join(SENTENCES[target][1:]))


def languages_of(label: str) -> tuple[str, str]:
    """The languages of source and target, each one that there are sentences in."""
    found = None if label == EMBEDDED else _CODES.search(label.lower())
    codes = (_SAME.get(code, code) for code in found.groups()) if found else ("en", "fr")
    source, target = (code if code in SENTENCES else "en" for code in codes)
    return source, target
