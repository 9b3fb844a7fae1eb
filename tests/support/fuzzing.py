"""Made-up cases for one check: some by default, many with `-m slow`."""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

import hf_lrp

PACKAGE = Path(hf_lrp.__file__).parent


def numbers_of_cases(few: int, many: int) -> list[Any]:
    """Values for `pytest.mark.parametrize`."""
    return [pytest.param(few, id="some"), pytest.param(many, id="many", marks=pytest.mark.slow)]


def try_cases(check: Callable[..., None], cases: int, *strategies: SearchStrategy[Any]) -> None:
    """Call `check` with values that the strategies draw; a failure is made as small as can be."""
    settings(max_examples=cases, suppress_health_check=list(HealthCheck))(given(*strategies)(check))()


def assert_says_what_to_do(error: Exception) -> None:
    """An error of this package, raised in it, and in words: not what a library says of something that went wrong."""
    frames = traceback.extract_tb(error.__traceback__)
    assert PACKAGE in Path(frames[-1].filename).parents, f"{type(error).__name__}: {error} comes from {frames[-1]}"
    assert len(str(error).split()) >= 4, f"{type(error).__name__}: {error} says too little"
