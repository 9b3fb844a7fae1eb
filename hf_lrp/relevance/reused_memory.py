"""Memory of large tensors, used again for the next ones."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

# Larger tensors get memory that is new to the process each time, as malloc of Linux does it: the system clears it page
# by page, which takes longer than many a loop takes to fill it.
SMALLEST = 2**25  # bytes


class Pool:
    """A pool of memory: tensors that are no longer in use leave theirs to later ones of about their size."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Tensor, Callable[[], object]]] = []  # memory, and what tells whether it is in use

    def take(self, elements: int) -> Tensor:
        """A tensor of so many numbers in float32, with whatever stands there."""
        free = [block for block, user in self._blocks if user() is None and elements <= len(block) <= 2 * elements]
        if free:
            chosen = min(free, key=len)
        else:  # what fits nothing goes first, so that no more memory is held than without a pool
            self._blocks = [(block, user) for block, user in self._blocks if user() is not None]
            chosen = torch.empty(elements)
        array = chosen.numpy()[:elements]  # lives as long as a tensor that shares its memory
        others = [(block, user) for block, user in self._blocks if block is not chosen]
        self._blocks = [*others, (chosen, weakref.ref(array))]
        return torch.from_numpy(array)


_pool: ContextVar[Pool | None] = ContextVar("hf_lrp_memory", default=None)


@contextmanager
def recycled() -> Iterator[None]:
    """Large tensors of `new_empty` share memory inside, one after the other."""
    token = _pool.set(Pool())
    try:
        yield
    finally:
        _pool.reset(token)


def new_empty(like: Tensor, *shape: int) -> Tensor:
    """A tensor of this shape, as ``like.new_empty``."""
    pool, elements = _pool.get(), torch.Size(shape).numel()
    if pool is None or like.dtype != torch.float32 or like.device.type != "cpu" or 4 * elements < SMALLEST:
        return like.new_empty(*shape)
    return pool.take(elements).view(*shape)


def contiguous(tensor: Tensor) -> Tensor:
    """The tensor, contiguous; a copy, if it takes one, is made by `new_empty`."""
    return tensor if tensor.is_contiguous() else new_empty(tensor, *tensor.shape).copy_(tensor)
