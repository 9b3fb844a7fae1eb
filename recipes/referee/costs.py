"""Seconds and memory that each method takes per sentence, all methods in turns.

    python recipes/referee/costs.py --place embedded=FOLDER --place europarl-en=FILE --output OUT

Takes the subjects and options of referee.py, goes on from its translations in OUT, and writes OUT/costs.json. Seconds
are those of the processor, of all threads together (so set OMP_NUM_THREADS=1), the median over sentences and rounds;
what else runs hardly changes them. Memory: the largest growth of the process while a sentence is explained, beyond the
model; Linux tells it, elsewhere it is left out.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from pathlib import Path
from typing import Any

from referee import benches_of, read_options
from trials.bench import Bench

from hf_lrp.data.json_files import write_json

SENTENCES = 3  # of a subject, spread over its sentences
ROUNDS = 2
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def main(arguments: list[str] | None = None) -> None:
    """Measure all subjects that have a place."""
    args = read_options(__doc__ or "", arguments)
    write_json(args.output / "costs.json", {bench.subject.name: measure(bench) for bench in benches_of(args)})


def measure(bench: Bench, sentences: int = SENTENCES, rounds: int = ROUNDS) -> dict[str, Any]:
    """By method, seconds and bytes; and the lengths of the sentences."""
    numbers = [place * len(bench.texts) // sentences for place in range(sentences)]
    seconds: dict[str, list[float]] = {name: [] for name in bench.methods}
    memory: dict[str, list[int]] = {name: [] for name in bench.methods}
    for repeat in range(rounds + 1):
        for number in numbers:
            for name in bench.methods:
                grown, taken = _one(bench, number, name)
                if repeat:  # the first round warms up
                    seconds[name].append(taken)
                    memory[name] += [] if grown is None else [grown]
    methods = {
        name: {"seconds": statistics.median(seconds[name]), "bytes": max(memory[name], default=None)}
        for name in bench.methods
    }
    lengths = [[len(bench.sentences[number].source), len(bench.sentences[number].target)] for number in numbers]
    return {"methods": methods, "lengths": lengths, "rounds": rounds}


def _one(bench: Bench, number: int, name: str) -> tuple[int | None, float]:
    before = _memory("VmRSS") if _start_anew() else None
    started = time.process_time()
    bench.explain(number, name)
    taken = time.process_time() - started
    return (None if before is None else max(0, _memory("VmHWM") - before)), taken


def _start_anew() -> bool:
    """Give free memory back, and forget the peak; whether the system can."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        _RESET.write_text("5", encoding="utf-8")
    except OSError:
        return False
    return True


def _memory(name: str) -> int:
    """Bytes, as Linux tells them of this process."""
    (line,) = (line for line in _STATUS.read_text(encoding="utf-8").splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
