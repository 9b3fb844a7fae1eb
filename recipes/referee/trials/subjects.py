"""The models that methods are tried on, and the sources that they read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from judgement.questions import QUESTIONS

from hf_lrp import Explainer


@dataclass(frozen=True)
class Subject:
    """One model and where its sentences come from.

    Attributes:
        name: in files and tables.
        model: folder, GGUF file or Hub id.
        data: file of sources, one per line; of lines with tabs the first column counts.
        sentences: how many are taken, from the first line on that fits.
        shortest, longest: sources with fewer or more tokens are left out.
        gold: file of gold links in the model's direction, if there is one.
        aligners: files of links that other aligners made for all pairs of ``gold``, by the aligner's name; those that
            have a place are set beside the methods.
        errors: file of errors that raters marked in translations, as those of MQM, if there is one.
        comma: what parts clauses in sources.
        prompt: with {source}, for a model that is a decoder only.
        questions: those that this model is asked.
    """

    name: str
    model: str
    data: str
    sentences: int = 120
    shortest: int = 8
    longest: int = 40
    gold: str | None = None
    aligners: Mapping[str, str] = field(default_factory=dict)
    errors: str | None = None
    comma: str = ", "
    prompt: str | None = None
    questions: tuple[str, ...] = tuple(question.name for question in QUESTIONS)

    @cached_property
    def explainer(self) -> Explainer:
        """The model and its tokenizer, loaded once."""
        return Explainer(self.model)

    def texts(self) -> list[str]:
        """The sources."""
        lines = Path(self.data).read_text(encoding="utf-8").splitlines()
        tokenizer: Any = self.explainer.tokenizer
        kept: list[str] = []
        for text in (line.split("\t")[0].strip() for line in lines):
            if text and self.shortest <= len(tokenizer(text, verbose=False)["input_ids"]) <= self.longest:
                kept.append(text)
            if len(kept) == self.sentences:
                break
        return kept


def read_subjects(path: Path, places: Mapping[str, str]) -> list[Subject]:
    """The subjects of a YAML file whose models and files are there.

    Args:
        path: of the file; models and data in it stand as names.
        places: where these are, by name. Subjects with a name that is not there are left out.
    """
    known = {each.name for each in fields(Subject)} - {"name"}
    subjects = []
    for name, settings in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        unknown = sorted(settings.keys() - known)
        if unknown:
            raise SystemExit(
                f"{path}: {name} has unknown keys {', '.join(unknown)}; known: {', '.join(sorted(known))}."
            )
        named = {key: settings[key] for key in ("model", "data", "gold", "errors") if settings.get(key)}
        if all(place in places for place in named.values()):
            found = {key: places[place] for key, place in named.items()}
            lists = {key: tuple(value) for key, value in settings.items() if isinstance(value, list)}
            aligners = {own: places[place] for own, place in settings.get("aligners", {}).items() if place in places}
            subjects.append(Subject(name, **(settings | lists | found | {"aligners": aligners})))
    return subjects
