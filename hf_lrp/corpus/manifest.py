"""The manifest of a run: its settings, and what every other file of the folder is checked against.

The chain of checksums: ``manifest.json`` has the SHA-256 of ``selection.json``, of ``metrics.json`` and of each shard.
A shard's sidecar repeats the shard's entry and adds a digest of the manifest's settings, so that settings which were
changed after the shards were computed are noticed too.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from hf_lrp.data.json_files import read_json
from hf_lrp.results.prefix_types import PREFIXES

FORMAT = "hf_lrp.corpus"
VERSION = 3
# Entries that may differ between the starts of one run.
FREE = ("label", "model", "shards", "metrics", "versions")

AGAIN = "start the same `hf-lrp analyze` again, which writes it anew"


class RunError(ValueError):
    """A run's folder cannot be used; the message says why and what to do."""


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder, or None if it has none; raises RunError for what is no manifest of this version."""
    path = folder / "manifest.json"
    if not path.is_file():
        return None
    try:
        manifest = read_json(path)
        kind, version = manifest["format"], manifest["version"]
        if kind == FORMAT and version == VERSION:
            _check_entries(manifest)
            return manifest
        older = kind == FORMAT and version < VERSION
    except (ValueError, TypeError, KeyError) as error:
        reason = f"it has no entry {error}" if isinstance(error, KeyError) else str(error)
        raise RunError(
            f"{path} is damaged or not of an evaluation ({reason}): remove it and start the same `hf-lrp analyze` "
            "again, or choose another folder."
        ) from error
    remedy = "evaluate again with `hf-lrp analyze`" if older else "install a newer hf_lrp"
    raise RunError(
        f"{path} has format {kind!r} {version}, this hf_lrp reads {FORMAT!r} {VERSION}: {remedy}, or choose another "
        "folder."
    )


def _check_entries(manifest: dict[str, Any]) -> None:
    """Raise a ValueError, TypeError or KeyError where an entry that readers rely on is missing or odd."""
    missing = [name for name in ("weights", "predict", "seed", "generate", "versions") if name not in manifest]
    if missing:
        raise KeyError(missing[0])
    prefixes, selection = manifest["prefixes"], manifest["selection"]
    if not prefixes or not set(prefixes) <= set(PREFIXES) or len(set(prefixes)) < len(prefixes):
        raise ValueError(f"its prefixes are {prefixes!r}")
    number, lengths = selection["number"], selection["lengths"]
    if not _is_count(number) or not (lengths is None or (len(lengths) == 2 and all(map(_is_count, lengths)))):
        raise ValueError(f"its selection has number {number!r} and lengths {lengths!r}")
    texts = [selection["sha256"], manifest["tokenizer"]["sha256"], manifest["model"], manifest["method"]["name"]]
    if not all(isinstance(text, str) for text in texts) or not isinstance(manifest["label"], str | None):
        raise ValueError("a name or checksum is not text")
    shards, metrics = manifest["shards"], manifest.get("metrics")
    if not (metrics is None or isinstance(metrics["sha256"], str)):
        raise ValueError("the checksum of its metrics is not text")
    if shards is None:
        return
    rows = [entry["rows"] for entry in shards]
    if [entry["file"] for entry in shards] != [shard_name(place) for place in range(len(shards))]:
        raise ValueError("its shards are not in order")
    if not all(map(_is_count, rows)) or sum(rows) != number * len(prefixes):
        raise ValueError(f"its shards have {sum(rows)} rows, not {number} for each of {len(prefixes)} prefix types")
    if not all(isinstance(entry["sha256"], str) for entry in shards):
        raise ValueError("a checksum is not text")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def check_files(folder: Path, manifest: dict[str, Any]) -> None:
    """Compare every file of a finished run with its checksum.

    Raises:
        RunError: one is missing, damaged or of another run; the message says whether starting again helps.
    """
    for name, expected in (
        ("selection.json", manifest["selection"]["sha256"]),
        ("metrics.json", (manifest.get("metrics") or {}).get("sha256")),
    ):
        _require(folder / name, expected)
    settings = digest_settings(manifest)
    for entry in manifest["shards"]:
        path = folder / "shards" / entry["file"]
        _require(path, entry["sha256"])
        try:
            beside = read_json(path.with_suffix(".json"))
        except (OSError, ValueError) as error:
            raise RunError(f"{path.with_suffix('.json')} is missing or damaged: {AGAIN}.") from error
        if beside == entry | {"settings": settings}:
            continue
        if isinstance(beside, dict) and beside | {"settings": settings} == entry | {"settings": settings}:
            raise RunError(
                f"{folder / 'manifest.json'} was changed after the results were computed: remove it and start the "
                "same `hf-lrp analyze` again, which writes it anew."
            )
        raise RunError(f"{path.with_suffix('.json')} does not belong to {path.name}: {AGAIN}.")


def _require(path: Path, expected: str | None) -> None:
    if not path.is_file() or sha256_of(path) != expected:
        what = "damaged" if path.is_file() else "missing"
        raise RunError(f"{path} is {what}: {AGAIN}.")


def digest_settings(manifest: dict[str, Any]) -> str:
    """One hash of everything in a manifest that results depend on."""
    content = {name: value for name, value in manifest.items() if name not in FREE}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def shard_name(number: int) -> str:
    """The file of a shard, within the folder ``shards``."""
    return f"{number:05d}.parquet"


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()
