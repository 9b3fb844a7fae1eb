"""Masked attention heads: for a while, nothing of them reaches the rest of the model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hf_lrp.models.attention_weights import attention_blocks
from hf_lrp.models.structure import Attention, Network


class HeadPlace(NamedTuple):
    """A head: of the encoder, of the decoder's self-attention or its cross-attention; layer and head count from 0."""

    kind: str
    layer: int
    head: int


def attention_kinds(network: Network) -> dict[str, tuple[Attention, ...]]:
    """The attention blocks of all layers, by kind; only ``self`` in a model that is a decoder only."""
    found: dict[str, tuple[Attention, ...]] = {}
    if network.encoder is not None:
        found["encoder"] = attention_blocks(network.encoder, cross=False)
    found["self"] = attention_blocks(network.decoder, cross=False)
    cross = attention_blocks(network.decoder, cross=True)
    return found | ({"cross": cross} if cross else {})


@contextmanager
def heads_masked(network: Network, heads: Collection[HeadPlace]) -> Iterator[None]:
    """Let these heads give 0 to their output projection, whatever happens inside; the model is as before after it.

    What is masked is the head's whole output, at all positions.
    """
    kinds = attention_kinds(network)
    by_block: dict[tuple[str, int], list[int]] = {}
    for place in heads:
        blocks: Sequence[Attention] = kinds.get(place.kind, ())
        if not (0 <= place.layer < len(blocks) and 0 <= place.head < blocks[place.layer].q.heads):
            raise ValueError(f"The model has no head {tuple(place)}: kinds are {', '.join(kinds)}, numbers from 0 on.")
        by_block.setdefault((place.kind, place.layer), []).append(place.head)
    handles = []
    try:
        for (kind, layer), numbers in by_block.items():
            block = kinds[kind][layer]
            hook = _Silence(block.q.heads, numbers)
            handles.append(block.out.module.register_forward_pre_hook(hook, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Silence:
    """A hook before an output projection that sets the features of some heads to 0."""

    def __init__(self, heads: int, masked: Sequence[int]) -> None:
        self.kept = torch.ones(heads, 1)
        self.kept[list(masked)] = 0.0

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if args:
            return (self._silence(args[0]), *args[1:]), dict(kwargs)
        name = next(iter(kwargs))
        return args, {**kwargs, name: self._silence(kwargs[name])}

    def _silence(self, x: Tensor) -> Tensor:
        """[..., heads d]"""
        kept = self.kept.to(x.device, x.dtype)
        return (x.unflatten(-1, (len(kept), -1)) * kept).flatten(-2)
