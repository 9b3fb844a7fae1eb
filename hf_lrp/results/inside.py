"""Inside of a model as it is kept: relevance by layer, position, block and head, one row per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from hf_lrp.models.words import detect_marking, join_words

# The heads of each kind, by the names of what goes through them.
HEADS = {"encoder": "encoder.self", "self": "decoder.self", "cross": "decoder.cross"}
PARTS = ("queries", "keys", "values")


@dataclass(frozen=True, eq=False)
class Inside:
    """Raw shares of predictions inside a model of L layers: with those of the start token they sum to 1.

    Attributes:
        tensors: by name, for SIDE `encoder` or `decoder` (`encoder` only where there is one) and BLOCK `SIDE.self`,
            `decoder.cross` and `SIDE.feed_forward`:

            `SIDE.positions` `[T, L + 1, n]`: at the input of each layer, by position; the last row is the top layer's
            output.
            `decoder.sent` `[T, L, S]`: what each decoder layer sends to the encoder's output, by source position.
            `BLOCK.through`, `BLOCK.past` `[T, L]`: what goes through a block, and what goes past it in the residual
            stream, both at the sum that joins them.
            `BLOCK.heads` `[T, L, heads, 3]`: what goes through each head, in its queries, keys and values.
            With `inside="pairs"` also `BLOCK.to_queries` `[T, L, heads, n]`, and `BLOCK.to_keys` and
            `BLOCK.to_values` `[T, L, heads, n, m]`: what each position's output of a head sends to its own query, and
            to the key and value of each position.
        tokens: by side, what stands at its n positions.
        words: by side, n indices: which word each belongs to.
    """

    tensors: Mapping[str, Tensor]
    tokens: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    words: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with torch.inference_mode(False):
            kept = {
                name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
                for name, tensor in self.tensors.items()
            }
        object.__setattr__(self, "tensors", kept)
        for name in ("tokens", "words"):
            object.__setattr__(self, name, {side: tuple(each) for side, each in getattr(self, name).items()})

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise KeyError(f"there is no {name!r}: there are {', '.join(self.tensors)}")
        return self.tensors[name]

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Inside):
            return NotImplemented
        return (
            self.tensors.keys() == other.tensors.keys()
            and all(torch.equal(tensor, other.tensors[name]) for name, tensor in self.tensors.items())
            and (self.tokens, self.words) == (other.tokens, other.words)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Inside: {', '.join(f'{name} {list(tensor.shape)}' for name, tensor in self.tensors.items())}>"

    def heads(self, kind: Literal["encoder", "self", "cross"]) -> Tensor:
        """`[T, L, heads]`, the share through each head, of the encoder's or the decoder's attention."""
        return self[f"{HEADS[kind]}.heads"].sum(-1)

    @property
    def borders(self) -> Tensor:
        """`[T, borders]`, the total at each border between layers, from the top: 1, whatever the model does.

        At a border of the decoder, what is at positions and what the layers above have sent to the encoder; at one of
        the encoder, what is at its positions and what the decoder has kept.
        """
        at = self["decoder.positions"].sum(-1)
        if "decoder.sent" not in self:
            return at.flip(1)
        sent = self["decoder.sent"].sum(-1).flip(1)
        above = torch.cat([torch.zeros_like(sent[:, :1]), sent.cumsum(1)], 1)
        encoder = self["encoder.positions"].sum(-1).flip(1) + at[:, :1]
        return torch.cat([at.flip(1) + above, encoder], 1)

    def at(self, steps: Sequence[int]) -> Inside:
        """The same at some steps only, given by their indices."""
        return replace(self, tensors={name: tensor[list(steps)] for name, tensor in self.tensors.items()})

    def merge_words(self, steps: Tensor) -> Inside:
        """Between words: positions of a word are added, steps weighted by ``steps`` `[W, T]`."""
        if not self.words:
            return replace(self, tensors={name: _weigh(tensor, steps) for name, tensor in self.tensors.items()})
        members = {side: _membership(words) for side, words in self.words.items()}
        merged = {}
        for name, tensor in self.tensors.items():
            tensor = _weigh(tensor, steps)
            for axis, side in _position_axes(name).items():
                tensor = (tensor.double().movedim(axis, -1) @ members[side].T).movedim(-1, axis).to(tensor.dtype)
            merged[name] = tensor
        tokens = {side: _join(self.tokens[side], words) for side, words in self.words.items()}
        return Inside(merged, tokens, {side: tuple(range(len(each))) for side, each in tokens.items()})


def _position_axes(name: str) -> dict[int, str]:
    """Which axes of a tensor count positions, and of which side."""
    side, kind = name.split(".")[0], name.split(".")[-1]
    keys = "encoder" if name.startswith("decoder.cross") else side
    return {
        "positions": {-1: side},
        "sent": {-1: "encoder"},
        "to_queries": {-1: side},
        "to_keys": {-2: side, -1: keys},
        "to_values": {-2: side, -1: keys},
    }.get(kind, {})


def _weigh(tensor: Tensor, steps: Tensor) -> Tensor:
    return torch.tensordot(steps, tensor.double(), 1).to(tensor.dtype)


def _join(tokens: tuple[str, ...], words: Sequence[int]) -> tuple[str, ...]:
    return join_words(tokens, words, detect_marking(tokens))


def _membership(words: Sequence[int]) -> Tensor:
    """`[W, n]`, 1 where token n belongs to word W."""
    return torch.nn.functional.one_hot(torch.tensor(words)).double().T


def check_inside(inside: Any, steps: int) -> None:
    """Raise unless there is nothing, or tensors that fit T steps and the tokens at positions."""
    if inside is None:
        return
    if not isinstance(inside, Inside):
        raise ValueError(f"inside must be an Inside or None, got {type(inside).__name__}.")
    for name, tensor in inside.tensors.items():
        if tensor.shape[:1] != (steps,):
            raise ValueError(f"inside[{name!r}] must have {steps} rows, one per step, got {list(tensor.shape)}.")
        for axis, side in _position_axes(name).items():
            if side in inside.tokens and tensor.shape[axis] != len(inside.tokens[side]):
                raise ValueError(
                    f"inside[{name!r}] has {tensor.shape[axis]} positions, but there are "
                    f"{len(inside.tokens[side])} tokens in the {side}."
                )
    if any(len(inside.words.get(side, ())) != len(tokens) for side, tokens in inside.tokens.items()):
        raise ValueError("inside.words must say of each of inside.tokens which word it belongs to.")
