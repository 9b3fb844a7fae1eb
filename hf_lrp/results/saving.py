"""Files of contributions: one safetensors file with a description as JSON and a checksum in its header.

Tensors are called what the fields are called; those of prompts' parts `spans/NAME`, of the inside `inside/NAME`. All
other fields stand in the description.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hf_lrp.data.files import write_atomically
from hf_lrp.results.checks import FLOATS, IDS
from hf_lrp.results.inside import Inside
from hf_lrp.results.spans import Span
from hf_lrp.results.used_method import UsedMethod

if TYPE_CHECKING:
    from hf_lrp.results.contributions import Contributions

FILE_FORMAT = "hf_lrp.contributions"
FILE_VERSION = 4
_AGAIN = "compute and save it again, with explain(...).save(path) or `hf-lrp explain ... --save path`"
_SPAN, _INSIDE = "spans/", "inside/"


def to_fields(c: Contributions) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors of a result by name, and all else as JSON knows it."""
    tensors = {name: getattr(c, name) for name in (*FLOATS, *IDS)}
    described = {field.name: getattr(c, field.name) for field in fields(c) if field.name not in tensors}
    described |= {"spans": {name: span.tokens for name, span in c.spans.items()}, "method": c.method.to_plain()}
    kept = {} if c.inside is None else c.inside.tensors
    described["inside"] = c.inside and {"tokens": c.inside.tokens, "words": c.inside.words}
    tensors |= {f"{_SPAN}{name}": span.shares for name, span in c.spans.items()}
    return tensors | {f"{_INSIDE}{name}": tensor for name, tensor in kept.items()}, described


def from_fields(values: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a result, from what `to_fields` gave."""
    spans = {name: Span(tuple(tokens), values[f"{_SPAN}{name}"]) for name, tokens in values["spans"].items()}
    inside = {name.removeprefix(_INSIDE): values[name] for name in values if name.startswith(_INSIDE)}
    rest = {name: value for name, value in values.items() if not name.startswith((_SPAN, _INSIDE))}
    kept = Inside(inside, **values["inside"]) if inside else None
    return rest | {"spans": spans, "method": UsedMethod(**values["method"]), "inside": kept}


def save_fields(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> None:
    """Write tensors, and everything else as JSON; an old file is replaced only once all is written."""
    from safetensors.torch import save

    text = json.dumps(described, ensure_ascii=False)
    metadata = {"format": FILE_FORMAT, "version": str(FILE_VERSION), "description": text}
    write_atomically(path, save(dict(tensors), metadata | {"sha256": _checksum(tensors, text)}))


def load_fields(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Fields that `save_fields` wrote, by name.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, is something else, or was written by another version of the format.
    """
    tensors, metadata = _read(Path(path))
    version, text = metadata.get("version", ""), metadata.get("description", "")
    if version.isdecimal() and int(version) != FILE_VERSION:
        remedy = "install a newer hf_lrp" if int(version) > FILE_VERSION else _AGAIN
        raise ValueError(f"{path} has format version {version}, this hf_lrp reads version {FILE_VERSION}; {remedy}.")
    if not version.isdecimal() or metadata.get("sha256") != _checksum(tensors, text):
        raise ValueError(f"{path} is damaged: its checksum does not match; copy it again, or compute and save again.")
    described = json.loads(text)
    if not isinstance(described, dict):
        raise ValueError(
            f"{path} does not hold valid contributions: its description is not an object. Save them again."
        )
    return {**tensors, **described}


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and header of a file of contributions."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path, or write it with Contributions.save.")
    if not path.is_file():
        raise ValueError(f"{path} is not a file; give the file that Contributions.save wrote.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FILE_FORMAT:
                raise ValueError(
                    f"{path} is a safetensors file, but not of contributions (its format is "
                    f"{metadata.get('format')!r}); give a file that Contributions.save wrote."
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"{path} is truncated, damaged or not a safetensors file ({error}); copy it again, or compute and save "
            "again."
        ) from error
    return tensors, metadata


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    """SHA-256 of the tensors with their names, types and shapes, and of the description."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name} {tensor.dtype} {list(tensor.shape)}\0".encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
