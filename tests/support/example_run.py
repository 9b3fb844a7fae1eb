"""Made-up evaluation runs for tests: random shares, no model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_lrp.corpus.manifest import FORMAT, VERSION, digest_settings, sha256_of
from hf_lrp.corpus.run import Run
from hf_lrp.corpus.shards import Row, Stored, write_shard
from hf_lrp.corpus.summarizing import summarize
from hf_lrp.data.json_files import write_json
from hf_lrp.models.words import group_words, looks_special
from hf_lrp.results.contributions import Contributions
from hf_lrp.results.spans import Span
from hf_lrp.results.used_method import UsedMethod

SHARD = 4  # sentences
SIDES = ("source", "target", "predicted")
METHOD = UsedMethod("LRP", {"rule": "AlphaBeta(alpha=1.0, beta=0.0)"})


def stored(row: Row) -> Stored:
    """A result of these arrays, as an evaluation stores it; logits are made up."""
    names = ("source", "target", "start", "log_probability")
    words = {
        f"{side}_words": group_words(tokens, list(map(looks_special, tokens)))
        for side, tokens in (("source", row.source_tokens), ("target", row.target_tokens))
    }
    c = Contributions(
        **{name: torch.from_numpy(np.array(getattr(row, name))) for name in names},
        **{f"{side}_ids": torch.tensor(getattr(row, f"{side}_ids")).long() for side in SIDES},
        **{name: getattr(row, name) for name in ("source_tokens", "target_tokens", "predicted_tokens", "prefix")},
        **words,
        logits=torch.arange(len(row.start), dtype=torch.float32),
        conservation_error=row.conservation_error,
        start_token="exclude",
        predict="top1",
        method=METHOD,
        model="m",
        dtype="float32",
        notes=("made up",),
        start_tokens=("<s>",),
        spans={name: Span((name,), torch.from_numpy(np.array(s))[:, None]) for name, s in row.spans.items()},
    )
    return Stored(row.sentence, row.pair, c)


def make_sentence(
    number: int = 0, prefix: str = "reference", *, lengths: tuple[int, int] = (4, 5), seed: int = 0
) -> Row:
    """Random shares of a sentence that sum to 1 at each step; another sentence, prefix or seed, other shares."""
    positions, steps = lengths
    draw = np.random.default_rng([seed, number, *prefix.encode()])
    shares = draw.random((steps, positions + steps))
    shares[:, positions:] = np.tril(shares[:, positions:], -1)
    shares /= shares.sum(1, keepdims=True)
    source_ids, target_ids = (draw.integers(2, 100, length, dtype=np.int32) for length in lengths)
    correct = draw.random(steps) < 0.6
    predicted_ids = np.where(correct, target_ids, target_ids + 1).astype(np.int32)
    return Row(
        sentence=number,
        pair=10 * number,
        prefix=prefix,
        source=shares[:, :positions].astype(np.float32),
        target=shares[:, positions:].astype(np.float32),
        start=(0.2 * draw.random(steps)).astype(np.float32),
        log_probability=np.log(draw.random(steps)).astype(np.float32),
        source_ids=source_ids,
        target_ids=target_ids,
        predicted_ids=predicted_ids,
        source_tokens=tuple(f"▁x{i}" for i in source_ids),
        target_tokens=tuple(f"▁y{i}" for i in target_ids),
        predicted_tokens=tuple(f"▁y{i}" for i in predicted_ids),
        conservation_error=float(draw.random() * 1e-6),
    )


def write_run(
    folder: Path,
    *,
    model: str = "m",
    number: int = 6,
    lengths: tuple[int, int] | None = (4, 5),
    prefixes: Sequence[str] = ("reference", "model", "random"),
    seed: int = 0,
    label: str | None = None,
    **manifest_changes: Any,
) -> Run:
    """Write a run that `Run.open` reads; `lengths=None`: mixed ones; `manifest_changes` replaces top-level entries."""
    draw = np.random.default_rng(seed)
    of_sentence = [lengths or tuple(draw.integers(2, 9, 2).tolist()) for _ in range(number)]
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "label": label,
        "model": model,
        "weights": "0" * 64,
        "tokenizer": {"class": "MadeUpTokenizer", "sha256": "0" * 64},
        "method": METHOD.to_plain(),
        "predict": "top1",
        "prefixes": list(prefixes),
        "seed": seed,
        "generate": {},
        "selection": {"number": number, "lengths": None if lengths is None else list(lengths), "seed": seed},
        "versions": {"hf_lrp": "0"},
    }
    shards = [
        [make_sentence(n, prefix, lengths=of_sentence[n], seed=seed) for prefix in prefixes for n in numbers]
        for numbers in (range(first, min(first + SHARD, number)) for first in range(0, number, SHARD))
    ]
    return write_shards(folder, manifest, shards, **manifest_changes)


def write_shards(
    folder: Path, manifest: dict[str, Any], contents: Sequence[Sequence[Row]], **manifest_changes: Any
) -> Run:
    """Write all files of a run with the sentences of each shard, and open it."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = manifest | manifest_changes
    chosen = {name: value for name, value in manifest["selection"].items() if name != "seed"}
    write_json(folder / "selection.json", chosen)
    manifest["selection"] = manifest["selection"] | {"sha256": sha256_of(folder / "selection.json")}
    settings = digest_settings(manifest)
    entries = [
        write_shard(folder, number, list(map(stored, sentences)), settings)
        for number, sentences in enumerate(contents)
    ]
    run = Run(folder, manifest | {"shards": entries})
    write_json(folder / "metrics.json", {prefix: summarize(run.rows(prefix)) for prefix in run.prefixes})
    metrics = {"sha256": sha256_of(folder / "metrics.json")}
    manifest = {"metrics": metrics, "shards": entries} | manifest  # unless the changes say otherwise
    write_json(folder / "manifest.json", manifest)
    return Run.open(folder)
