"""How long tasks take, measured in turns, and what other processes did meanwhile."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psutil
from tqdm.auto import tqdm

Tasks = Mapping[str, Callable[[], Any]]


def take_turns(tasks: Tasks, rounds: int, warm_up: bool = True) -> dict[str, Any]:
    """Time tasks in turns, so that a busy moment hits all of them.

    warm_up: the first round does not count, where there is more than one.

    Returns:
        ``seconds``: by task, one value for each round; ``foreign``: as in `foreign_load`.
    """
    times: dict[str, list[float]] = {name: [] for name in tasks}
    with foreign_load() as load:
        for _ in tqdm(range(rounds), desc="Timing", unit="round", leave=False):
            for name, task in tasks.items():
                start = time.perf_counter()
                task()
                times[name].append(time.perf_counter() - start)
    unwanted = 1 if warm_up and rounds > 1 else 0
    return {"seconds": {name: values[unwanted:] for name, values in times.items()}, **load}


def medians(measured: Mapping[str, Any]) -> dict[str, float]:
    """The median of each task's seconds."""
    return {name: statistics.median(values) for name, values in measured["seconds"].items()}


def ratios(measured: Mapping[str, Any], task: str, against: str) -> list[float]:
    """How many times as long a task took as another one, round by round."""
    seconds: Mapping[str, Sequence[float]] = measured["seconds"]
    return [own / other for own, other in zip(seconds[task], seconds[against], strict=True)]


@contextmanager
def foreign_load() -> Iterator[dict[str, float]]:
    """Fill in, at the end, how many cores others kept busy on average: ``foreign``.

    Others are all processes but this one and those that it started; a virtual machine's host counts as one of them
    with the time that it did not give.
    """
    load: dict[str, float] = {}
    started, busy, own = moment()
    yield load
    ended, busy_then, own_then = moment()
    load["foreign"] = max(0.0, (busy_then - busy - (own_then - own)) / max(ended - started, 0.01))


def moment() -> tuple[float, float, float]:
    """The time, and the processor seconds so far: of all processes, and of this one with those it started."""
    return time.perf_counter(), busy_seconds(), own_seconds()


def busy_seconds() -> float:
    """Of all processors since the machine was started; the time of guests is a part of a user's."""
    spent = psutil.cpu_times()._asdict()
    return float(
        sum(value for name, value in spent.items() if name in ("user", "nice", "system", "irq", "softirq", "steal"))
    )


def own_seconds() -> float:
    """Of this process, the processes it has waited for, and those that still run."""
    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in psutil.Process().children(recursive=True):
        try:
            spent = child.cpu_times()
        except psutil.Error:  # it has just ended
            continue
        total += sum(spent[:4])  # of itself and of the processes it has waited for
    return float(total)
