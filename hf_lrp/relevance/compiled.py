"""The compiled part: fused loops in C for the rule AlphaBeta(1, 0), float32, on CPUs.

Built while the package is installed, where there is a C compiler, once for each instruction set of LEVELS; the best
one that the processor has is used. The environment variable HF_LRP_COMPILED names another one, or "off". Whatever the
compiled part does not cover goes through `hf_lrp.relevance.operations`, which gives the same within rounding.

Tokens are shared out to as many threads as torch uses. They wait without spinning, and a forked process has its own.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import torch
from torch import Tensor

from hf_lrp.relevance.reused_memory import contiguous, new_empty
from hf_lrp.relevance.rules import AlphaBeta, Rule

VARIABLE = "HF_LRP_COMPILED"
LEVELS = ("plain", "avx2", "avx512")
RULE = AlphaBeta(1.0, 0.0)

# As in fused/linear.c: raised with every change of a function's arguments, so that an older build is not used.
INTERFACE = 3

# A lag that no token reaches: relevance from all steps.
ALL_STEPS = 2**40

# Fewer multiplications than this are not worth waking a thread.
SMALLEST_SHARE = 2**20

_ARGUMENTS = {"p": ctypes.c_void_p, "l": ctypes.c_long, "d": ctypes.c_double}
_SIGNATURES = {
    "interface": "",
    "linear_memory": "ll",
    "gated_memory": "lll",
    "layer_norm_memory": "l",
    "attention_memory": "p",
    "linear": "ppppppppp" + "lllllll",
    "gated": "ppppppppp" + "lllllll",
    "layer_norm": "pppdppp" + "llllll",
    "rms_norm": "ppppp" + "lllll",
    "residual": "pppppp" + "lllll",
    "attention": "pp" + "ll",
}


class _Attention(ctypes.Structure):
    """As in fused/attention.c."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("query", "key", "value", "weights", "slope", "relevance")),
        *((name, ctypes.c_void_p) for name in ("to_query", "to_key", "to_value", "lost")),
        *((name, ctypes.c_long) for name in ("heads", "queries", "keys", "steps", "width", "value_width")),
        *((name, ctypes.c_long) for name in ("lag", "causal", "own_step")),
    ]


def level() -> str | None:
    """The instruction set that the compiled part uses, one of LEVELS; None if it is off or was not built."""
    wanted = os.environ.get(VARIABLE, "").lower()
    if wanted == "off":
        return None
    if not wanted:
        return _best_level()
    if wanted not in LEVELS:
        raise ValueError(f"{VARIABLE} must be off, {', '.join(LEVELS)} or empty; got {wanted!r}.")
    if wanted not in _usable_levels():
        raise ValueError(
            f"{VARIABLE}={wanted}, but that was not built, or this processor lacks it. "
            f"There is: {', '.join(_usable_levels()) or 'nothing'}."
        )
    return wanted


def is_built() -> bool:
    """True if there is a compiled part that this processor can run, switched off or not."""
    return bool(_usable_levels())


def covers(rule: Rule, *tensors: Tensor | None) -> bool:
    """True if the compiled part is there and does this."""
    return (
        rule == RULE
        and all(t is None or (t.dtype == torch.float32 and t.device.type == "cpu") for t in tensors)
        and level() is not None
    )


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    relevance: Tensor,
    lag: int | None = None,
    turned: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Tensor:
    """As `hf_lrp.relevance.operations.linear`; turned: as `hf_lrp.relevance.operations.rotated_linear`."""
    (tokens, steps, outputs), inputs = relevance.shape, weight.shape[1]
    x, weight, relevance = x.contiguous(), weight.contiguous(), contiguous(relevance)
    shift = weight.new_zeros(outputs) if bias is None else bias / inputs
    rotation = (None, None, None) if turned is None else tuple(part.contiguous() for part in turned)
    received = new_empty(relevance, tokens, steps, inputs)
    library = load_library()
    size = library.linear_memory(steps, inputs)
    sizes = tokens, steps, outputs, inputs, ALL_STEPS if lag is None else lag

    def work(first: int, stride: int) -> None:
        memory = torch.empty(size)
        pointers = _pointers(x, weight, shift, *rotation, relevance, received, memory)
        library.linear(*pointers, first, stride, *sizes)

    _share_out(work, tokens, steps * outputs * inputs)
    return received


def gated(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gate: Tensor,
    gate_bias: Tensor | None,
    relevance: Tensor,
    lag: int | None = None,
) -> Tensor:
    """As `hf_lrp.relevance.operations.gated`."""
    (tokens, steps, outputs), inputs = relevance.shape, weight.shape[1]
    x, weight, gate, relevance = x.contiguous(), weight.contiguous(), gate.contiguous(), contiguous(relevance)
    shifts = [weight.new_zeros(outputs) if b is None else b / inputs for b in (bias, gate_bias)]
    received = new_empty(relevance, tokens, steps, inputs)
    lost = torch.zeros(tokens, dtype=torch.bool)
    library = load_library()
    sizes = tokens, steps, outputs, inputs, ALL_STEPS if lag is None else lag

    def work(first: int, stride: int) -> None:
        memory = torch.empty(library.gated_memory(-(-tokens // stride), steps, inputs))
        pointers = _pointers(x, weight, shifts[0], gate, shifts[1], relevance, received, lost, memory)
        library.gated(*pointers, first, stride, *sizes)

    _share_out(work, tokens, 2 * steps * outputs * inputs)
    for n in lost.nonzero()[:, 0].tolist():
        own, half, late = x[n : n + 1], relevance[n : n + 1] / 2, None if lag is None else lag - n
        received[n] = linear(own, weight, bias, half, late)[0] + linear(own, gate, gate_bias, half, late)[0]
    return received


def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, relevance: Tensor, lag: int | None = None
) -> Tensor:
    """As `hf_lrp.relevance.operations.layer_norm`, in O(d log d) and O(d) per step."""
    tokens, steps, d = relevance.shape
    x, weight, relevance = x.contiguous(), weight.contiguous(), contiguous(relevance)
    shift = None if bias is None else bias.contiguous()
    received = new_empty(relevance, *relevance.shape)
    library = load_library()
    size = library.layer_norm_memory(d)

    def work(first: int, stride: int) -> None:
        memory = torch.empty(size, dtype=torch.float64)
        given, used = _pointers(x, weight, shift), _pointers(relevance, received, memory)
        library.layer_norm(*given, eps, *used, first, stride, tokens, steps, d, ALL_STEPS if lag is None else lag)

    _share_out(work, tokens, (100 + 8 * steps) * d)
    return received


def rms_norm(x: Tensor, weight: Tensor, relevance: Tensor) -> Tensor:
    """As `hf_lrp.relevance.operations.rms_norm`."""
    tokens, steps, d = relevance.shape
    x, weight, relevance = x.contiguous(), weight.contiguous(), contiguous(relevance)
    received = new_empty(relevance, *relevance.shape)
    library = load_library()

    def work(first: int, stride: int) -> None:
        memory = torch.empty(4, d, dtype=torch.float64)
        library.rms_norm(*_pointers(x, weight, relevance, received, memory), first, stride, tokens, steps, d)

    _share_out(work, tokens, 8 * steps * d)
    return received


def residual(x: Tensor, update: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """As `hf_lrp.relevance.operations.residual`."""
    tokens, steps, d = relevance.shape
    x, update, relevance = x.contiguous(), update.contiguous(), contiguous(relevance)
    to_x, to_update = (new_empty(relevance, *relevance.shape) for _ in range(2))
    library = load_library()

    def work(first: int, stride: int) -> None:
        memory = torch.empty(2, d)
        pointers = _pointers(x, update, relevance, to_x, to_update, memory)
        library.residual(*pointers, first, stride, tokens, steps, d)

    _share_out(work, tokens, 4 * steps * d)
    return to_x, to_update


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Tensor,
    slope: Tensor | None,
    relevance: Tensor,
    received: tuple[Tensor, Tensor, Tensor],
    own_step: bool,
    lag: int | None,
    causal: bool,
) -> Tensor:
    """As `hf_lrp.relevance.operations.attention`, into ``received``: tensors of query, key and value.

    received: [heads, positions, steps, width], in memory [positions, steps, heads, width]. Each head's total is kept
    but where it has nowhere to go; returns where that is so, [heads, steps].
    """
    heads, queries, steps, value_width = relevance.shape
    steps = queries if own_step else steps
    given = [t if t is None else t.contiguous() for t in (query, key, value, weights, slope)]
    sent = contiguous(relevance.movedim(0, 2))
    lost = torch.empty(heads, steps, dtype=torch.bool)
    pointers = _pointers(*given, sent, *received, lost)
    sizes = heads, queries, key.shape[1], steps, query.shape[-1], value_width
    core = ctypes.byref(_Attention(*pointers, *sizes, ALL_STEPS if lag is None else lag, causal, own_step))
    library = load_library()
    size = library.attention_memory(core)

    def work(first: int, stride: int) -> None:
        memory = torch.empty(size)
        library.attention(core, memory.data_ptr(), first, stride)

    _share_out(work, heads, 3 * weights[0].numel() * value_width * (1 if own_step else steps))
    return lost


@contextmanager
def own_threads(rule: Rule, *tensors: Tensor | None) -> Iterator[None]:
    """Torch on one thread inside, the compiled part on as many as torch had; nothing where `covers` is False.

    After each operation of torch, its other threads spin for milliseconds on cores where the compiled part's would
    work, which takes longer than torch gains there.
    """
    threads = torch.get_num_threads()
    if threads == 1 or not torch.backends.openmp.is_available() or not covers(rule, *tensors):
        yield
        return
    token = _threads.set(threads)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        _threads.reset(token)


_threads: ContextVar[int | None] = ContextVar("hf_lrp_threads", default=None)


def _pointers(*tensors: Tensor | None) -> list[int | None]:
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]


def _share_out(work: Callable[[int, int], None], tokens: int, cost: int) -> None:
    """Call ``work(first, stride)`` so that all tokens or heads are worked on, by as many threads as torch has and pay.

    Strided, because in a causal decoder early tokens carry more steps than late ones.
    """
    most = _threads.get() or torch.get_num_threads()
    threads = max(1, min(most, tokens, tokens * cost // SMALLEST_SHARE))
    others = [_pool(threads).submit(work, first, threads) for first in range(1, threads)]
    work(0, threads)
    for other in others:
        other.result()


_pools: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # threads do not survive a fork


def _pool(threads: int) -> ThreadPoolExecutor:
    if threads not in _pools:
        _pools[threads] = ThreadPoolExecutor(threads - 1, thread_name_prefix="hf_lrp")
    return _pools[threads]


def load_library() -> ctypes.CDLL:
    """The shared library of the level that is in use."""
    found = level()
    assert found is not None
    return _load(found)


@functools.cache
def _best_level() -> str | None:
    return _usable_levels()[-1] if _usable_levels() else None


@functools.cache
def _usable_levels() -> tuple[str, ...]:
    """Those of LEVELS that were built and that this processor has, by what torch says of it."""
    capability = torch.backends.cpu.get_cpu_capability()
    highest = 2 if capability.startswith("AVX512") else 1 if capability == "AVX2" else 0
    return tuple(name for name in LEVELS[: highest + 1] if _file(name).exists() and _is_current(name))


def _is_current(name: str) -> bool:
    try:
        library = ctypes.CDLL(str(_file(name)))
    except OSError:  # built for another kind of machine
        return False
    return hasattr(library, "interface") and library.interface() == INTERFACE


def _file(name: str) -> Path:
    """Where setup.py puts a shared library: it is none of Python's, so its name has none of Python's tags."""
    return Path(__file__).with_name(f"_fused_{name}{'.dll' if os.name == 'nt' else '.so'}")


@functools.cache
def _load(name: str) -> ctypes.CDLL:
    library = ctypes.CDLL(str(_file(name)))
    for function, kinds in _SIGNATURES.items():
        getattr(library, function).argtypes = [_ARGUMENTS[kind] for kind in kinds]
        getattr(library, function).restype = ctypes.c_long if function.endswith(("memory", "interface")) else None
    return library
