"""Settings that results depend on: as the manifest tells it, and compared with a run that is continued."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_lrp.corpus.manifest import FORMAT, FREE, VERSION
from hf_lrp.corpus.selection import Request
from hf_lrp.inputs.prompts import Prompt
from hf_lrp.methods.method import Method
from hf_lrp.models.configs import generation_config_of
from hf_lrp.models.fingerprints import tokenizer_fingerprint
from hf_lrp.results.used_method import UsedMethod
from hf_lrp.version import __version__

# Where a checkpoint comes from and what wrote it is no part of it.
_ORIGIN = ("_name_or_path", "name_or_path", "transformers_version", "dtype", "torch_dtype")
_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pyarrow")


def describe_settings(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    label: str | None,
    method: Method,
    prefixes: Sequence[str],
    request: Request,
    generate_options: dict[str, Any],
    prompt: Prompt | None = None,
) -> dict[str, Any]:
    """The manifest's entries, except for what is known of the pairs and of the shards only later."""
    generates = "model" in prefixes
    settings = {
        "format": FORMAT,
        "version": VERSION,
        "label": label,
        "model": model.config.name_or_path or type(model).__name__,
        "weights": hash_weights(model),
        "config": _digest(_without_origin(model.config.to_dict())),
        "tokenizer": {"class": type(tokenizer).__name__, "sha256": tokenizer_fingerprint(tokenizer)},
        "method": UsedMethod.of(method).to_plain(),
        "predict": "top1",
        "prefixes": list(prefixes),
        "seed": request.seed,
        "generation": _without_origin(generation_config_of(model).to_diff_dict()) if generates else {},
        "generate": generate_options,
        "selection": {"request": {name: value for name, value in vars(request).items() if name != "seed"}},
        "versions": _versions(),
    } | ({} if prompt is None else {"prompt": prompt.settings})
    return json.loads(json.dumps(settings, default=_plain))


def hash_weights(model: PreTrainedModel) -> str:
    """SHA-256 of all weights and buffers: their names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def find_differences(old: dict[str, Any], new: dict[str, Any], *, versions: bool) -> list[str]:
    """In words, what differs between two manifests, as far as both have it; ``versions``: of packages as well."""
    free = [name for name in FREE if name != "versions" or not versions]
    before, now = (dict(_flatten({k: v for k, v in each.items() if k not in free})) for each in (old, new))
    return [_word(name, before.get(name), now[name]) for name in now if name in before and before[name] != now[name]]


def _word(name: str, before: Any, now: Any) -> str:
    if name in ("weights", "config", "prompt") or name.endswith("sha256"):
        return f"{name} is another"
    return f"{name} was {json.dumps(before, ensure_ascii=False)} and is {json.dumps(now, ensure_ascii=False)}"


def _flatten(entries: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in entries.items():
        if isinstance(value, dict) and name not in ("generate", "generation", "prompt"):
            yield from _flatten(value, f"{above}{name}.")
        else:
            yield above + name, value


def _versions() -> dict[str, str]:
    return {"hf_lrp": __version__, "python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def _without_origin(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in _ORIGIN}


def _plain(value: Any) -> Any:
    """Plain values of what JSON does not know: a config as its entries, other objects by their type."""
    if hasattr(value, "to_diff_dict"):
        return value.to_diff_dict()
    return value.tolist() if hasattr(value, "tolist") else type(value).__name__


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=_plain).encode()).hexdigest()
