"""Relevance-aware counterparts of the modules a model is made of.

A counterpart is a subclass of the module's own class: it computes what the module computes, and while a
`Tape` is recording it also notes what went in and came out. Linear layers and norms know how relevance goes
back through them. Nothing is stored on the modules themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from hf_lrp.relevance import operations
from hf_lrp.relevance.rules import Rule

Kept = TypeVar("Kept")

_recording: ContextVar[Tape | None] = ContextVar("hf_lrp_tape", default=None)


class UnknownStructure(RuntimeError):
    """A layer's forward pass is not what its description assumes, so nothing would be right."""


class Tape:
    """What the counterparts of one model saw in one forward pass over one sentence pair."""

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
            raise NotImplementedError(
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
        """What ``make`` gives, made once for this forward pass."""
        if key not in self._kept:
            self._kept[key] = make()
        kept: Kept = self._kept[key]
        return kept

    def _of(self, module: nn.Module) -> tuple[Tensor, Tensor]:
        if module not in self._seen:
            raise NotImplementedError(
                f"A {type(module).__name__} took no part in the forward pass, so the model is not built as assumed."
            )
        return self._seen[module]


@dataclass(frozen=True)
class Window:
    """Which positions carry relevance, for which steps: its tensors are [positions, steps, d].

    positions: the part of the sequence that is meant.
    lag: position i of them carries relevance only from step ``i - lag`` on; None: from all steps.
    own_step: each position carries the relevance of one step, its own; there is one column of steps.
    """

    tape: Tape
    rule: Rule
    positions: slice
    lag: int | None = None
    own_step: bool = False

    def part(self, positions: slice) -> Window:
        """Some of its positions, counted from its first one."""
        first = self.positions.start or 0
        lag = None if self.lag is None else self.lag - positions.start
        return replace(self, positions=slice(first + positions.start, first + positions.stop), lag=lag)

    def input(self, module: nn.Module) -> Tensor:
        """What went into a module at these positions: [positions, d]."""
        return self.tape.input(module)[self.positions]

    def output(self, module: nn.Module) -> Tensor:
        """What came out of a module at these positions: [positions, d]."""
        return self.tape.output(module)[self.positions]


class Recorded(nn.Module):
    """A module that notes its first input and its (first) output.

    noted_as_copy: what comes out may be changed in place later.
    """

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


class RelevanceLayer(Recorded):
    """Counterpart of an encoder or decoder layer, for checking how its parts are joined."""


class RelevanceLinear(Recorded):
    """Counterpart of ``nn.Linear``."""

    weight: Tensor
    bias: Tensor | None

    def check(self, tape: Tape) -> None:
        """Raise if the output is not that of a linear layer; a class that is known needs no check."""

    def matrix(self) -> Tensor:
        """[out, in]"""
        return self.weight

    def relprop(
        self,
        window: Window,
        relevance: Tensor,
        rows: slice | Tensor | None = None,
        rotation: operations.Rotation | None = None,
    ) -> Tensor:
        """[positions, steps, out] -> [positions, steps, in]

        rows: the outputs that relevance comes from; rotation: of these, which follows the layer.
        """
        x, weight, bias = window.input(self), self.matrix(), self.bias
        if rows is not None:
            weight, bias = weight[rows], None if bias is None else bias[rows]
        if rotation is not None:
            return operations.rotated_linear(window.rule, x, weight, bias, rotation, relevance, window.lag)
        return operations.linear(window.rule, x, weight, bias, relevance, window.lag)


class RelevanceOwnLinear(RelevanceLinear):
    """Counterpart of a linear layer with a class of its own, which is known by what it computes."""

    noted_as_copy = True  # Falcon adds the attention's output to that of the feed-forward block

    def check(self, tape: Tape) -> None:
        expected = nn.functional.linear(tape.input(self), self.matrix(), self.bias)
        require_equal(tape.output(self), expected, "output of a linear layer")


class RelevanceTransposedLinear(RelevanceOwnLinear):
    """The same for a layer that holds its weights as [in, out] (transformers' ``Conv1D``)."""

    def matrix(self) -> Tensor:
        return self.weight.T


class RelevanceLayerNorm(Recorded, nn.LayerNorm):
    """Counterpart of ``nn.LayerNorm`` over the last dimension."""

    def replay(self, tape: Tape) -> Tensor:
        """The norm's output, [length, d]."""
        return tape.output(self)

    def relprop(self, window: Window, relevance: Tensor) -> Tensor:
        """[positions, steps, d] -> [positions, steps, d]"""
        x = window.input(self)
        weight = torch.ones_like(x[0]) if self.weight is None else self.weight
        return operations.layer_norm(window.rule, x, weight, self.bias, self.eps, relevance, window.lag)


class RelevanceOwnLayerNorm(Recorded):
    """Counterpart of a layer norm without bias that has a class of its own, and is known by what it computes."""

    weight: Tensor

    def replay(self, tape: Tape) -> Tensor:
        """The norm's output, [length, d]; raises if it is not what a layer norm gives."""
        x = tape.input(self)
        expected = nn.functional.layer_norm(x, x.shape[-1:], self.weight, None, norm_eps(self))
        require_equal(tape.output(self), expected, "output of a layer norm")
        return tape.output(self)

    def relprop(self, window: Window, relevance: Tensor) -> Tensor:
        """[positions, steps, d] -> [positions, steps, d]"""
        x = window.input(self)
        return operations.layer_norm(window.rule, x, self.weight, None, norm_eps(self), relevance, window.lag)


class RelevanceRMSNorm(Recorded):
    """Counterpart of a norm without mean and bias. It has no one class, and is known by what it computes."""

    weight: Tensor

    def gain(self) -> Tensor:
        """What the normed input is multiplied by, [d]."""
        return self.weight

    def replay(self, tape: Tape) -> Tensor:
        """The norm's output, [length, d]; raises if it is not what an RMS norm gives."""
        x = tape.input(self)
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + norm_eps(self))
        require_equal(tape.output(self), self.gain() * x * scale, "output of an RMS norm")
        return tape.output(self)

    def relprop(self, window: Window, relevance: Tensor) -> Tensor:
        """[positions, steps, d] -> [positions, steps, d]"""
        return operations.rms_norm(window.rule, window.input(self), self.gain(), relevance)


class RelevanceOffsetRMSNorm(RelevanceRMSNorm):
    """The same for a norm whose weight is what its gain has beyond 1 (Gemma)."""

    def gain(self) -> Tensor:
        return 1 + self.weight


def norm_eps(norm: Any) -> float:
    """What a norm without a known class adds to the variance or mean square."""
    eps: float = norm.variance_epsilon if hasattr(norm, "variance_epsilon") else norm.eps
    return eps


class RelevanceConv1d(Recorded, nn.Conv1d):
    """Counterpart of ``nn.Conv1d`` over frames: plain, without dilation and groups."""

    def relprop(self, window: Window, relevance: Tensor) -> Tensor:
        """[frames out, steps, out] -> [frames in, steps, in]"""
        x = window.tape.input(self).T  # recorded as [channels, frames]
        stride, padding = self.stride[0], int(self.padding[0])
        return operations.convolution(window.rule, x, self.weight, self.bias, stride, padding, relevance)


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
        _classes[key] = type(f"Relevance{original.__name__}", (behaviour, original), namespace)
    return _classes[key]
