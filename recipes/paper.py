"""Every analysis of the paper from one command: train the models, evaluate them, draw the figures, decide the claims.

    python recipes/paper.py toy --output paper
    python recipes/paper.py small --data ../data --output paper
    python recipes/paper.py wmt14-en-fr --output paper --accelerate recipes/accelerate/one_machine.yaml

A study (`recipes/studies/NAME.yaml`) says which models are trained on which corpora. Each step continues where it was
interrupted and is passed over once it is done: start the same command again. Several of these commands at once share
the trainings and evaluations among them, one each at a time; the last one to end draws and decides.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from claims import (
    Claim,
    as_markdown,
    as_rows,
    check_growth,
    check_model,
    check_objectives,
    check_training,
    has_converged,
    has_lowered_risk,
)
from filelock import FileLock, Timeout
from study import BASE, MINIMUM_RISK, Corpus, Training, read_study
from toy_corpus import toy_pairs
from train import prepare_data, read_config, with_settings

from hf_lrp.analysis.run.store import Run
from hf_lrp.data.files import write_atomically

RECIPES = Path(__file__).parent
STAGES = ("train", "evaluate", "draw", "decide")
LENGTHS = ("auto", "mixed")  # of the evaluated sentences: one pair of lengths, the most frequent; or all
LABELS = {
    BASE: "baseline",
    "wd-source": "source word dropout",
    "wd-target": "target word dropout",
    "mrt": "minimum risk",
}
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
    """Another process is at this step."""


class Reproduction:
    """The stages of a study on one corpus, below an output folder."""

    def __init__(self, corpus: Corpus, folder: Path, data: Path | None, accelerate: str | None) -> None:
        self.corpus, self.folder = corpus, folder
        self._data = data
        launcher = ["-m", "accelerate.commands.launch", "--config_file", accelerate] if accelerate else []
        self._python = [sys.executable, *launcher]

    # Training

    def train(self, training: Training) -> None:
        """Train a model, average its last checkpoints and score the result."""
        folder = self.model(training.name)
        if (folder / "results.json").is_file():
            return
        changes = [*training.settings, f"data.path={self._file(self.corpus.data)}"]
        if training.starts_from is not None:
            start = self.model(training.starts_from)
            if not (start / "results.json").is_file():
                raise Busy(f"{training.name} starts from {training.starts_from}, which is not trained yet")
            changes.append(f"start_from={start / 'averaged'}")
        with self._alone(folder):
            self._share_tokenizer(folder)
            flags = [part for change in changes for part in ("--set", change)]
            path = RECIPES / "configs" / f"{training.config}.yaml"
            self._run(*self._python, str(RECIPES / "train.py"), str(path), "--output", str(folder), *flags)

    def model(self, name: str) -> Path:
        """The folder of a model's training."""
        return self.folder / "models" / name

    def _share_tokenizer(self, folder: Path) -> None:
        """Give a model the first baseline's tokenizer: only then do all read the same tokens."""
        shared = self.model(self._baselines[0].name) / "tokenizer"
        if folder == shared.parent or (folder / "tokenizer").exists():
            return
        if not shared.is_dir():
            raise Busy("the first baseline, whose tokenizer all models have, is not there yet")
        partial = folder / "tokenizer.partial"
        shutil.copytree(shared, partial, dirs_exist_ok=True)
        partial.rename(folder / "tokenizer")

    # Evaluation

    def evaluate(self, training: Training) -> None:
        """Evaluate a model on sentences of the most frequent lengths, and a baseline on mixed lengths too."""
        number = str(self.corpus.sentences)
        for lengths in LENGTHS if training.kind == BASE else LENGTHS[:1]:
            folder = self.run(training, lengths)
            with self._alone(folder):
                self._command(
                    *("analyze", str(self.model(training.name) / "averaged"), "--data", str(self.test_set)),
                    *("--lengths", lengths, "--number", number, "--label", training.kind, "--out", str(folder)),
                )

    def evaluate_checkpoints(self, kind: str) -> None:
        """Evaluate the checkpoints of a training."""
        folder = self.timeline(kind)
        number = str(self.corpus.timeline_sentences)
        with self._alone(folder):
            run = str(self.model(f"{self.corpus.name}/{kind}-seed{self.corpus.seeds[0]}"))
            self._command("timeline", run, "--data", str(self.test_set), "--number", number, "--out", str(folder))

    def run(self, training: Training, lengths: str = "auto") -> Path:
        """The folder of a model's evaluation."""
        return self.folder / "runs" / f"{training.name}-{lengths}"

    def timeline(self, kind: str) -> Path:
        """The folder of a training's timeline."""
        return self.folder / "runs" / self.corpus.name / f"timeline-{kind}"

    @cached_property
    def test_set(self) -> Path:
        """The pairs that models are evaluated on, as a file."""
        if self.corpus.held_out is not None:
            return Path(self._file(self.corpus.held_out))
        path = self.folder / "runs" / f"{self.corpus.name}.test.tsv"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            _, _, test = self._pairs
            rows = zip(test["source"], test["target"], strict=True)
            write_atomically(path, "".join(f"{source}\t{target}\n" for source, target in rows).encode())
        return path

    @cached_property
    def _pairs(self) -> tuple[Any, Any, Any]:
        config = read_config(RECIPES / "configs" / f"{self.corpus.configs}-{BASE}.yaml")
        config = with_settings(config, [*self.corpus.settings, f"data.path={self._file(self.corpus.data)}"])
        return prepare_data(config, self.corpus.seeds[0])

    # Figures and claims

    def draw(self) -> None:
        """Figures, tables and a page for each comparison."""
        first = self.corpus.seeds[0]
        runs = {training.kind: self.run(training) for training in self.corpus.trainings() if training.seed == first}
        self._compare("model", [runs[BASE]])
        if self.corpus.objectives:
            kinds = (BASE, *self.corpus.objectives)
            self._compare("objectives", [runs[kind] for kind in kinds], "--labels", *(LABELS[kind] for kind in kinds))
        if self.corpus.amounts:
            amounts = [f"{pairs}-pairs" for pairs in sorted(self.corpus.amounts)]
            labels = [f"{int(name.split('-')[0]):,} pairs" for name in amounts]
            self._compare(
                "data", [runs[name] for name in (*amounts, BASE)], "--growth", "--labels", *labels, "all pairs"
            )
        for kind in self.corpus.timelines:
            self._compare(f"training-{kind}", [self.timeline(kind)])

    def _compare(self, name: str, folders: list[Path], *options: str) -> None:
        output = self.folder / "reports" / self.corpus.name / name
        self._command("compare", *map(str, folders), "--out", str(output), *options, shared=False)

    def decide(self) -> dict[str, list[Claim]]:
        """The claims that this corpus can tell about, by what they were checked on."""
        trainings = list(self.corpus.trainings())
        unconverged = {training.kind for training in trainings if not self._has_converged(training)}
        found = {
            "fixed lengths": check_model(self._runs(BASE)),
            "mixed lengths": check_model(self._runs(BASE, "mixed")),
        }
        if self.corpus.objectives:
            kinds = {LABELS[kind]: self._runs(kind) for kind in (BASE, *self.corpus.objectives)}
            found["objectives"] = check_objectives(kinds, {LABELS[kind] for kind in unconverged if kind in LABELS})
        if self.corpus.amounts:
            sizes = {pairs: f"{pairs}-pairs" for pairs in self.corpus.amounts} | {len(self._pairs[0]): BASE}
            runs = {pairs: self._runs(sizes[pairs], seeds=self.corpus.amount_seeds) for pairs in sorted(sizes)}
            found["data"] = check_growth(runs, {pairs for pairs, kind in sizes.items() if kind in unconverged})
        for kind in self.corpus.timelines:
            folders = sorted(self.timeline(kind).glob("step-*"))
            checkpoints = {int(folder.name.removeprefix("step-")): Run.open(folder) for folder in folders}
            found[f"training, {kind}"] = check_training({self.corpus.seeds[0]: checkpoints})
        return found

    def models(self) -> list[dict[str, Any]]:
        """Of each model: BLEU, chrF, the last held-out loss, whether it has converged, and its updates."""
        rows = []
        for training in self.corpus.trainings():
            results = json.loads((self.model(training.name) / "results.json").read_text(encoding="utf-8"))
            losses = self._losses(training)
            rows.append(
                {
                    "model": training.name,
                    "bleu": round(results["bleu"], 2),
                    "chrf": round(results["chrf"], 2),
                    "sentences": results["sentences"],
                    "updates": losses[-1][0],
                    "held_out_loss": round(losses[-1][1], 4),
                    "converged": self._has_converged(training),
                }
            )
        return rows

    def _runs(self, kind: str, lengths: str = "auto", seeds: tuple[int, ...] | None = None) -> dict[int, Run]:
        return {
            training.seed: Run.open(self.run(training, lengths))
            for training in self.corpus.trainings()
            if training.kind == kind and (seeds is None or training.seed in seeds)
        }

    def _losses(self, training: Training, name: str = "eval_loss") -> list[tuple[int, float]]:
        """Held-out losses, or risks, by update."""
        checkpoints = self.model(training.name).glob("checkpoint-*/trainer_state.json")
        latest = max(checkpoints, key=lambda path: int(path.parent.name.removeprefix("checkpoint-")))
        logs = json.loads(latest.read_text(encoding="utf-8"))["log_history"]
        return [(log["step"], log[name]) for log in logs if name in log]

    def _has_converged(self, training: Training) -> bool:
        if training.kind == MINIMUM_RISK:
            return has_lowered_risk([risk for _, risk in self._losses(training, "eval_expected_risk")])
        return has_converged(*zip(*self._losses(training), strict=True))

    # Processes

    @property
    def _baselines(self) -> list[Training]:
        return [training for training in self.corpus.trainings() if training.kind == BASE]

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
            with FileLock(folder.parent / f".{folder.name}.lock", timeout=0):
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


def reproduce(corpus: Corpus, steps: Reproduction, stages: tuple[str, ...]) -> bool:
    """Go through the stages as far as possible; False if other processes have not ended theirs."""
    waiting = 0
    tasks: list[tuple[Any, Any]] = []
    if "train" in stages:
        tasks += [(steps.train, training) for training in corpus.trainings()]
    if "evaluate" in stages:
        tasks += [(steps.evaluate, training) for training in corpus.trainings()]
        tasks += [(steps.evaluate_checkpoints, kind) for kind in corpus.timelines]
    for do, what in tasks:
        try:
            do(what)
        except Busy as reason:
            print(f"Passed over: {reason}.", file=sys.stderr)
            waiting += 1
    if not waiting and "draw" in stages:
        steps.draw()
    return not waiting


def write_claims(output: Path, corpus: str, found: dict[str, list[Claim]], models: list[dict[str, Any]]) -> None:
    """claims/CORPUS.json and .md: the models, then every statement with its numbers."""
    folder = output / "claims"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"checked on": part} | row for part, claims in found.items() for row in as_rows(claims)]
    content = {"models": models, "claims": rows}
    write_atomically(folder / f"{corpus}.json", (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
    pages = [f"## {corpus}, {part}\n\n{as_markdown(claims)}" for part, claims in found.items()]
    write_atomically(folder / f"{corpus}.md", "\n".join(pages).encode())
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
    parser.add_argument("study", help="name of a file in recipes/studies")
    parser.add_argument("--output", type=Path, required=True, help="folder for models, runs, reports and claims")
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
    for corpus in read_study(RECIPES / "studies" / f"{options.study}.yaml"):
        if options.corpora and corpus.name not in options.corpora:
            continue
        if options.dry_run:
            corpus = shortened(corpus, options.dry_run)
        steps = Reproduction(corpus, options.output, data, options.accelerate)
        if reproduce(corpus, steps, tuple(options.stages)) and "decide" in options.stages:
            write_claims(options.output, corpus.name, steps.decide(), steps.models())


if __name__ == "__main__":
    main()
