r"""Every analysis of the paper from one command: train the models, evaluate them, decide the claims, draw the figures.

    python recipes/reproduction/paper.py toy --output paper
    python recipes/reproduction/paper.py small --data ../data --output paper
    python recipes/reproduction/paper.py small --results recipes/reproduction/results/small --stages decide draw \
        --output paper
    python recipes/reproduction/paper.py wmt14-en-fr --output paper \
        --accelerate recipes/training/accelerate/one_machine.yaml

A study (`studies/NAME.yaml`) says which models are trained on which corpora. Each step continues where it was
interrupted and is passed over once it is done: start the same command again. Several of these commands at once share
the trainings and evaluations among them, one each at a time. Small files of results are kept of each model
(`study_results`); claims are decided, and figures drawn, from these files alone, from as many as there are. A model
whose results are kept is not trained again unless its settings have changed: other machines can go on from them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

RECIPES = Path(__file__).parents[1]
sys.path += [str(RECIPES / folder) for folder in ("training", "toy")]

from claims import as_markdown, as_rows, measure_run
from filelock import FileLock, Timeout
from study import BASE, Corpus, Training, read_study
from study_figures import draw_study
from study_results import CHECKPOINT, LABELS, KeptResults
from toy_corpus import toy_pairs
from train import prepare_data, read_config, with_settings, write_tokenizer

from hf_lrp.corpus.run import Run
from hf_lrp.data.files import write_atomically

HERE, TRAINING = RECIPES / "reproduction", RECIPES / "training"
STAGES = ("train", "evaluate", "export", "report", "decide", "draw")
BEAMS = 4
TOY_PAIRS = 26_000
DRY_RUN = (
    "data.test=60",
    "data.validation=20",
    "tokenizer.vocab_size=400",
    "training.source_tokens=400",
    "training.device_tokens=400",
    "training.max_steps=5",
    "training.warmup_steps=2",
    "training.save_steps=2",
    "training.eval_steps=1",
    "training.logging_steps=1",
    "contributions.every=4",
    "contributions.sentences=2",
)


class Busy(Exception):
    """Another process is at this step, or what it needs is not there yet."""


class Reproduction:
    """The stages of a study on one corpus, below an output folder."""

    def __init__(
        self, corpus: Corpus, folder: Path, data: Path | None, accelerate: str | None, results: Path | None = None
    ) -> None:
        self.corpus, self.folder = corpus, folder
        self.kept = KeptResults(corpus, results or folder / "results")
        self._data = data
        launcher = ["-m", "accelerate.commands.launch", "--config_file", accelerate] if accelerate else []
        self._python = [sys.executable, *launcher]

    # Training

    def train(self, training: Training) -> None:
        """Train a model, average its last checkpoints and score the result, if results are missing that need it."""
        folder = self.model(training.name)
        if (folder / "results.json").is_file() or not self._is_needed(training):
            return
        changes = self._changes(training)
        if training.starts_from is not None:
            start = self.model(training.starts_from)
            self._check_trained(training.starts_from)
            changes.append(f"start_from={start / 'averaged'}")
        with self._alone(folder):
            if training.starts_from is None:
                self._share_tokenizer(folder)
            flags = [part for change in changes for part in ("--set", change)]
            path = str(_config_file(training.config))
            self._run(*self._python, str(TRAINING / "train.py"), path, "--output", str(folder), *flags)

    def model(self, name: str) -> Path:
        """The folder of a model's training."""
        return self.folder / "models" / name

    def _changes(self, training: Training) -> list[str]:
        return [*training.settings, f"data.path={self._file(self.corpus.data)}"]

    def _is_kept(self, training: Training) -> bool:
        config = with_settings(read_config(_config_file(training.config)), self._changes(training))
        return self.kept.holds(training, config)

    def _is_needed(self, training: Training) -> bool:
        users = (each for each in self.corpus.trainings() if training.name in (each.name, each.starts_from))
        return not all(map(self._is_kept, users))

    def _check_trained(self, name: str) -> None:
        if not (self.model(name) / "results.json").is_file():
            raise Busy(f"{name} is not trained yet")

    def _share_tokenizer(self, folder: Path) -> None:
        """Give a model the corpus's tokenizer, that of the first baseline's pairs: all models read the same tokens."""
        shared = self.model(self.corpus.name) / "tokenizer"
        with FileLock(shared.with_name(".tokenizer.lock")):
            if not shared.is_dir():
                write_tokenizer(self._base_config, self._pairs[0], shared)
        if not (folder / "tokenizer").exists():
            partial = folder / "tokenizer.partial"
            shutil.copytree(shared, partial, dirs_exist_ok=True)
            partial.rename(folder / "tokenizer")

    # Evaluation

    def evaluate(self, training: Training) -> None:
        """Evaluate a model on sentences of the first kind of lengths, or of all, and perhaps its checkpoints."""
        if self._is_kept(training):
            return
        self._check_trained(training.name)
        for lengths in self.corpus.lengths_of(training):
            self._analyze(
                str(self.model(training.name) / "averaged"), training.kind, lengths, self.run(training, lengths)
            )
        if self.corpus.has_timeline(training):
            self._evaluate_timeline(training)

    def evaluate_checkpoint(self, lengths: str) -> None:
        """Evaluate the model that is there already."""
        if self.kept.evaluation(CHECKPOINT, lengths).is_file():
            return
        name = str(self.corpus.checkpoint)
        folders = (RECIPES.parent / name, (self._data or Path()) / Path(name).name)
        model = next((str(folder) for folder in folders if folder.is_dir()), name)
        self._analyze(model, self.corpus.name, lengths, self._checkpoint_run(lengths))

    def _evaluate_timeline(self, training: Training) -> None:
        folder = self.timeline(training.kind)
        with self._alone(folder):
            self._command(
                *("timeline", str(self.model(training.name)), "--data", *self.test_set),
                *("--lengths", self.corpus.lengths[0], *self._longest),
                *("--number", str(self.corpus.timeline_sentences), "--out", str(folder)),
            )

    def _analyze(self, model: str, label: str, lengths: str, folder: Path) -> None:
        beams = () if self.corpus.checkpoint else ("--num-beams", str(BEAMS))
        with self._alone(folder):
            self._command(
                *("analyze", model, "--data", *self.test_set, "--lengths", lengths, *self._longest, *beams),
                *("--number", str(self.corpus.sentences), "--label", label, "--out", str(folder)),
            )

    @property
    def _longest(self) -> tuple[str, ...]:
        return () if self.corpus.longest is None else ("--longest", str(self.corpus.longest))

    def run(self, training: Training, lengths: str) -> Path:
        """The folder of a model's evaluation."""
        return self.folder / "runs" / f"{training.name}-{lengths}"

    def _checkpoint_run(self, lengths: str) -> Path:
        return self.folder / "runs" / self.corpus.name / f"{CHECKPOINT}-{lengths}"

    def timeline(self, kind: str) -> Path:
        """The folder of a training's timeline."""
        return self.folder / "runs" / self.corpus.name / f"timeline-{kind}"

    @cached_property
    def test_set(self) -> tuple[str, ...]:
        """The pairs that models are evaluated on: a file, or one of sources and one of targets."""
        if not self.corpus.configs:
            names = (self.corpus.data,) if isinstance(self.corpus.data, str) else self.corpus.data
            return tuple(dict.fromkeys(map(self._file, names)))
        if self.corpus.held_out is not None:
            return (self._file(self.corpus.held_out),)
        path = self.folder / "runs" / f"{self.corpus.name}.test.tsv"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            _, _, test = self._pairs
            rows = zip(test["source"], test["target"], strict=True)
            write_atomically(path, "".join(f"{source}\t{target}\n" for source, target in rows).encode())
        return (str(path),)

    @property
    def _base_config(self) -> dict[str, Any]:
        config = read_config(_config_file(f"{self.corpus.configs}-{BASE}"))
        return with_settings(config, [*self.corpus.settings, f"data.path={self._file(self.corpus.data)}"])

    @cached_property
    def _pairs(self) -> tuple[Any, Any, Any]:
        try:
            return prepare_data(self._base_config, self.corpus.seeds[0])
        except (OSError, ValueError) as error:  # of data and settings: its words are enough
            raise SystemExit(f"error: {error}") from error

    # What is kept, and pages of comparisons

    def export(self, training: Training) -> None:
        """Keep results of a model that was trained and evaluated here; what says of which settings, last."""
        folder, timeline = self.model(training.name), self.timeline(training.kind)
        runs = {lengths: self.run(training, lengths) for lengths in self.corpus.lengths_of(training)}
        needed = [folder / "results.json", *(run / "metrics.json" for run in runs.values())]
        if self.corpus.has_timeline(training):
            needed.append(timeline / "timeline.json")
        if self._is_kept(training) or not all(path.is_file() for path in needed):
            return
        for lengths, run in runs.items():
            self._export_run(run, training.short_name, lengths)
        if self.corpus.has_timeline(training):
            steps = {int(each.name.removeprefix("step-")): Run.open(each) for each in sorted(timeline.glob("step-*"))}
            self.kept.write_timeline(training.kind, steps)
        self.kept.write_training(training, folder, self._number_of_pairs(training))

    def export_checkpoint(self, lengths: str) -> None:
        """Keep results of the model that was there already."""
        run = self._checkpoint_run(lengths)
        if (run / "metrics.json").is_file():
            self._export_run(run, CHECKPOINT, lengths)

    def _export_run(self, run: Path, name: str, lengths: str) -> None:
        measure_run(Run.open(run)).write(self.kept.evaluation(name, lengths))

    def _number_of_pairs(self, training: Training) -> int | None:
        """Known where amounts of data are compared."""
        return len(self._pairs[0]) if training.kind == BASE and self.corpus.amounts else None

    def report(self) -> None:
        """Figures, tables and a page for each comparison, from complete evaluations."""
        first = self.corpus.lengths[0]
        if self.corpus.checkpoint is not None:
            self._compare("model", [self._checkpoint_run(first)])
            return
        seed = self.corpus.seeds[0]
        runs = {
            training.kind: self.run(training, first) for training in self.corpus.trainings() if training.seed == seed
        }
        self._compare("model", [runs[BASE]])
        if self.corpus.objectives:
            kinds = (BASE, *self.corpus.objectives)
            self._compare("objectives", [runs[kind] for kind in kinds], "--labels", *(LABELS[kind] for kind in kinds))
        if self.corpus.amounts:
            amounts = {pairs: runs[f"{pairs}-pairs"] for pairs in self.corpus.amounts}
            amounts[len(self._pairs[0])] = runs[BASE]
            labels = [f"{pairs:,} pairs" for pairs in sorted(amounts)]
            self._compare("data", [amounts[pairs] for pairs in sorted(amounts)], "--growth", "--labels", *labels)
        for kind in self.corpus.timelines:
            self._compare(f"training-{kind}", [self.timeline(kind)])

    def _compare(self, name: str, folders: list[Path], *options: str) -> None:
        absent = [folder.name for folder in folders if not folder.is_dir()]
        if absent:  # evaluated elsewhere: there are their results, but not the contributions that a page shows
            print(f"Passed over: the page {name}, as {', '.join(absent)} was not evaluated here.", file=sys.stderr)
            return
        output = self.folder / "reports" / self.corpus.name / name
        self._command("compare", *map(str, folders), "--out", str(output), *options, shared=False)

    # Processes

    def _file(self, name: str) -> str:
        """A file of the data folder, or the one file that was given; else what the study says: a Hub name, say."""
        path = self._data or Path()
        path = path / name if path.is_dir() else path
        return str(path) if path.is_file() else name

    @contextmanager
    def _alone(self, folder: Path) -> Iterator[None]:
        """No other process works on this folder meanwhile; raises Busy if one does."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(folder.parent / f".{folder.name}.step.lock", timeout=0):  # `hf-lrp` has a lock of its own
                folder.mkdir(exist_ok=True)
                yield
        except Timeout:
            raise Busy(f"another process works on {folder}") from None

    def _command(self, *arguments: str, shared: bool = True) -> None:
        self._run(*(self._python if shared else [sys.executable]), "-m", "hf_lrp", *arguments)

    def _run(self, *command: str) -> None:
        print("+", " ".join(command[1:]), file=sys.stderr, flush=True)
        done = subprocess.run(command, check=False)
        if done.returncode:
            raise SystemExit(f"That step failed (exit code {done.returncode}). Mend the cause and start again.")


def _config_file(name: str) -> Path:
    return TRAINING / "configs" / f"{name}.yaml"


def reproduce(corpus: Corpus, steps: Reproduction, stages: tuple[str, ...]) -> bool:
    """Train, evaluate, export and report as far as possible; False if something was not there yet.

    Model by model, so that the first results are kept early.
    """
    of_training = {"train": steps.train, "evaluate": steps.evaluate, "export": steps.export}
    of_checkpoint = {"evaluate": steps.evaluate_checkpoint, "export": steps.export_checkpoint}
    tasks: list[tuple[dict[str, Callable[..., None]], Any]] = [(of_training, each) for each in corpus.trainings()]
    tasks += [(of_checkpoint, lengths) for lengths in corpus.lengths if corpus.checkpoint]
    waiting = 0
    for by_stage, what in tasks:
        try:
            for stage, do in by_stage.items():
                if stage in stages:
                    do(what)
        except Busy as reason:
            print(f"Passed over: {reason}.", file=sys.stderr)
            waiting += 1
    if not waiting and "report" in stages:
        steps.report()
    return not waiting


def write_claims(output: Path, kept: KeptResults) -> None:
    """claims/CORPUS.json and .md: the models, then every statement with its numbers; and what is missing."""
    name, found = kept.corpus.name, kept.decide()
    folder = output / "claims"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"checked on": part} | row for part, claims in found.items() for row in as_rows(claims)]
    content = {"models": kept.models(), "missing": kept.missing, "claims": rows}
    write_atomically(folder / f"{name}.json", (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
    pages = [f"## {name}, {part}\n\n{as_markdown(claims)}" for part, claims in found.items()]
    if kept.missing:
        pages.append(f"There are no results of {', '.join(kept.missing)}.\n")
    write_atomically(folder / f"{name}.md", "\n".join(pages).encode())
    print("\n".join(pages))


def shortened(corpus: Corpus, pairs: int) -> Corpus:
    """A study of the same stages on a few hundred pairs and updates, to see that all of it runs."""
    changes = (*corpus.settings, *DRY_RUN, f"data.subset={pairs}")
    kinds = {kind: (*corpus.objective_settings.get(kind, ()), *DRY_RUN) for kind in corpus.objectives}
    if "mrt" in kinds:
        kinds["mrt"] += ("training.candidates=3",)
    amounts = {max(2, pairs // (2 + number)): DRY_RUN for number in range(min(2, len(corpus.amounts)))}
    return replace(
        corpus, settings=changes, objective_settings=kinds, amounts=amounts, sentences=10, timeline_sentences=4
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", help="name of a file in recipes/reproduction/studies")
    parser.add_argument("--output", type=Path, required=True, help="folder for models, runs, reports, claims, figures")
    parser.add_argument(
        "--results", type=Path, metavar="DIR", help="what is kept; default: results/ in the output folder"
    )
    parser.add_argument("--data", type=Path, help="folder with the study's files of pairs, or one file in their place")
    parser.add_argument("--accelerate", metavar="FILE", help="accelerate config; default: one process")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES, help="default: all, in this order")
    parser.add_argument("--corpora", nargs="+", metavar="NAME", help="those of the study to work on; default: all")
    parser.add_argument("--dry-run", type=int, metavar="PAIRS", help="every stage on a few hundred pairs")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    data = options.data
    if options.study == "toy" and data is None:
        data = options.output
        rows = "".join(f"{english}\t{french}\n" for english, french in toy_pairs(TOY_PAIRS, seed=1))
        if not (data / "toy.tsv").is_file():
            write_atomically(data / "toy.tsv", rows.encode())
    for corpus in read_study(HERE / "studies" / f"{options.study}.yaml"):
        if options.corpora and corpus.name not in options.corpora:
            continue
        if options.dry_run:
            corpus = shortened(corpus, options.dry_run)
        steps = Reproduction(corpus, options.output, data, options.accelerate, options.results)
        reproduce(corpus, steps, tuple(options.stages))
        if "decide" in options.stages:
            write_claims(options.output, steps.kept)
        if "draw" in options.stages:
            draw_study(steps.kept, options.output / "figures" / corpus.name)


if __name__ == "__main__":
    main()
