"""Environment that hf_lrp runs on: versions, devices, threads, and whether its compiled part is in use."""

from __future__ import annotations

import platform
from importlib import metadata

import torch

from hf_lrp.relevance import compiled
from hf_lrp.version import __version__

PACKAGES = ("torch", "transformers", "accelerate", "safetensors", "datasets", "evaluate", "numpy", "matplotlib")


def describe_environment() -> dict[str, str]:
    """Names and values, for reports of problems and of speed."""
    return {
        "hf-lrp": __version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "processor": f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}",
        "threads": str(torch.get_num_threads()),
        "devices": ", ".join(_describe_devices()),
        "compiled part": _compiled(),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _describe_devices() -> list[str]:
    names = [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    return ["cpu", *names, *(["mps"] if torch.backends.mps.is_available() else [])]


def _compiled() -> str:
    level = compiled.level()
    if level is not None:
        return f"in use, {level}"
    if compiled.is_built():
        return f"switched off by {compiled.VARIABLE}"
    return "not built, or from other sources: install a C compiler, then hf-lrp again"
