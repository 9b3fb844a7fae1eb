"""The models of an app: which ones visitors may choose, and those that are in memory."""

from __future__ import annotations

import copy
import re
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from hf_lrp.models.loading import CheckpointError, load_checkpoint, set_languages

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

EMBEDDED = "embedded English-French"
_SIDES = ("src_lang", "tgt_lang")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


class Loaded(NamedTuple):
    """A model, its tokenizer as it was loaded, and copies that nobody uses at the moment."""

    model: PreTrainedModel
    tokenizer: Any
    free: list[Any]


class Models:
    """Models by the labels under which visitors choose them.

    Only what is offered can be loaded. Of a folder that is offered, visitors see the name, not the path. Models are
    loaded when they are first chosen; those used last stay in memory.

    Args:
        names: what is offered: folders or Hub ids, and None for the embedded model.
        hub: whether visitors may also name any model of the Hub.
        device: where models are computed.
        kept: how many stay in memory.
    """

    def __init__(
        self, names: Sequence[str | None], *, hub: bool = False, device: torch.device | None = None, kept: int = 2
    ) -> None:
        if not names or kept < 1:
            raise ValueError("An app needs at least one model, and room for it.")
        self.hub, self.device, self.kept = hub, device, kept
        self._offered = _label(names)
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()
        self._lock = Lock()

    @property
    def labels(self) -> list[str]:
        """Names of the models that visitors choose from."""
        return list(self._offered)

    @property
    def in_memory(self) -> list[str]:
        """Labels of the models that are loaded, the one used last at the end."""
        return list(self._loaded)

    def get(self, label: str) -> Loaded:
        """The model of this label, which is loaded if it is not in memory.

        Raises:
            ValueError: it is not offered, or cannot be loaded; the text names no path.
        """
        label = label.strip()
        with self._lock:
            name = self._name(label)
            if label not in self._loaded:
                while len(self._loaded) >= self.kept:
                    self._loaded.popitem(last=False)
                self._loaded[label] = self._load(name, label)
            self._loaded.move_to_end(label)
            return self._loaded[label]

    @contextmanager
    def use(self, label: str, source_language: str = "", target_language: str = "") -> Iterator[tuple[Any, Any]]:
        """A model, and a tokenizer that nobody else uses meanwhile, set to these languages; empty: its own ones.

        Raises:
            ValueError: what `get` raises, or it does not know a language.
        """
        found = self.get(label)
        with self._lock:
            tokenizer = found.free.pop() if found.free else copy.deepcopy(found.tokenizer)
        try:
            for side in _SIDES:
                if getattr(tokenizer, side, None) != (own := getattr(found.tokenizer, side, None)):
                    setattr(tokenizer, side, own)  # which the visitor before has changed
            set_languages(tokenizer, source_language.strip() or None, target_language.strip() or None, label.strip())
            yield found.model, tokenizer
        finally:
            found.free.append(tokenizer)

    def _name(self, label: str) -> str | None:
        """The folder or Hub id of a label."""
        if label in self._offered:
            return self._offered[label]
        # A folder of the server must not be found by a name that looks like a Hub id.
        if self.hub and _HUB_ID.fullmatch(label) and not Path(label).exists():
            return label
        known = ", ".join(self._offered)
        more = ", or name a model of the Hub, owner/name" if self.hub else ""
        problem = f"{label[:100]!r} is not offered here" if label else "No model is chosen"
        raise ValueError(f"{problem}. Choose one of: {known}{more}.")

    def _load(self, name: str | None, label: str) -> Loaded:
        try:
            model, tokenizer = load_checkpoint(name)
        except CheckpointError as error:
            if self.hub:  # the visitor is whom the machine belongs to
                raise
            print(f"hf-lrp: {error}", file=sys.stderr)
            raise ValueError(f"{label} cannot be loaded. Where this app runs, its terminal says why.") from error
        if self.device is not None:
            model.to(self.device)  # type: ignore[arg-type]
        model.config.name_or_path = label  # what results, pages and files call it
        return Loaded(model, tokenizer, [copy.deepcopy(tokenizer)])


def _label(names: Sequence[str | None]) -> dict[str, str | None]:
    """By label: Hub ids as they are, the last part of a folder's path, numbered where two are the same."""
    offered: dict[str, str | None] = {}
    for name in dict.fromkeys(names):
        path = None if name is None else Path(name).expanduser()
        if path is None:
            label = EMBEDDED
        elif path.exists() or path.is_absolute() or str(name).startswith("."):
            label = path.resolve().name or "model"
        else:
            label = str(name)
        numbered, number = label, 1
        while numbered in offered:
            number += 1
            numbered = f"{label} ({number})"
        offered[numbered] = name
    return offered
