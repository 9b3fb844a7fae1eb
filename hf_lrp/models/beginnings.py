"""Keys and values of a decoder input, from which other inputs with the same beginning go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class Beginnings(NamedTuple):
    """Keys and values of one input by layer, [1, heads, D, features] each."""

    layers: Sequence[tuple[Tensor, Tensor]]

    @classmethod
    def of(cls, cache: Any) -> Beginnings | None:
        """From a model's cache; None where a layer keeps anything but the keys and values of all positions."""
        layers: Sequence[Any] = cache.layers if isinstance(cache, DynamicCache) else ()
        if not layers or any(type(layer) is not DynamicLayer for layer in layers):
            return None
        return cls([(layer.keys, layer.values) for layer in layers])

    @property
    def bytes(self) -> int:
        """Memory of one input's."""
        return sum(each.nbytes for layer in self.layers for each in layer)

    def cut(self, positions: int, rows: int) -> DynamicCache:
        """A cache of the first positions, for several rows."""
        cache = DynamicCache()
        for number, layer in enumerate(self.layers):
            keys, values = (each[:, :, :positions].expand(rows, -1, -1, -1) for each in layer)
            cache.update(keys, values, number)
        return cache
