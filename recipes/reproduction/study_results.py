"""What is kept of a study: a small file per evaluation and per training, which decide the claims without any model.

RESULTS/CORPUS/base-seed1.json           scores, held-out losses and risks, settings
RESULTS/CORPUS/base-seed1-auto.parquet   quantities of each sentence (`claims.results`)
RESULTS/CORPUS/timeline-base/000100.parquet   the same of a checkpoint
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from claims import (
    Claim,
    Results,
    check_growth,
    check_model,
    check_objectives,
    check_training,
    has_converged,
    has_lowered_risk,
    measure_run,
)
from claims.convergence import FEWEST
from study import BASE, MINIMUM_RISK, Corpus, Training

from hf_lrp.corpus.run import Run
from hf_lrp.data.json_files import read_json, write_json

LABELS = {
    BASE: "baseline",
    "wd-source": "source word dropout",
    "wd-target": "target word dropout",
    MINIMUM_RISK: "minimum risk",
}
CHECKPOINT = "checkpoint"  # the name of a model that was not trained here


class KeptResults:
    """The results of a corpus's models, as many as there are, below a folder."""

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        self.corpus, self.folder = corpus, folder / corpus.name

    # Files

    def evaluation(self, name: str, lengths: str) -> Path:
        """The file of a model's evaluation; `name` is that of its training, kind and seed."""
        return self.folder / f"{name}-{lengths}.parquet"

    def training(self, name: str) -> Path:
        """The file on how a model was trained."""
        return self.folder / f"{name}.json"

    def timeline(self, kind: str) -> Path:
        """The folder of a training's checkpoints."""
        return self.folder / f"timeline-{kind}"

    def write_timeline(self, kind: str, runs: Mapping[int, Run]) -> None:
        """Keep the evaluations of checkpoints, by the number of updates."""
        last = runs[max(runs)]
        for path in self.timeline(kind).glob("*.parquet"):
            path.unlink()
        for updates, run in runs.items():
            measure_run(run, last).write(self.timeline(kind) / f"{updates:06d}.parquet")

    def write_training(self, training: Training, folder: Path, pairs: int | None) -> None:
        """Keep what a model's folder tells of its training."""
        scores = read_json(folder / "results.json")
        config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        logs = _latest_logs(folder)
        content = {
            "kind": training.kind,
            "seed": training.seed,
            "starts_from": training.starts_from,
            "pairs": pairs,
            **{name: scores[name] for name in ("bleu", "chrf", "sentences", "beams")},
            "updates": logs[-1]["step"],
            "losses": _series(logs, "eval_loss"),
            "risks": _series(logs, "eval_expected_risk"),
            "config": _without_places(config),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.training(training.short_name), content)

    def holds(self, training: Training, config: Mapping[str, Any]) -> bool:
        """Whether all results of a training are there, and are those of these settings."""
        path = self.training(training.short_name)
        if not path.is_file() or read_json(path)["config"] != _without_places(config):
            return False
        files = [self.evaluation(training.short_name, lengths) for lengths in self.corpus.lengths_of(training)]
        timeline = self.timeline(training.kind) if self.corpus.has_timeline(training) else None
        return all(file.is_file() for file in files) and (timeline is None or any(timeline.glob("*.parquet")))

    # What they tell

    @cached_property
    def trainings(self) -> dict[str, dict[str, Any]]:
        """What was kept of trainings, by name, in the order of the study."""
        names = [training.short_name for training in self.corpus.trainings()]
        return {name: read_json(self.training(name)) for name in names if self.training(name).is_file()}

    def runs(self, kind: str, lengths: str, seeds: Sequence[int] | None = None) -> dict[int, Results]:
        """The evaluations of a kind of model, by seed."""
        if self.corpus.checkpoint is not None:
            path = self.evaluation(CHECKPOINT, lengths)
            return {0: Results.read(path)} if path.is_file() else {}
        found = {}
        for training in self.corpus.trainings():
            path = self.evaluation(training.short_name, lengths)
            if training.kind == kind and (seeds is None or training.seed in seeds) and path.is_file():
                found[training.seed] = Results.read(path)
        return found

    def checkpoints(self, kind: str) -> dict[int, Results]:
        """The evaluations of a training's checkpoints, by the number of updates."""
        return {int(path.stem): Results.read(path) for path in sorted(self.timeline(kind).glob("*.parquet"))}

    @property
    def missing(self) -> list[str]:
        """The models and timelines of the study that there are no results of."""
        first = self.corpus.lengths[0]
        names = [each.short_name for each in self.corpus.trainings() if self.corpus.lengths_of(each)]
        if self.corpus.checkpoint is not None:
            names = [CHECKPOINT]
        absent = [name for name in names if not self.evaluation(name, first).is_file()]
        return absent + [f"timeline of {kind}" for kind in self.corpus.timelines if not self.checkpoints(kind)]

    def has_converged(self, name: str) -> bool:
        """Whether the models of this training can be compared with others: not if too few losses can tell."""
        content = self.trainings[name]
        if content["kind"] == MINIMUM_RISK:
            return has_lowered_risk([risk for _, risk in content["risks"]])
        losses = content["losses"]
        return len(losses) >= FEWEST and has_converged(*zip(*losses, strict=True))

    def decide(self) -> dict[str, list[Claim]]:
        """The claims that these results can tell about, by what they were checked on."""
        return dict(self._decide())

    def _decide(self) -> Iterator[tuple[str, list[Claim]]]:
        corpus = self.corpus
        for kind, lengths in product(corpus.curves, corpus.lengths):
            runs = self.runs(kind, lengths)
            if runs:
                equal = next(iter(runs.values())).about["lengths"]
                name = "mixed lengths" if equal is None else "{} source and {} target tokens".format(*equal)
                yield name if kind == BASE else f"{kind}, {name}", check_model(runs)
        unconverged = {content["kind"] for name, content in self.trainings.items() if not self.has_converged(name)}
        kinds = {LABELS[kind]: self.runs(kind, corpus.lengths[0]) for kind in (BASE, *corpus.objectives)}
        if sum(map(bool, kinds.values())) > 1 and corpus.objectives:
            yield "objectives", check_objectives(kinds, {LABELS[kind] for kind in unconverged if kind in LABELS})
        amounts = self.amounts()
        if len(amounts) > 1:
            rough = {
                pairs for pairs in amounts if (f"{pairs}-pairs" if pairs in corpus.amounts else BASE) in unconverged
            }
            yield "data", check_growth(amounts, rough)
        for kind in corpus.timelines:
            checkpoints = self.checkpoints(kind)
            if len(checkpoints) > 1:
                yield f"training, {kind}", check_training({corpus.seeds[0]: checkpoints})

    def amounts(self) -> dict[int, dict[int, Results]]:
        """By number of training pairs, the evaluations by seed; the baseline is one of the amounts."""
        sizes = {pairs: f"{pairs}-pairs" for pairs in self.corpus.amounts}
        sizes |= {content["pairs"]: BASE for content in self.trainings.values() if content["kind"] == BASE}
        if not self.corpus.amounts:
            return {}
        runs = {
            pairs: self.runs(sizes[pairs], self.corpus.lengths[0], self.corpus.amount_seeds) for pairs in sorted(sizes)
        }
        return {pairs: seeds for pairs, seeds in runs.items() if seeds}

    def models(self) -> list[dict[str, Any]]:
        """Of each model: BLEU, chrF, the last held-out loss, whether it has converged, and its updates."""
        return [
            {
                "model": name,
                "bleu": round(content["bleu"], 2),
                "chrf": round(content["chrf"], 2),
                "sentences": content["sentences"],
                "updates": content["updates"],
                "held_out_loss": round(content["losses"][-1][1], 4),
                "converged": self.has_converged(name),
            }
            for name, content in self.trainings.items()
        ]


def _without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config without the files that were used: where they were is nobody's concern."""
    data = {name: value for name, value in config["data"].items() if name != "path"}
    return {name: value for name, value in config.items() if name != "start_from"} | {"data": data}


def _latest_logs(folder: Path) -> list[dict[str, Any]]:
    checkpoints = folder.glob("checkpoint-*/trainer_state.json")
    latest = max(checkpoints, key=lambda path: int(path.parent.name.removeprefix("checkpoint-")))
    return json.loads(latest.read_text(encoding="utf-8"))["log_history"]


def _series(logs: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    return [(log["step"], round(log[name], 5)) for log in logs if name in log]
