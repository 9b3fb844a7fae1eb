"""Prefix types: what a model is conditioned on while it predicts."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

PrefixName: TypeAlias = Literal["reference", "model", "random"]


class PrefixType(NamedTuple):
    """`meaning`: what it is, in an evaluation; `choice`: how the app offers it; `generated`: by the model itself."""

    meaning: str
    choice: str
    generated: bool = False


PREFIX_TYPES: dict[PrefixName, PrefixType] = {
    "reference": PrefixType("the target", "the target below"),
    "model": PrefixType("its own translation", "its own translation", generated=True),
    "random": PrefixType("the target of another pair", "an unrelated sentence"),
}
PREFIXES: tuple[PrefixName, ...] = tuple(PREFIX_TYPES)
