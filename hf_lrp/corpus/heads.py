"""Shares of attention heads over a corpus: how much relevance goes through each, with intervals over sentences."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from hf_lrp.corpus.journal import Journal
from hf_lrp.corpus.settings import hash_weights
from hf_lrp.data.files import write_atomically
from hf_lrp.data.json_files import json_bytes, read_json, write_json
from hf_lrp.data.locks import one_writer
from hf_lrp.data.tables import csv_table
from hf_lrp.explaining.explainer import Explainer
from hf_lrp.kinds.table import kind_of
from hf_lrp.results.contributions import Contributions
from hf_lrp.results.inside import HEADS, PARTS
from hf_lrp.results.intervals import Estimate, bootstrap_mean

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hf_lrp.inputs.prompts import Prompt

# What goes through blocks without heads, and to the encoder.
BLOCKS = ("encoder.feed_forward.through", "decoder.feed_forward.through", "decoder.sent")

_FILE, _FORMAT, _VERSION = "heads.json", "hf_lrp.heads", 1
_COLUMNS = ("kind", "layer", "head", "share", "low", "high", *PARTS)


@dataclass(frozen=True, eq=False)
class HeadShares:
    """How much of a prediction's relevance goes through each head: means over steps, then over sentences.

    Attributes:
        model: its name.
        sentences: how many.
        heads: by kind (`encoder`; `self` and `cross` of the decoder), an estimate of arrays `[layers, heads]`.
        parts: by kind, `[layers, heads, 3]`: of which through queries, keys and values.
        blocks: by name, an estimate of arrays `[layers]`: what goes through feed-forward blocks, and what
            cross-attention sends to the encoder.
    """

    model: str
    sentences: int
    heads: dict[str, Estimate]
    parts: dict[str, np.ndarray]
    blocks: dict[str, Estimate]

    def ranking(self, kind: str) -> list[tuple[int, int]]:
        """Layers and heads of a kind, counted from 0, the smallest share first."""
        shares = self.heads[kind].value
        order = np.argsort(shares, axis=None, kind="stable")
        return [(int(place) // shares.shape[1], int(place) % shares.shape[1]) for place in order]

    def save(self, folder: str | Path) -> None:
        """Write `heads.json`, and `heads.csv` with a row per head, whose layers and heads count from 1."""
        folder = Path(folder)
        rows = [
            (kind, layer + 1, head + 1, *(end[layer, head] for end in estimate), *self.parts[kind][layer, head])
            for kind, estimate in self.heads.items()
            for layer, head in np.ndindex(estimate.value.shape)
        ]
        write_atomically(folder / "heads.csv", csv_table(_COLUMNS, rows))
        content = {
            "model": self.model,
            "sentences": self.sentences,
            "heads": {kind: _ends(estimate) for kind, estimate in self.heads.items()},
            "parts": {kind: parts.tolist() for kind, parts in self.parts.items()},
            "blocks": {name: _ends(estimate) for name, estimate in self.blocks.items()},
        }
        write_json(folder / _FILE, {"format": _FORMAT, "version": _VERSION, **content})

    @classmethod
    def load(cls, folder: str | Path) -> HeadShares:
        """Read what `save` wrote; raises a ValueError for a file that is damaged or of another version."""
        path = Path(folder) / _FILE
        if not path.is_file():
            raise FileNotFoundError(f"{folder} holds no shares of heads (no {_FILE}): write them with `hf-lrp heads`.")
        try:
            content = read_json(path)
            if (content["format"], content["version"]) != (_FORMAT, _VERSION):
                raise ValueError(f"format {content['format']!r} {content['version']}")
            return cls(
                model=content["model"],
                sentences=content["sentences"],
                heads={kind: _estimate(ends) for kind, ends in content["heads"].items()},
                parts={kind: np.array(parts) for kind, parts in content["parts"].items()},
                blocks={name: _estimate(ends) for name, ends in content["blocks"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path} is damaged or of another version ({error}): write it anew.") from error


def _ends(estimate: Estimate) -> dict[str, Any]:
    return {
        name: None if np.isnan(end).any() else np.asarray(end).tolist() for name, end in estimate._asdict().items()
    }


def _estimate(ends: dict[str, Any]) -> Estimate:
    value = np.array(ends["value"], dtype=np.float64)
    nothing = np.full_like(value, np.nan)  # one sentence has no interval
    return Estimate(value, *(nothing if ends[end] is None else np.array(ends[end]) for end in ("low", "high")))


def measure_heads(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    folder: str | Path,
    *,
    prompt: Any = None,
    progress: bool = False,
) -> HeadShares:
    """Shares of all heads over a corpus, written into a folder; interrupted and called again, it goes on.

    Explained are the most probable tokens, with the targets as prefixes, by the paper's rule.

    Args:
        model, tokenizer: as for `hf_lrp.explain`.
        pairs: sources and targets, as text.
        folder: gets `heads.json` and `heads.csv`; unfinished work stands beside them.
        prompt: for a model without an encoder, as for `hf_lrp.explain`, the same for all pairs.
        progress: show a progress bar.
    """
    if not pairs or not all(text and text.strip() for pair in pairs for text in pair):
        raise ValueError("Shares of heads need at least one pair, and no side of a pair may be empty.")
    read = kind_of(model).corpus_prompt(model, tokenizer, prompt)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with one_writer(folder / "heads.lock", str(folder)):
        journal = Journal(folder / "heads.partial", settings_of(model, pairs, read))
        explainer, done = Explainer(model, tokenizer), len(journal.rows)
        for source, target in tqdm(
            pairs[done:], initial=done, total=len(pairs), desc="Measuring heads", disable=not progress
        ):
            found = explainer.explain(source, target, prompt=read, inside=True)
            journal.append(_row(found))
        name = model.config.name_or_path or type(model).__name__
        shares = _summarise(name, journal.rows)
        shares.save(folder)
        journal.remove()
    return shares


def settings_of(model: PreTrainedModel, pairs: Sequence[tuple[str, str]], prompt: Prompt | None) -> dict[str, Any]:
    """Settings that results over these pairs depend on."""
    data = hashlib.sha256(json_bytes([list(pair) for pair in pairs])).hexdigest()
    return {"weights": hash_weights(model), "data": data} | ({} if prompt is None else {"prompt": prompt.settings})


def _row(contributions: Contributions) -> dict[str, Any]:
    """Means over the steps of one sentence, as plain lists."""
    inside = contributions.inside
    assert inside is not None
    found = {
        name: inside[name].double().mean(0)
        for name in (*(f"{name}.heads" for name in HEADS.values()), *BLOCKS)
        if name in inside
    }
    if "decoder.sent" in found:
        found["decoder.sent"] = found["decoder.sent"].sum(-1)
    return {name: tensor.tolist() for name, tensor in found.items()}


def _summarise(model: str, rows: Sequence[dict[str, Any]]) -> HeadShares:
    def estimate(values: np.ndarray) -> Estimate:
        flat = bootstrap_mean(values.reshape(len(values), -1))
        return Estimate(*(np.asarray(end).reshape(values.shape[1:]) for end in flat))

    found = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    kinds = {kind: found[f"{name}.heads"] for kind, name in HEADS.items() if f"{name}.heads" in found}
    return HeadShares(
        model=model,
        sentences=len(rows),
        heads={kind: estimate(values.sum(-1)) for kind, values in kinds.items()},
        parts={kind: values.mean(0) for kind, values in kinds.items()},
        blocks={name: estimate(found[name]) for name in BLOCKS if name in found},
    )
