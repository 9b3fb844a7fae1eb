"""Which models a reproduction of the paper trains, and on what it evaluates them: a YAML file in `studies/`, read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

BASE, MINIMUM_RISK = "base", "mrt"


@dataclass(frozen=True)
class Training:
    """One model to train: of which kind, from which config with which changes, and from which other model."""

    corpus: str
    kind: str
    seed: int
    config: str
    settings: tuple[str, ...] = ()
    starts_from: str | None = None

    @property
    def name(self) -> str:
        """The folder of the model below `models/`."""
        return f"{self.corpus}/{self.short_name}"

    @property
    def short_name(self) -> str:
        """What the model is called within its corpus."""
        return f"{self.kind}-seed{self.seed}"


@dataclass(frozen=True)
class Corpus:
    """What is trained on one corpus.

    Attributes:
        name: of its part of the output folder.
        data: file of pairs, or a Hub name.
        configs: the beginning of the configs' names, `recipes/training/configs/{configs}-{kind}.yaml`.
        held_out: a file of pairs to evaluate on; default: those that the config holds out.
        settings: changes to all configs, SECTION.NAME=VALUE.
        seeds: of the models that are compared by objective, and of the baseline.
        objectives: kinds of models that are compared with the baseline, each a config.
        objective_settings: further changes, by kind.
        amounts: changes by number of training pairs; the baseline is one more amount.
        amount_seeds: their seeds.
        timelines: kinds whose checkpoints are evaluated.
        curves: kinds that are described by position, with all prefix types.
        sentences: how many are evaluated at most, of each of the `lengths`.
        timeline_sentences: the same for each checkpoint.
        lengths: of the sentences that models of `curves` are evaluated on: "auto", one pair of lengths, the most
            frequent; or "mixed". Other models are evaluated on the first of them.
        longest: sentences with more tokens are left out.
        checkpoint: a model that is there already, in place of trainings: a folder or a Hub name. Without `configs`, it
            is evaluated on all of `data`: a file of pairs, or one of sources and one of targets.
    """

    name: str
    data: str | tuple[str, ...]
    configs: str = ""
    held_out: str | None = None
    settings: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (1,)
    objectives: tuple[str, ...] = ()
    objective_settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    amounts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    amount_seeds: tuple[int, ...] = (1,)
    timelines: tuple[str, ...] = ()
    curves: tuple[str, ...] = (BASE,)
    sentences: int = 1000
    timeline_sentences: int = 200
    lengths: tuple[str, ...] = ("auto", "mixed")
    longest: int | None = None
    checkpoint: str | None = None

    def trainings(self) -> Iterator[Training]:
        """All models, those first that others start from; seed by seed, so that the first results come early."""
        if self.checkpoint is not None:
            return
        for seed in self.seeds:
            yield self._training(BASE, seed)
            for kind in self.objectives:
                yield self._training(kind, seed)
        for kind in self.timelines:
            if kind != BASE:
                yield self._training(kind, self.seeds[0])
        for seed in self.amount_seeds:
            for pairs in self.amounts:
                yield self._amount(pairs, seed)

    def lengths_of(self, training: Training) -> tuple[str, ...]:
        """What sentences a model is evaluated on: none if only the checkpoints of its training are of interest."""
        if training.kind in self.curves:
            return self.lengths
        return () if training.kind in self.timelines and training.kind not in self.objectives else self.lengths[:1]

    def has_timeline(self, training: Training) -> bool:
        """Whether the checkpoints of a training are evaluated."""
        return training.kind in self.timelines and training.seed == self.seeds[0]

    def _training(self, kind: str, seed: int) -> Training:
        changes = (*self.settings, *self.objective_settings.get(kind, ()), f"training.seed={seed}")
        if kind in self.timelines:
            changes += ("training.save_total_limit=null",)
        start = f"{self.name}/{BASE}-seed{seed}" if kind == MINIMUM_RISK else None
        return Training(self.name, kind, seed, f"{self.configs}-{kind}", changes, start)

    def _amount(self, pairs: int, seed: int) -> Training:
        changes = (*self.settings, *self.amounts[pairs], f"training.seed={seed}", f"data.subset={pairs}")
        return Training(self.name, f"{pairs}-pairs", seed, f"{self.configs}-{BASE}", changes)


def read_study(path: Path) -> list[Corpus]:
    """The corpora of a study file, with errors that name the key."""
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in path.parent.glob("*.yaml")))
        raise SystemExit(f"There is no study {path.stem!r}. Known: {known}.")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [_corpus(name, settings, path) for name, settings in content.items()]


def _corpus(name: str, settings: dict[str, Any], path: Path) -> Corpus:
    known = {entry.name for entry in fields(Corpus)} - {"name"}
    unknown = sorted(settings.keys() - known)
    if unknown:
        raise SystemExit(f"{path}: {name} has unknown keys {', '.join(unknown)}; known: {', '.join(sorted(known))}.")
    return Corpus(name, **{key: _frozen(value) for key, value in settings.items()})


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    return tuple(value) if isinstance(value, list) else value
