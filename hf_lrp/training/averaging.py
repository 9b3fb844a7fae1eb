"""The average of several checkpoints of a run, as a checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from hf_lrp.data.json_files import read_json
from hf_lrp.models.checkpoints import TRAINER_STATE

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_COPIED = {".json", ".txt", ".model", ".spm", ".jinja"}  # configurations and tokenizers, but no state of training


def average_checkpoints(
    folders: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str], *, overwrite: bool = False
) -> None:
    """Write a checkpoint whose parameters are the mean of those of several checkpoints.

    Sums are in float64, and each parameter keeps its type. Weights that are tied are stored once and stay tied.
    Integer buffers, configuration and tokenizer are those of the last folder. One parameter at a time is in memory.
    The output is complete or not there at all.

    Args:
        folders: what `save_pretrained` or Trainer wrote, with weights in safetensors files.
        output: the new folder.
        overwrite: replace an output that has been written before.

    Raises:
        ValueError: a folder has no weights, damaged ones, or others than the last one.
        FileExistsError: there is something at the output.
    """
    if not folders:
        raise ValueError("There are no checkpoints to average.")
    checkpoints = [Path(folder) for folder in folders]
    twice = next((folder for n, folder in enumerate(checkpoints) if _is_among(folder, checkpoints[:n])), None)
    if twice is not None:
        raise ValueError(f"{twice} is listed twice: list each checkpoint once.")
    destination = Path(os.path.realpath(output))
    _require_replaceable(destination, overwrite, checkpoints)
    with ExitStack() as stack:
        weights = [_Weights(checkpoint, stack) for checkpoint in checkpoints]
        for other in weights[:-1]:
            _require_same_parameters(other, weights[-1])
        destination.parent.mkdir(parents=True, exist_ok=True)
        temporary = destination.with_name(f".{destination.name}.{uuid.uuid4().hex}")
        temporary.mkdir()
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        for path in sorted(checkpoints[-1].iterdir()):
            if path.is_file() and path.suffix in _COPIED and path.name != TRAINER_STATE:
                shutil.copyfile(path, temporary / path.name)
        for name in weights[-1].files:
            _write_means(weights, name, temporary / name)
        _replace(destination, temporary)


def _is_among(folder: Path, others: Sequence[Path]) -> bool:
    return any(os.path.realpath(folder) == os.path.realpath(other) for other in others)


class _Weights:
    """The open safetensors files of a checkpoint; several if it has an index."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        index = folder / _INDEX
        if index.is_file():
            names = _read_names(index)
        else:
            names = [_WEIGHTS]
        self.files: dict[str, Any] = {}
        self._file_of: dict[str, Any] = {}
        for name in names:
            if not (folder / name).is_file():
                raise ValueError(f"{folder} has no {name}: give folders that save_pretrained or Trainer wrote.")
            try:
                self.files[name] = stack.enter_context(safe_open(folder / name, framework="pt"))
            except SafetensorError as error:
                raise ValueError(f"{folder / name} is damaged ({error}): copy it again, or leave it out.") from error
            self._file_of |= dict.fromkeys(self.files[name].keys(), self.files[name])

    def shapes(self) -> dict[str, list[int]]:
        return {key: file.get_slice(key).get_shape() for key, file in self._file_of.items()}

    def read(self, key: str) -> Tensor:
        return self._file_of[key].get_tensor(key)


def _read_names(index: Path) -> list[str]:
    """The files that an index names, all of its own folder."""
    try:
        names = sorted(set(read_json(index)["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index} is damaged ({error}): copy it again, or leave the checkpoint out.") from error
    outside = next((name for name in names if not isinstance(name, str) or Path(name).name != name), None)
    if outside is not None:
        raise ValueError(
            f"{index} names {outside!r}, which is not a file in its folder: such an index is not followed."
        )
    return names


def _require_same_parameters(weights: _Weights, reference: _Weights) -> None:
    shapes, expected = weights.shapes(), reference.shapes()
    for key in sorted(shapes.keys() | expected.keys()):
        shape, other = shapes.get(key, "missing"), expected.get(key, "missing")
        if shape != other:
            raise ValueError(
                f"{key} is {shape} in {weights.folder} but {other} in {reference.folder}: these are different models."
            )


def _write_means(weights: Sequence[_Weights], name: str, path: Path) -> None:
    """Write a file with the layout of the last checkpoint's file of that name, one mean after the other."""
    with (weights[-1].folder / name).open("rb") as original:
        size = original.read(8)
        header = original.read(int.from_bytes(size, "little"))
    entries = {key: entry for key, entry in json.loads(header).items() if key != "__metadata__"}
    with path.open("xb") as file:
        file.write(size + header)
        for key in sorted(entries, key=lambda key: entries[key]["data_offsets"]):
            mean = _mean(weights, key).contiguous()
            if mean.numel():
                file.write(mean.reshape(-1).view(torch.uint8).numpy().data)
        file.flush()
        os.fsync(file.fileno())


def _mean(weights: Sequence[_Weights], key: str) -> Tensor:
    """The mean of a parameter in the last one's type; for integers, the last one itself."""
    last = weights[-1].read(key)
    if not last.is_floating_point():
        return last
    total = last.double()
    for other in weights[:-1]:
        total += other.read(key)
    return (total / len(weights)).to(last.dtype)


def _require_replaceable(destination: Path, overwrite: bool, checkpoints: Sequence[Path]) -> None:
    for checkpoint in checkpoints:
        if Path(os.path.realpath(checkpoint)).is_relative_to(destination):
            raise ValueError(f"The output {destination} is or holds a checkpoint to average: choose another.")
    if not destination.exists() or (destination.is_dir() and not any(destination.iterdir())):
        return
    if not overwrite:
        raise FileExistsError(
            f"{destination} exists: choose another output, or overwrite it (overwrite=True, or --overwrite)."
        )
    if not (destination / "config.json").is_file():
        raise FileExistsError(f"{destination} exists and holds no model: it is not overwritten.")


def _replace(destination: Path, temporary: Path) -> None:
    """Put a new folder in the place of an old one, if there is one."""
    if not destination.exists():
        os.rename(temporary, destination)
        return
    old = destination.with_name(f"{temporary.name}.old")
    os.rename(destination, old)
    os.rename(temporary, destination)
    shutil.rmtree(old)
