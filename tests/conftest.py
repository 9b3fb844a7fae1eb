"""Settings and fixtures of all tests."""

import gc
import os

# Each worker is a process of one thread, and so are the processes that tests start: they do not slow each other down.
# Before torch is imported, which reads these.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("hf_lrp", deadline=None, derandomize=True, database=None)
settings.load_profile("hf_lrp")


@pytest.fixture(params=["marian", "pegasus"])
def model(request: pytest.FixtureRequest) -> Any:
    """A tiny model, post-norm and pre-norm, in float32."""
    from tiny_models import tiny_model  # not at the top: the process that shares out the tests needs no torch

    return tiny_model(request.param)


def pytest_collection_finish() -> None:
    """What was imported stays: the garbage collector, which training calls too, need not look through it again."""
    gc.collect()
    gc.freeze()
