"""Checkpoints of a training run: which there are, and which were written to their end."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from hf_lrp.data.json_files import read_json
from hf_lrp.data.warning import warn

TRAINER_STATE = "trainer_state.json"
INCOMPLETE = "incomplete"  # a mark in the folder of a checkpoint that is being written, or was when training stopped


def is_whole(folder: Path) -> bool:
    """Whether a checkpoint was written to its end: `Trainer` writes its state last, and ours marks what it begins."""
    return (folder / TRAINER_STATE).is_file() and not (folder / INCOMPLETE).exists()


def mark_incomplete(folder: Path) -> None:
    """Say that a checkpoint is going to be written, also into a folder that an earlier run has left."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INCOMPLETE).touch()


def mark_whole(folder: Path) -> None:
    """Say that a checkpoint has been written."""
    (folder / INCOMPLETE).unlink(missing_ok=True)


def delete_old_checkpoints(latest: Path, limit: int | None, best: str | None) -> None:
    """Delete the oldest checkpoints beside the latest, so that `limit` are left; never the latest, nor the best."""
    if limit is None or limit < 1:
        return
    protected = {latest} if best is None else {latest, Path(best)}
    others = [folder for folder in latest.parent.glob("checkpoint-*") if folder.is_dir() and folder not in protected]
    others.sort(key=lambda folder: (folder.stat().st_mtime_ns, len(folder.name), folder.name))
    for folder in others[: max(0, len(others) + len(protected) - limit)]:
        shutil.rmtree(folder, ignore_errors=True)


def latest_checkpoints(run_folder: str | os.PathLike[str], number: int) -> list[Path]:
    """The folders of the latest `number` checkpoints that Trainer has written to their end, the latest last."""
    if number < 1:
        raise ValueError(f"The number of checkpoints must be at least 1, not {number}.")
    steps = whole_checkpoints(run_folder)
    if len(steps) < number:
        raise ValueError(
            f"{run_folder} has {len(steps)} complete checkpoints (folders checkpoint-STEP), and {number} are wanted. "
            "Trainer keeps as many as its save_total_limit says."
        )
    return [steps[step] for step in sorted(steps)[-number:]]


def whole_checkpoints(run_folder: str | os.PathLike[str]) -> dict[int, Path]:
    """The folders of the checkpoints that Trainer has written to their end, by training step.

    Warns of folders that are left out, with the reason.
    """
    steps = {}
    for folder in sorted(Path(run_folder).glob("checkpoint-*")):
        match = re.fullmatch(r"checkpoint-(\d+)", folder.name)
        if match and is_whole(folder):
            steps[int(match[1])] = folder
            continue
        reason = "its name has no step"
        if match:
            reason = f"it was not written to its end (no {TRAINER_STATE}, or marked as {INCOMPLETE})"
        warn(f"{folder} is left out: {reason}.")
    return steps


def last_whole_checkpoint(run_folder: str | os.PathLike[str]) -> Path | None:
    """The latest checkpoint of a run that was written to its end, or None."""
    steps = whole_checkpoints(run_folder)
    return steps[max(steps)] if steps else None


def step_of(folder: Path) -> int:
    """The training step of a checkpoint, by its folder's name or by what Trainer wrote into it."""
    match = re.fullmatch(r"checkpoint-(\d+)", folder.resolve().name)
    if match:
        return int(match[1])
    try:
        return int(read_json(folder / TRAINER_STATE)["global_step"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"The training step of {folder} is not known: name the folder checkpoint-STEP, or give one with the "
            "trainer_state.json that Trainer writes."
        ) from error
