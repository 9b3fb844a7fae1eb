"""The part of benchmark.py about many sentences: lists, prefixes and candidates that share the encoder, processes."""

from __future__ import annotations

import cProfile
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from benchmark_subjects import load_model, random_sentence
from benchmark_times import Tasks, foreign_load, take_turns
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from hf_lrp import explain, explain_prefixes
from hf_lrp.corpus import evaluate
from hf_lrp.corpus.run import Run
from hf_lrp.data.pairs import load_pairs
from hf_lrp.models.loading import load
from hf_lrp.relevance import compiled

SENTENCES = 20
CANDIDATES = 10  # translations of one source, of equal length
ONE_BY_ONE, LIST, TOGETHER = "loop of single calls", "list", "explain_prefixes"
THREE_CALLS = "three explain calls"


def list_tasks(model: PreTrainedModel) -> tuple[Tasks, Tasks]:
    """Sentences of 10 to 29 tokens one by one and as a list: with given targets, and with 20 generated tokens."""
    lengths = range(10, 10 + SENTENCES)
    sources, targets = ([random_sentence(length, seed + length) for length in lengths] for seed in (0, 100))

    def one_by_one() -> None:
        for source, target in zip(sources, targets, strict=True):
            explain(model, None, source, target)

    def translate_one_by_one() -> None:
        for source in sources:
            explain(model, None, source, **options)

    options = {"max_new_tokens": 20, "num_beams": 1}
    given: Tasks = {ONE_BY_ONE: one_by_one, LIST: lambda: explain(model, None, sources, targets)}
    generated: Tasks = {
        ONE_BY_ONE: translate_one_by_one,
        LIST: lambda: explain(model, None, sources, **options),
    }
    return given, generated


def candidate_tasks(model: PreTrainedModel, length: int) -> Tasks:
    """Several translations of one source, S = T = length, one by one and as a list in which the source repeats."""
    source = random_sentence(length, 1)
    candidates = [random_sentence(length, 10 + number) for number in range(CANDIDATES)]

    def one_by_one() -> None:
        for candidate in candidates:
            explain(model, None, source, candidate)

    return {ONE_BY_ONE: one_by_one, LIST: lambda: explain(model, None, [source] * CANDIDATES, candidates)}


def prefix_tasks(model: PreTrainedModel, length: int) -> Tasks:
    """Three prefix types of one source, S = T = length, explained separately and together."""
    source = random_sentence(length, 1)
    targets = {
        name: random_sentence(length, seed) for seed, name in enumerate(("reference", "model", "random"), start=2)
    }

    def separately() -> None:
        for target in targets.values():
            explain(model, None, source, target)

    return {THREE_CALLS: separately, TOGETHER: lambda: list(explain_prefixes(model, None, source, targets))}


def measure_many(checkpoint: str | None, rounds: int, lengths: Sequence[int]) -> dict[str, Any]:
    """Lists of sentences, and what shares the encoder, at several lengths."""
    model = load_model(checkpoint)
    given, generated = (take_turns(tasks, rounds) for tasks in list_tasks(model))
    return {
        "targets given": given,
        "translations generated": generated,
        "candidates": {str(length): take_turns(candidate_tasks(model, length), rounds) for length in lengths[:2]},
        "prefixes": {str(length): take_turns(prefix_tasks(model, length), rounds) for length in lengths},
    }


@contextmanager
def compiled_off() -> Iterator[None]:
    """Everything goes through torch inside, as on a machine without a compiler."""
    before = os.environ.get(compiled.VARIABLE)
    os.environ[compiled.VARIABLE] = "off"
    try:
        yield
    finally:
        if before is None:
            del os.environ[compiled.VARIABLE]
        else:
            os.environ[compiled.VARIABLE] = before


def sentences_per_second(checkpoint: str, data: Sequence[str], number: int, processes: int) -> float:
    """The rate of `hf-lrp analyze` with all prefix types, in processes of one thread each.

    From the moment the evaluation set is written, when models are loaded, to the last shard.
    """
    start = [sys.executable, "-m"]
    if processes > 1:
        # --multi_gpu is accelerate's way to start several processes on one machine; the variable keeps them on the CPU
        start += ["accelerate.commands.launch", "--multi_gpu", "--num_processes", str(processes)]
        start += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "-m"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "run")
        settings = ["--lengths", "mixed", "--longest", "40", "--number", str(number), "--num-beams", "1"]
        command = [*start, "hf_lrp", "analyze", checkpoint, "--data", *data, *settings, "--out", str(out)]
        environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        run = Run.open(out)
        finished = max(path.stat().st_mtime for path in (out / "shards").glob("*.json"))
        return run.number / (finished - (out / "selection.json").stat().st_mtime)


# Parts of an evaluation, by the functions that do them.
PARTS = {
    "generation": "generate",
    "decoder, back": "_back",
    "encoder, back": "send_back",
    "forward passes and checks": "_propagate_pairs",
}


def where_time_goes(checkpoint: str, data: Sequence[str], number: int) -> dict[str, float]:
    """Shares of the processor time of an evaluation, on one thread, without loading."""
    model, tokenizer = load(checkpoint)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    profile = cProfile.Profile(time.process_time)
    with tempfile.TemporaryDirectory() as folder:
        pairs = load_pairs(list(data))
        start = time.process_time()
        options = {"lengths": None, "longest": 40, "number": number, "num_beams": 1}
        profile.runcall(evaluate, model, tokenizer, pairs, Path(folder, "run"), **options)
        whole = time.process_time() - start
    torch.set_num_threads(threads)
    spent_in = {function: values[3] for (_, _, function), values in pstats.Stats(profile).stats.items()}  # cumulative
    found = {name: spent_in.get(function, 0.0) for name, function in PARTS.items()}
    found["forward passes and checks"] -= found["decoder, back"] + found["encoder, back"]
    return {name: spent / whole for name, spent in found.items()} | {
        "selection, results, writing": 1 - sum(found.values()) / whole
    }


def measure_analyze(checkpoint: str, data: Sequence[str], number: int, rounds: int) -> dict[str, Any]:
    """Sentences per second of one process, of two, and of one without the compiled part; where the time goes."""
    rates: dict[str, list[float]] = {"1 process": [], "2 processes": [], "1 process without the compiled part": []}
    with foreign_load() as load:
        for _ in tqdm(range(rounds), desc="Analysing", unit="round", leave=False):
            for processes, name in ((1, "1 process"), (2, "2 processes")):
                rates[name].append(sentences_per_second(checkpoint, data, number, processes))
            with compiled_off():
                slow = sentences_per_second(checkpoint, data, number // 2, 1)
            rates["1 process without the compiled part"].append(slow)
    return {"rates": rates, "shares": where_time_goes(checkpoint, data, number // 2), **load}
