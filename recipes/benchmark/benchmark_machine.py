"""What a benchmark ran on: processor, caches, the speed of plain products, versions and commit.

Seconds of two machines cannot be compared. Seconds times the rate of plain matrix products of the same machine nearly
can, so that rate is measured too.
"""

from __future__ import annotations

import functools
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import torch

from hf_lrp.environment import describe_environment

SIZE = 2048  # of the square matrices whose product is timed
FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "hypervisor")
_CPU = Path("/sys/devices/system/cpu/cpu0/cache")


def describe_machine(name: str | None) -> dict[str, Any]:
    """The processor with its caches, and its rate of plain products with one and with all of torch's threads."""
    model, flags = _processor()
    return {
        "name": name or model,
        "processor": model,
        "flags": [flag for flag in FLAGS if flag in flags],
        "cores": os.cpu_count(),
        "caches": _caches(),
        "memory": psutil.virtual_memory().total,
        "versions": describe_environment(),
    }


def product_rates(rounds: int = 5) -> dict[str, float]:
    """Gigaflops of a plain product of float32 matrices, on one thread and on all that torch uses."""
    threads = torch.get_num_threads()
    try:
        return {"one thread": _product_rate(1, rounds), "all threads": _product_rate(threads, rounds)}
    finally:
        torch.set_num_threads(threads)


def _product_rate(threads: int, rounds: int) -> float:
    torch.set_num_threads(threads)
    one, other = torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE)
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        one @ other
        times.append(time.perf_counter() - start)
    return 2 * SIZE**3 / statistics.median(times[1:]) / 1e9  # the first one wakes the threads


def _processor() -> tuple[str, set[str]]:
    """Name and flags, as Linux tells them; the name alone elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine(), set()
    found = dict(map(_pair, lines))
    return found.get("model name", platform.machine()), set(found.get("flags", "").split())


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def _caches() -> list[dict[str, str]]:
    """Of the first core: level, kind, size, and the cores that share it; empty where the system does not tell."""
    names = ("level", "type", "size", "shared_cpu_list")
    found = []
    for index in sorted(_CPU.glob("index*")):
        try:
            found.append({name: (index / name).read_text(encoding="utf-8").strip() for name in names})
        except OSError:
            continue
    return found


def commit_of(folder: Path) -> str:
    """The commit of a checkout, with "+" if its package differs from it."""
    run = functools.partial(subprocess.run, cwd=folder, capture_output=True, text=True, check=True)
    try:
        changed = run(["git", "status", "--porcelain", "--untracked-files=no", "hf_lrp"]).stdout
        return run(["git", "rev-parse", "--short", "HEAD"]).stdout.strip() + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
