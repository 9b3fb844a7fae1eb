"""Models that take as long to build as to explain are built once, and copied for each test."""

import copy
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P, Model = ParamSpec("P"), TypeVar("Model")


def built_once(build: Callable[P, Model]) -> Callable[P, Model]:
    """Call ``build`` once for all calls with the same arguments, and return copies, which tests may change."""
    built: dict[str, Model] = {}

    @functools.wraps(build)
    def copied(*args: P.args, **kwargs: P.kwargs) -> Model:
        key = repr((args, sorted(kwargs.items())))
        if key not in built:
            built[key] = build(*args, **kwargs)
        return copy.deepcopy(built[key])

    return copied
