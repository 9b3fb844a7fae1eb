"""The part of benchmark.py that compares two checkouts of the package, before and after changes, in turns.

Each checkout runs in a process of its own, on one thread, which loads its models once and does a task whenever it is
asked to. So both see the same busy moments, and start-up does not count. This file is also what these processes run:
they import `hf_lrp` from their checkout.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmark_times import foreign_load
from tqdm.auto import tqdm

SIZES = ((20, 23), (80, 80))  # of explained sentences, S and T
ANALYZED, SCORED = 12, 24  # sentences
CALIBRATED = 12  # sources that scores are calibrated on
HERE = Path(__file__).resolve()

# Where names are, in this checkout and, behind it, in older ones.
EVALUATE = ("hf_lrp.corpus:evaluate", "hf_lrp.analysis:evaluate")
SCORE = ("hf_lrp.corpus.scoring:score_corpus", "hf_lrp.analysis.scoring:score_corpus")


# ---- the side that asks


def compare_checkouts(
    before: Path, after: Path, checkpoint: str | None, data: Sequence[str] | None, rounds: int, sizes: Any = SIZES
) -> dict[str, Any]:
    """Seconds of each task in each checkout, and how far apart the shares are that they compute.

    checkpoint: for `analyze` and `score`, with ``data``; None: the embedded model. explain() is timed on Transformer
    base.
    """
    settings = {"checkpoint": checkpoint, "data": data, "sizes": list(sizes)}
    with ExitStack() as stack:
        sides = {
            name: stack.enter_context(Side(folder, settings))
            for name, folder in (("before", before), ("after", after))
        }
        sentences = sides["after"].sentences
        seconds: dict[str, dict[str, list[float]]] = {task: {name: [] for name in sides} for task in sentences}
        load = stack.enter_context(foreign_load())
        for number in tqdm(range(rounds + 1), desc="Comparing checkouts", unit="round", leave=False):
            for task in sentences:
                for name, side in sides.items():
                    answer = side.ask(task)
                    if number > 0:  # the first round warms up
                        seconds[task][name].append(answer["seconds"])
        apart = {f"explain {s} {t}": _distance(sides, f"shares {s} {t}") for s, t in sizes}
        tasks = {task: {"sentences": sentences[task], "seconds": times} for task, times in seconds.items()}
    return {"tasks": tasks, "largest difference of shares": apart, **load}


def _distance(sides: dict[str, Side], task: str) -> float:
    one, other = (side.ask(task)["shares"] for side in sides.values())
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


class Side:
    """A process that imports a checkout and does tasks, one at a time."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._folder = folder.resolve()
        if not (folder / "hf_lrp").is_dir():
            raise ValueError(f"{folder} is no checkout: it has no folder hf_lrp.")
        path = os.pathsep.join([str(self._folder), str(HERE.parent)])
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
        command = [sys.executable, str(HERE), json.dumps(settings)]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.sentences: dict[str, int] = {}

    def __enter__(self) -> Side:
        try:
            self.sentences = self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self) -> dict[str, int]:
        """Wait until the process is ready; the tasks that are timed, and their numbers of sentences."""
        ready = self._read()
        if Path(ready["package"]).parents[1] != self._folder:
            raise RuntimeError(f"{ready['package']} was imported instead of the package in {self._folder}.")
        if ready["level"] is None:
            raise RuntimeError(
                f"The compiled part of {self._folder} is not built there: see recipes/benchmark/benchmark.py."
            )
        sentences: dict[str, int] = ready["sentences"]
        return sentences

    def __exit__(self, *_: object) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def ask(self, task: str) -> dict[str, Any]:
        """Let the process do a task."""
        assert self._process.stdin is not None
        self._process.stdin.write(task + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        """The next answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"The process of {self._folder} ended with exit code {self._process.wait()}.")
        answer: dict[str, Any] = json.loads(line)
        return answer


# ---- the side that is asked


def work(settings: dict[str, Any]) -> None:
    """Do what is asked for, line by line, until nothing is asked any more."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what others print is no answer
    import torch

    import hf_lrp
    from hf_lrp.relevance import compiled

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        tasks = explain_tasks(settings["sizes"])
        if settings["data"] is not None:
            tasks |= corpus_tasks(settings["checkpoint"], settings["data"], Path(folder))
        sentences = {name: number for name, (number, _) in tasks.items() if number}
        ready = {"package": hf_lrp.__file__, "level": compiled.level(), "sentences": sentences}
        _say(ready, answers)
        for line in sys.stdin:
            start = time.perf_counter()
            found = tasks[line.strip()][1]()
            _say({"seconds": time.perf_counter() - start, "shares": found}, answers)


def _say(answer: dict[str, Any], answers: Any) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


Task = tuple[int, Callable[[], Any]]  # the number of sentences, 0 for what is not timed, and what is done


def explain_tasks(sizes: Sequence[Sequence[int]]) -> dict[str, Task]:
    """Explaining a sentence of each size with Transformer base, without an answer and with the shares."""
    from benchmark_subjects import random_sentence, transformer_base

    from hf_lrp import explain

    model = transformer_base() if sizes else None

    def shares(source: int, target: int) -> list[float]:
        c = explain(model, None, random_sentence(source, 1), random_sentence(target, 2))
        return [*c.source.flatten().tolist(), *c.target.flatten().tolist()]

    def alone(source: int, target: int) -> None:
        explain(model, None, random_sentence(source, 1), random_sentence(target, 2))

    tasks: dict[str, Task] = {}
    for source, target in sizes:
        tasks[f"explain {source} {target}"] = 1, lambda s=source, t=target: alone(s, t)
        tasks[f"shares {source} {target}"] = 0, lambda s=source, t=target: shares(s, t)
    return tasks


def corpus_tasks(checkpoint: str | None, data: Sequence[str], folder: Path) -> dict[str, Task]:
    """`analyze` with three prefix types, and `score` of the references, which is calibrated once."""
    from hf_lrp import load

    evaluate, score = imported(EVALUATE), imported(SCORE)
    model, tokenizer = load(checkpoint)
    sides = [Path(path).read_text(encoding="utf-8").splitlines() for path in data]
    pairs = [(source.strip(), target.strip()) for source, target in zip(*sides, strict=True)]
    chosen, scored = pairs[: 4 * ANALYZED], pairs[:SCORED]
    calibration = [source for source, _ in scored[:CALIBRATED]]
    number = min(ANALYZED, len(chosen))

    def analyze() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as run:
            options = {"lengths": None, "longest": 40, "number": number, "num_beams": 1, "progress": False}
            evaluate(model, tokenizer, chosen, Path(run, "run"), **options)

    def score_references() -> None:
        score(model, tokenizer, scored, folder / "scores.tsv", calibration=calibration, num_beams=1)

    return {"analyze": (number, analyze), "score": (len(scored), score_references)}


def imported(places: Sequence[str]) -> Any:
    """What stands at the first of these places, each "module:name", that there is."""
    for place in places:
        module, name = place.split(":")
        try:
            return getattr(importlib.import_module(module), name)
        except ImportError:
            continue
    raise ImportError(f"There is none of {', '.join(places)}: is this a checkout of hf_lrp?")


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
