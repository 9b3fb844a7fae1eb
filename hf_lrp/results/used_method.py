"""The method that made a result: its name and settings, as results and files tell them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class UsedMethod:
    """A method's name, such as `LRP`, and its settings, which JSON can hold.

    `str()` tells both: `LRP(rule=AlphaBeta(alpha=1.0, beta=0.0))`.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, method: Any) -> UsedMethod:
        """Class name and fields of a frozen dataclass; what is neither number, text nor list becomes text."""
        return cls(type(method).__name__, {f.name: _plain(getattr(method, f.name)) for f in fields(method)})

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.settings, Mapping):
            raise ValueError(f"a method is a name and its settings, got {self.name!r} and {self.settings!r}.")
        object.__setattr__(self, "settings", dict(self.settings))

    def to_plain(self) -> dict[str, Any]:
        """Name and settings, for JSON."""
        return {"name": self.name, "settings": dict(self.settings)}

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value}' for name, value in self.settings.items())})"

    def __hash__(self) -> int:
        return hash(str(self))


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
