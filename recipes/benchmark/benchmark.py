"""Measure speed and memory, as ratios within one run.

    python recipes/benchmark/benchmark.py --output recipes/benchmark/results/NAME.json
        [--checkpoint FOLDER_OR_HUB_ID [--data SOURCES TARGETS]] [--speech FOLDER_OR_HUB_ID]
        [--before FOLDER] [--training [--pairs tatoeba-en-fr.tsv]] [--sections NAME ...] [--quick]

On a randomly initialised Transformer base and, if given, on a real checkpoint: explain() for all steps, R_t(source)
alone, and without the compiled part, against one forward pass, one forward and T backward passes (what gradient x
input needs) also in the cheapest form, without gradients of weights, and inseq's input_x_gradient where inseq is
installed (benchmark_sentences.py); growth with the length and peak memory; lists, and what shares the encoder
(benchmark_corpus.py); with a corpus, `hf-lrp analyze` in one and two processes and where its time goes. Then other
families, a decoder-only model and Whisper (benchmark_models.py); another checkout of the package against this one,
with the same corpus (benchmark_checkouts.py); and, if asked for, training (benchmark_training.py).

What is compared takes turns. Kept are all rounds, the processor, its caches, the speed of plain matrix products before
each section, what other processes took meanwhile, versions and commits. Machines differ and are seldom idle: only
ratios between lines of one run mean something. Interrupted, the same command goes on with the section it was at.
benchmark_page.py writes the tables of docs/benchmark.md from the output.

The other checkout needs a compiled part of its own, built in its folder (commits without setup.py: the last line):

    git worktree add FOLDER COMMIT && cd FOLDER
    python setup.py build_ext --inplace
    python -c "from setuptools import setup; setup()" build_ext --inplace
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import benchmark_checkouts
import benchmark_corpus
import benchmark_models
import benchmark_sentences
import benchmark_training
import torch
from benchmark_machine import commit_of, describe_machine, product_rates
from benchmark_page import Benchmark
from benchmark_times import foreign_load
from rich.console import Console
from rich.markdown import Markdown
from tqdm.auto import tqdm

from hf_lrp.data.json_files import read_json, write_json

HERE = Path(__file__).resolve().parents[2]
BASE = "Transformer base"
Sections = dict[str, Callable[[], Any]]

# The table that shows what a kind of section has measured.
SHOWN_IN = {
    "comparison": "sentence",
    "decoder only": "other models",
    "speech": "other models",
}


def plan(options: argparse.Namespace) -> Sections:
    """All sections by name, in order."""
    quick, sections = options.quick, Sections()
    models = {BASE: None} | ({_name(options.checkpoint): options.checkpoint} if options.checkpoint else {})
    for name, checkpoint in models.items():
        sections |= {f"{kind}: {name}": run for kind, run in plan_model(checkpoint, quick).items()}
    if options.checkpoint and options.data:
        numbers = (8, 1) if quick else (32, 2)
        sections[f"analyze: {_name(options.checkpoint)}"] = lambda: benchmark_corpus.measure_analyze(
            options.checkpoint, options.data, *numbers
        )
    sections["families"] = lambda: benchmark_models.compare_families(1 if quick else 6)
    sections["decoder only"] = lambda: benchmark_models.measure_decoder_only(1 if quick else 5)
    sections["speech"] = lambda: benchmark_models.measure_speech(options.speech, 1 if quick else 3)
    if options.before:
        sizes = benchmark_checkouts.SIZES[: 1 if quick else None]
        sections["before and after"] = lambda: benchmark_checkouts.compare_checkouts(
            options.before, HERE, options.checkpoint, options.data, 1 if quick else 5, sizes
        )
    if options.training:
        sections["training"] = lambda: benchmark_training.measure(quick, options.pairs)
    return sections


def plan_model(checkpoint: str | None, quick: bool) -> Sections:
    """The sections of one model."""
    lengths, rounds = ([10, 20], 1) if quick else ([10, 20, 40, 80, 160], 7)
    return {
        "comparison": lambda: benchmark_sentences.compare(checkpoint, 20, 23, 2 if quick else 9),
        "growth": lambda: benchmark_sentences.grow(checkpoint, lengths, rounds),
        "memory": lambda: benchmark_sentences.measure_memory(checkpoint, 40 if quick else 200),
        "many": lambda: benchmark_corpus.measure_many(
            checkpoint, 1 if quick else 4, lengths[:1] if quick else lengths[:4]
        ),
    }


def _name(checkpoint: str) -> str:
    """What a checkpoint is called in results: no path of this machine."""
    return Path(checkpoint).name


def begin(options: argparse.Namespace) -> dict[str, Any]:
    """The output of an interrupted run with the same settings, or a new one without sections."""
    new = {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit_of(HERE),
        "machine": describe_machine(options.machine),
        "settings": {
            "models": [BASE, *([_name(options.checkpoint)] if options.checkpoint else [])],
            "threads": options.threads,
            "quick": options.quick,
            "before": commit_of(options.before) if options.before else None,
        },
        "sections": {},
    }
    if not options.output.exists():
        return new
    old = read_json(options.output)
    changed = [name for name in ("commit", "machine", "settings") if old.get(name) != new[name]]
    if changed:
        raise SystemExit(
            f"{options.output} has results with another {', '.join(changed)}: give another --output, or delete it."
        )
    return old


def measure(name: str, run: Callable[[], Any]) -> dict[str, Any]:
    """One section, with the speed of the machine before it and its load meanwhile."""
    products, started = product_rates(), time.perf_counter()
    with foreign_load() as load:
        result = run()
    return {"result": result, "products": products, "minutes": (time.perf_counter() - started) / 60, **load}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="JSON file for the figures")
    parser.add_argument("--checkpoint", help="a real Marian checkpoint, folder or Hub id")
    parser.add_argument("--data", nargs=2, metavar="FILE", help="sources and targets for the checkpoint, line by line")
    parser.add_argument("--speech", help="a Whisper checkpoint (default: random weights in the size of Whisper tiny)")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="another checkout, to compare this one with")
    parser.add_argument("--training", action="store_true", help="measure training as well")
    parser.add_argument("--pairs", type=Path, help="TSV file of the embedded model's training data, for --training")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--machine", metavar="NAME", help="what tables call this machine (default: its processor)")
    parser.add_argument("--sections", nargs="+", metavar="NAME", help="only these, such as 'decoder only'")
    parser.add_argument("--quick", action="store_true", help="a trial: fewer rounds and shorter sentences")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    sections = plan(options)
    unknown = set(options.sections or ()) - set(sections)
    if unknown:
        parser.error(f"there is no section {', '.join(sorted(unknown))}: {', '.join(sections)}")
    console, results = Console(), begin(options)
    todo = [name for name in options.sections or sections if name not in results["sections"]]
    for name in (bar := tqdm(todo, unit="section")):
        bar.set_description(name)
        results["sections"][name] = measure(name, sections[name])
        write_json(options.output, results)
        kind = name.partition(":")[0]
        console.print(Markdown(f"**{name}**\n\n" + Benchmark([results]).table(SHOWN_IN.get(kind, kind))))
    for table in ("machines", "goals"):
        console.print(Markdown(Benchmark([results]).table(table)))


if __name__ == "__main__":
    main()
