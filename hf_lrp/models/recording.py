"""Tape and counterparts: what a model's modules saw in a forward pass, and whether it is what is assumed.

For a while, modules are exchanged for counterparts: subclasses of their own classes, which compute what these compute,
and while a `Tape` is recording also note what went in and came out. Nothing is stored on the modules themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

Kept = TypeVar("Kept")

_recording: ContextVar[Tape | None] = ContextVar("hf_lrp_tape", default=None)


class UnknownStructure(RuntimeError):
    """A model is not built, or a layer does not compute, as its description says, so results would be wrong."""


class Tape:
    """A tape: what the counterparts of one model saw in one forward pass over one sentence pair."""

    def __init__(self) -> None:
        self._seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        self._kept: dict[Any, Any] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record every forward pass inside, in this thread only."""
        token = _recording.set(self)
        try:
            yield
        finally:
            _recording.reset(token)

    def add(self, module: nn.Module, x: Tensor, y: Tensor) -> None:
        """Note input and output of a module, both [1, length, d]; their order of axes does not matter."""
        if module in self._seen:
            raise UnknownStructure(
                f"A {type(module).__name__} ran twice in one forward pass. Models that share layers are not supported."
            )
        self._seen[module] = (x.detach().flatten(0, -2), y.detach().flatten(0, -2))

    def input(self, module: nn.Module) -> Tensor:
        """[length, d]"""
        return self._of(module)[0]

    def output(self, module: nn.Module) -> Tensor:
        """[length, d]"""
        return self._of(module)[1]

    def forget(self, module: nn.Module) -> None:
        """Free what was noted of a module."""
        del self._seen[module]

    def once(self, key: Any, make: Callable[[], Kept]) -> Kept:
        """Value that ``make`` gives, made once for this forward pass."""
        if key not in self._kept:
            self._kept[key] = make()
        kept: Kept = self._kept[key]
        return kept

    def _of(self, module: nn.Module) -> tuple[Tensor, Tensor]:
        if module not in self._seen:
            raise UnknownStructure(
                f"A {type(module).__name__} took no part in the forward pass, so the model is not built as assumed."
            )
        return self._seen[module]


class Recorded(nn.Module):
    """A module that notes its first input and its (first) output.

    called: how names of counterparts begin; noted_as_copy: what comes out may be changed in place later.
    """

    called: ClassVar = "Recorded"
    original: type[nn.Module]
    noted_as_copy = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        result = super().forward(*args, **kwargs)
        tape = _recording.get()
        if tape is not None:
            x = args[0] if args else kwargs[next(iter(kwargs))]
            y = result[0] if isinstance(result, tuple) else result
            tape.add(self, x, y.clone() if self.noted_as_copy else y)
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles are of the original class: they are not patched."""
        return object.__new__, (self.original,), super().__reduce_ex__(protocol)[2]


_open_checks: ContextVar[list[tuple[str, Tensor]] | None] = ContextVar("hf_lrp_checks", default=None)


@contextmanager
def checked_together() -> Iterator[None]:
    """Look at the outcomes of all checks inside at once, at the end: on a GPU each look waits for what is queued."""
    checks: list[tuple[str, Tensor]] = []
    token = _open_checks.set(checks)
    try:
        yield
    finally:
        _open_checks.reset(token)
    if checks:
        _raise_first(checks)


def require_equal(actual: Tensor, expected: Tensor, what: str) -> None:
    """Raise unless two tensors agree up to rounding; within `checked_together`, at its end."""
    if actual.shape != expected.shape:
        raise _unknown(what)
    tolerance = 1e-4 * actual.abs().max() + 1e-6
    check = what, (actual - expected).abs_().max() <= tolerance
    checks = _open_checks.get()
    if checks is None:
        _raise_first([check])
    else:
        checks.append(check)


def _raise_first(checks: list[tuple[str, Tensor]]) -> None:
    agree = torch.stack([outcome.to(checks[0][1].device) for _, outcome in checks]).tolist()
    for (what, _), holds in zip(checks, agree, strict=True):
        if not holds:
            raise _unknown(what)


def _unknown(what: str) -> UnknownStructure:
    return UnknownStructure(
        f"The {what} differs from what hf_lrp assumes for this architecture, so contributions would be wrong. "
        "Custom modeling code, hooks that change activations, or an unknown transformers version can cause this."
    )


_classes: dict[tuple[type[nn.Module], type[Recorded]], type[nn.Module]] = {}


def counterpart(original: type[nn.Module], behaviour: type[Recorded]) -> type[nn.Module]:
    """The subclass of ``original`` that also behaves as ``behaviour``."""
    key = (original, behaviour)
    if key not in _classes:
        namespace = {"__module__": original.__module__, "original": original}
        _classes[key] = type(f"{behaviour.called}{original.__name__}", (behaviour, original), namespace)
    return _classes[key]
