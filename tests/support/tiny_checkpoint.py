"""A tiny checkpoint on disk, as the command line loads it."""

import json
import shutil
from pathlib import Path

from tiny_models import tiny_model
from tiny_tokenizer import tiny_tokenizer


def save_checkpoint(folder: Path) -> Path:
    """A MarianMT folder with random weights, 32 positions and a tokenizer of 24 English words."""
    model = tiny_model("marian", max_position_embeddings=32)
    model.generation_config.max_length = 12
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def copy_checkpoint(folder: Path, destination: Path, **config: object) -> Path:
    """A copy that may be damaged; `config` replaces values of its config.json."""
    shutil.copytree(folder, destination)
    path = destination / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return destination


def put_into_cache(folder: Path, cache: Path, name: str) -> Path:
    """Lay a checkpoint out as the Hub's cache does; returns the snapshot."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    shutil.copytree(folder, snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    return snapshot
