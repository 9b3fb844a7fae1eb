"""Word links of a corpus, in a file: made in shards, which several processes share and interruptions leave."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from hf_lrp.corpus.processes import broadcast, plan_shards, share_out, this_process
from hf_lrp.corpus.settings import hash_weights
from hf_lrp.data.files import prepare_destination, write_atomically
from hf_lrp.data.json_files import json_bytes, read_json, write_json
from hf_lrp.data.locks import one_writer
from hf_lrp.links.aligner import Aligner
from hf_lrp.links.alignment import Alignment
from hf_lrp.links.heads import LinkHeads, heads_from_dict, heads_to_dict

SHARD = 256  # pairs: many, so that batches hold sentences of like length


def align_corpus(
    aligner: Aligner,
    pairs: Sequence[tuple[Any, Any]],
    out: str | Path,
    *,
    gold: Sequence[tuple[Any, Any, Any]] | None = None,
    strengths: bool = False,
    progress: bool = False,
) -> LinkHeads:
    """Write a line of links per pair, `0-0 1-2`; interrupted and called again, it goes on.

    Under `accelerate launch`, processes share the pairs.

    Args:
        aligner: the model; heads that it does not know are chosen first.
        pairs: sources and targets, as `hf_lrp.align` takes them.
        out: the file, which is replaced. Unfinished work stands beside it.
        gold: as for `hf_lrp.align`.
        strengths: write how strong each link is, too: `0-0:0.93`.
        progress: show progress bars.

    Returns:
        the heads that were read.
    """
    out = Path(out)
    state, folder = this_process(), out.with_name(f"{out.name}.partial")
    if not state.is_main_process:
        heads, settings = broadcast(None)
        return _compute(aligner, pairs, folder, heads, settings, strengths, False)
    prepare_destination(out)
    with one_writer(out.with_name(f"{out.name}.lock"), str(out)):
        settings = _settings(aligner, pairs, gold, strengths)
        _require_same(folder, settings)
        heads = _choose_heads(aligner, pairs, gold, folder)
        broadcast((heads, settings))
        _compute(aligner, pairs, folder, heads, settings, strengths, progress)
        lines = [line for shard in range(len(_shards(pairs))) for line in read_json(_name(folder, shard))["lines"]]
        write_atomically(out, "".join(f"{line}\n" for line in lines).encode())
        shutil.rmtree(folder)
    return heads_from_dict(heads[0])


def _settings(
    aligner: Aligner, pairs: Sequence[tuple[Any, Any]], gold: Sequence[tuple[Any, Any, Any]] | None, strengths: bool
) -> dict[str, Any]:
    """Settings that unfinished work must have been made with."""
    models = [aligner.reader.model, *([] if aligner.reverse is None else [aligner.reverse.reader.model])]
    rows = json_bytes([[repr(side) for side in pair] for pair in pairs])
    return {
        "models": [hash_weights(model) for model in models],
        "data": hashlib.sha256(rows).hexdigest(),
        "gold": None if gold is None else hashlib.sha256(repr(gold).encode()).hexdigest(),
        "heads": None if aligner.heads is None else heads_to_dict(aligner.heads),
        "prompt": None if aligner.reader.prompt is None else repr(aligner.reader.prompt),
        "strengths": strengths,
    }


def _require_same(folder: Path, settings: dict[str, Any]) -> None:
    kept = folder / "settings.json"
    if not kept.exists():
        folder.mkdir(exist_ok=True)
        write_json(kept, settings)
    elif read_json(kept) != json.loads(json.dumps(settings)):
        raise ValueError(
            f"{folder} holds unfinished work with other texts, models or settings: remove it to start again, or go on "
            "with those it was made with."
        )


def _choose_heads(
    aligner: Aligner, pairs: Sequence[tuple[Any, Any]], gold: Sequence[tuple[Any, Any, Any]] | None, folder: Path
) -> list[dict[str, Any]]:
    """The heads of both directions' models, found once for all processes and for work that goes on."""
    kept = folder / "heads.json"
    if kept.exists():
        found: list[dict[str, Any]] = read_json(kept)["heads"]
        return found
    if gold is not None:
        aligner.choose_heads(gold)
    elif not aligner.knows_heads:
        aligner.find_heads([source for source, _ in pairs], [target for _, target in pairs])
    found = [heads_to_dict(heads) for heads in aligner.all_heads]
    write_json(kept, {"heads": found})
    return found


def _compute(
    aligner: Aligner,
    pairs: Sequence[tuple[Any, Any]],
    folder: Path,
    heads: list[dict[str, Any]],
    settings: dict[str, Any],
    strengths: bool,
    progress: bool,
) -> LinkHeads:
    """This process's share of the shards that are not there yet."""
    state = this_process()
    aligner.all_heads = [heads_from_dict(each) for each in heads]
    shards = _shards(pairs)
    missing = {n: len(rows) for n, rows in enumerate(shards) if not _name(folder, n).exists()}
    state.wait_for_everyone()  # before anyone writes a shard, or processes would share out different ones
    own = sorted(share_out(missing, state.num_processes)[state.process_index])
    done = len(pairs) - sum(missing.values())
    total = done + sum(missing[shard] for shard in own)
    with tqdm(total=total, initial=done, desc="Linking", unit="pair", disable=not progress) as bar:
        for shard in own:
            rows = [pairs[number] for number in shards[shard]]
            found = aligner.align([source for source, _ in rows], [target for _, target in rows])
            write_json(_name(folder, shard), {"lines": [_line(alignment, strengths) for alignment in found]})
            bar.update(len(rows))
    state.wait_for_everyone()
    return aligner.all_heads[0]


def _shards(pairs: Sequence[Any]) -> list[range]:
    return plan_shards(len(pairs), SHARD)


def _name(folder: Path, shard: int) -> Path:
    return folder / f"{shard:05d}.json"


def _line(alignment: Alignment, strengths: bool) -> str:
    if not strengths:
        return str(alignment)
    return " ".join(f"{s}-{t}:{value:.2f}" for (s, t), value in sorted(alignment.strengths.items()))
