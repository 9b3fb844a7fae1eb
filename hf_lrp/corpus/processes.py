"""Who computes which shard: fixed sets of sentences, shared out among processes so that work is even."""

from __future__ import annotations

import heapq
import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from accelerate.utils.environment import parse_flag_from_env
from tqdm.auto import tqdm

from hf_lrp.corpus.manifest import shard_name
from hf_lrp.corpus.selection import Pair

SHARD = 8  # sentences: few, so that many processes have something to do, but enough to translate together
SHARDS = 1000  # at most: a folder with very many files is slow
LOOK = 0.5  # seconds between two looks at what other processes have finished
_PATIENCE = timedelta(days=30)  # one process may select pairs or compute for long while others wait


def this_process() -> PartialState:
    """Which of how many processes this is."""
    # without `cpu`, accelerate ignores the variable, and every process believes it is the only one
    return PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"), timeout=_PATIENCE)


def broadcast(value: Any) -> Any:
    """The main process's value, in all processes."""
    box = [value]
    broadcast_object_list(box)
    return box[0]


def plan_shards(number: int, size: int | None = None) -> list[range]:
    """The sentences of each shard, up to ``size`` if they are not too many, whatever the number of processes."""
    shards = min(-(-number // (size or SHARD)), SHARDS)
    return [range(k * number // shards, (k + 1) * number // shards) for k in range(shards)]


def estimate_cost(pairs: Sequence[Pair]) -> int:
    """Relevance of T steps goes back through S and T tokens."""
    return sum(pair.target_length * (pair.source_length + pair.target_length) for pair in pairs)


def share_out(costs: Mapping[int, int], processes: int) -> list[list[int]]:
    """Shards of each process: the most costly first, each to the process that has least to do."""
    loads = [(0, process) for process in range(processes)]
    shares: list[list[int]] = [[] for _ in range(processes)]
    for shard in sorted(costs, key=lambda shard: (-costs[shard], shard)):
        load, process = loads[0]
        shares[process].append(shard)
        heapq.heapreplace(loads, (load + costs[shard], process))
    return shares


class Progress:
    """A bar over the sentences of all processes; those of others count once their shard is written."""

    def __init__(self, folder: Path, done: int, total: int, others: Mapping[int, int], visible: bool) -> None:
        """``others``: the shards that other processes compute, and how many sentences each has."""
        self._folder, self._left = folder / "shards", {shard_name(shard): n for shard, n in others.items()}
        # a log file gets a line now and then, a terminal a bar that moves
        interval = 0.1 if sys.stderr.isatty() else 30.0
        self._bar = tqdm(
            total=total, initial=done, desc="Evaluating", unit="sentence", mininterval=interval, disable=not visible
        )
        self._looked = 0.0

    def add(self, sentences: int = 1) -> None:
        """Count sentences of this process, and now and then look at the others'."""
        self._bar.update(sentences)
        if self._left and time.monotonic() - self._looked > LOOK:
            self._look()

    def wait_for_others(self) -> None:
        """Show how other processes go on until all shards are there."""
        while self._left:
            time.sleep(LOOK)
            self._look()

    def _look(self) -> None:
        self._looked = time.monotonic()
        finished = {
            Path(name).with_suffix(".parquet").name for name in os.listdir(self._folder) if name.endswith("json")
        }
        for name in self._left.keys() & finished:
            self._bar.update(self._left.pop(name))

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
