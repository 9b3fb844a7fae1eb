"""The part of benchmark.py about many sentences: lists, prefix types that share the encoder, and processes."""

from __future__ import annotations

import cProfile
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from transformers import PreTrainedModel

from hf_lrp import explain, explain_prefixes
from hf_lrp.corpus import evaluate
from hf_lrp.corpus.run import Run
from hf_lrp.data.pairs import load_pairs
from hf_lrp.models.loading import load
from hf_lrp.relevance import compiled

SENTENCES = 20
Draw = Callable[[int, int], Tensor]  # ids of a random sentence, from its length and a seed
Tasks = dict[str, Callable[[], None]]


def list_tasks(model: PreTrainedModel, draw: Draw) -> tuple[Tasks, Tasks]:
    """Sentences of 10 to 29 tokens one by one and as a list: with given targets, and with 20 generated tokens."""
    lengths = range(10, 10 + SENTENCES)
    sources, targets = ([draw(length, seed + length) for length in lengths] for seed in (0, 100))

    def one_by_one() -> None:
        for source, target in zip(sources, targets, strict=True):
            explain(model, None, source, target)

    def translate_one_by_one() -> None:
        for source in sources:
            explain(model, None, source, **options)

    options = {"max_new_tokens": 20, "num_beams": 1}
    given: Tasks = {"loop of single calls": one_by_one, "list": lambda: _run(explain(model, None, sources, targets))}
    generated: Tasks = {
        "loop of single calls": translate_one_by_one,
        "list": lambda: _run(explain(model, None, sources, **options)),
    }
    return given, generated


def prefix_tasks(model: PreTrainedModel, draw: Draw, length: int) -> Tasks:
    """Three prefix types of one source, S = T = length, explained separately and together."""
    source = draw(length, 1)
    targets = {name: draw(length, seed) for seed, name in enumerate(("reference", "model", "random"), start=2)}

    def separately() -> None:
        for target in targets.values():
            explain(model, None, source, target)

    return {
        "three explain calls": separately,
        "explain_prefixes": lambda: _run(explain_prefixes(model, None, source, targets)),
    }


def _run(results: Any) -> None:
    for _ in results:
        pass


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
    "generation": "generate_targets",
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


def measure_analyze(checkpoint: str, data: Sequence[str], quick: bool) -> dict[str, Any]:
    """Sentences per second of one process, of two, and of one without the compiled part; where the time goes."""
    number = 8 if quick else 32
    one, two = (sentences_per_second(checkpoint, data, number, processes) for processes in (1, 2))
    with compiled_off():
        slow = sentences_per_second(checkpoint, data, number // 2, 1)
    return {
        "1 process": one,
        "2 processes": two,
        "1 process without the compiled part": slow,
        "shares": where_time_goes(checkpoint, data, number // 2),
    }


def show_corpus(name: str, result: dict[str, Any], console: Console) -> None:
    """Print one model's results."""
    table = Table(title=f"{name}, many sentences")
    for column in ("what", "against", "takes"):
        table.add_column(column, justify="right" if column == "takes" else "left")
    for what, times in result["list"].items():
        table.add_row(
            f"list of {SENTENCES}, {what}", "loop of single calls", _ratio(times, "list", "loop of single calls")
        )
    for length, times in result["prefixes"].items():
        ratio = _ratio(times, "explain_prefixes", "three explain calls")
        table.add_row(f"explain_prefixes, S = T = {length}", "three explain calls", ratio)
    console.print(table)
    if "analyze" in result:
        rates = result["analyze"]
        one, two, slow = (rates[name] for name in rates if name != "shares")
        console.print(
            f"analyze, sentences per second: {one:.3f} in one process, {two:.3f} in two ({two / one:.2f} x), "
            f"{slow:.3f} in one without the compiled part ({one / slow:.2f} x)"
        )
        console.print("of one process:", ", ".join(f"{name} {share:.0%}" for name, share in rates["shares"].items()))


def _ratio(times: dict[str, float], what: str, against: str) -> str:
    return f"{times[what] / times[against]:.2f} x"
