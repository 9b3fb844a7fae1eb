"""Fingerprints of tokenizers, which tell them apart, wherever they come from."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from transformers import PreTrainedTokenizerBase


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """The same for tokenizers that encode alike, wherever they come from and whatever they were used for."""
    digest = hashlib.sha256()
    with TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        for path in sorted(Path(folder).iterdir()):
            content = path.read_bytes()
            if path.name == "tokenizer.json":  # how the latest call padded and cut is no part of it
                content = _sorted_json(json.loads(content) | {"padding": None, "truncation": None})
            elif path.name == "tokenizer_config.json":  # nor is where it was read from
                content = _sorted_json({k: v for k, v in json.loads(content).items() if k not in _ORIGIN})
            digest.update(path.name.encode() + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()


_ORIGIN = ("name_or_path", "is_local", "local_files_only", "tokenizer_file", "target_vocab_file")


def _sorted_json(content: dict) -> bytes:
    return json.dumps(content, sort_keys=True).encode()
