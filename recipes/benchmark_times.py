"""How long tasks take, measured in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from tqdm.auto import tqdm


def seconds(tasks: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Median time per task; tasks take turns, so that a busy moment hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in tqdm(range(repeats), desc="Timing", unit="round", leave=False):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            times[name].append(time.perf_counter() - start)
    # the first round warms up, where there is more than one
    return {name: statistics.median(values[1:] or values) for name, values in times.items()}
