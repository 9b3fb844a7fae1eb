"""Evaluate a model on a corpus: contributions for every pair of an evaluation set, written shard by shard."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_lrp.corpus.manifest import RunError, digest_settings, read_manifest, sha256_of, shard_name
from hf_lrp.corpus.processes import (
    LOOK,
    SHARDS,
    Progress,
    broadcast,
    estimate_cost,
    plan_shards,
    share_out,
    this_process,
)
from hf_lrp.corpus.run import Run
from hf_lrp.corpus.selection import Lengths, Pair, Request, Selection, describe_corpus, select_pairs
from hf_lrp.corpus.settings import describe_settings, find_differences
from hf_lrp.corpus.shards import Stored, find_shard, write_shard
from hf_lrp.corpus.summarizing import summarize
from hf_lrp.corpus.tokenizer_check import warn_of_other_splits
from hf_lrp.data.files import remove_leftovers, write_atomically
from hf_lrp.data.json_files import write_json
from hf_lrp.data.locks import one_writer
from hf_lrp.explaining.explainer import Explainer
from hf_lrp.inputs.options import read_method
from hf_lrp.inputs.prefixes import DecoderPrompts, Prefix, shuffle_targets
from hf_lrp.inputs.prompts import Prompt
from hf_lrp.kinds.kind import Asked, Kind
from hf_lrp.kinds.table import kind_of
from hf_lrp.methods.method import Method
from hf_lrp.models.vocabulary import Vocabulary
from hf_lrp.relevance.rules import Rule
from hf_lrp.results.prefix_types import PREFIXES
from hf_lrp.results.used_method import UsedMethod

# Not a share of what is free: the results' last digits depend on how many steps go together.
MEMORY = "2GB"


def evaluate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Any,
    folder: str | Path,
    *,
    prompt: Any = None,
    prefixes: Sequence[str] = PREFIXES,
    lengths: Lengths = "auto",
    number: int = 1000,
    longest: int | None = None,
    seed: int = 0,
    method: Method | None = None,
    rule: Rule | None = None,
    label: str | None = None,
    max_memory: int | str | None = None,
    progress: bool = True,
    **generate_options: Any,
) -> Run:
    """Contributions of source and prefix to the predictions for many pairs, stored in a folder.

    Interrupted at any moment and called again with the same arguments, it continues. Started by ``accelerate launch``,
    processes share the work; all need access to the folder. The number of processes changes no result.

    Args:
        model, tokenizer, method, rule, max_memory: as for `hf_lrp.explain`; ``max_memory`` is 2 GB by default. Only
            methods whose shares sum to 1, such as ``ALTI()``: what is measured are shares of a whole.
        pairs: a dataset with text columns ``source`` and ``target``, such as ``load_pairs`` gives, or a sequence of
            (source, target) texts. In processes other than the main one it is not read.
        folder: new, or of the same evaluation.
        prompt: for a model without an encoder, as for :func:`hf_lrp.explain`, the same for all pairs.
        prefixes: what the model is conditioned on, one or more: ``"reference"``, the target; ``"model"``, what it
            generates; ``"random"``, the target of another pair of the evaluation set.
        lengths: (S, T): pairs with S source and T target tokens, the end of the sentence included; ``"auto"``: the
            most frequent such lengths, or mixed ones where fewer than 100 pairs have them; None: mixed lengths.
        number: how many pairs at most.
        longest: pairs with more tokens on a side are left out, as are those for which the model has no positions.
        seed: chooses pairs and random prefixes.
        label: what figures call this run; default: the folder's name.
        progress: show a progress bar, in the main process.
        **generate_options: passed to ``model.generate``, for ``"model"``.

    Raises:
        RunError: no pair fits, or the folder holds an evaluation with other settings.
        Occupied: another process writes into the folder.
    """
    folder = Path(folder)
    method = _require_whole(read_method(method, rule))
    task = _read_task(model, tokenizer, prompt, prefixes, method, seed, max_memory, generate_options)
    request = Request(lengths, number, seed, task.longest(longest))
    state = this_process()
    plan: tuple[str, list[int]] | None = None
    with ExitStack() as stack:
        if state.is_main_process:
            pairs = list(pairs) if isinstance(pairs, Iterator) else pairs
            settings = describe_settings(
                model, tokenizer, label, method, prefixes, request, generate_options, task.prompt
            )
            plan = _find_finished(folder, settings, pairs)
            if plan is None:
                stack.enter_context(_only_writer(folder))
                plan = _open_folder(folder, settings, lambda: _select(pairs, task, request), pairs)
        digest, missing = broadcast(plan)
        selection = Selection.load(folder / "selection.json")
        _compute_shards(folder, task, selection, digest, missing, progress)
        if state.is_main_process:
            _finish(folder, task, len(plan_shards(len(selection.pairs))), digest)
        else:
            _wait_for_end(folder, digest)
    return Run.open(folder)


def _require_whole(method: Method) -> Method:
    """The method; raises for one whose values are no parts of a whole."""
    if not method.sums_to_one:
        raise ValueError(
            f"Evaluations measure shares that sum to 1, and values of {method} have signs and no such sum: use LRP(), "
            "ALTI() or another method whose shares sum to 1, or explain sentences one by one."
        )
    return method


def _select(pairs: Any, task: _Task, request: Request) -> Selection:
    """The evaluation set; raises for one whose targets cannot be read, before anything is written."""
    selection = select_pairs(pairs, task.count_tokens, request)
    _read_targets(task, selection.pairs)
    return selection


# ---- the folder


def require_settings(folder: str | Path, *, request: dict[str, Any], method: Method, **settings: Any) -> None:
    """Raise a RunError if a folder holds results of other settings, as far as these are known without a model."""
    used = UsedMethod.of(_require_whole(method)).to_plain()
    known = json.loads(json.dumps({**settings, "method": used, "selection": {"request": request}}))
    _read_binding_manifest(Path(folder), known)


def _only_writer(folder: Path) -> AbstractContextManager[None]:
    """A lock beside the folder, which need not be there yet."""
    real = Path(os.path.realpath(folder))
    real.parent.mkdir(parents=True, exist_ok=True)
    return one_writer(real.with_name(f".{real.name[:80]}.lock"), f"the evaluation in {folder}")


def _find_finished(folder: Path, settings: dict[str, Any], pairs: Any) -> tuple[str, list[int]] | None:
    """The plan for a folder that holds the finished evaluation already, whole and so named: nothing is written."""
    old = read_manifest(folder)
    if old is None or old["shards"] is None or settings["label"] not in (None, old["label"]):
        return None
    try:
        Run.open(folder)
    except RunError:
        return None
    _require_same(folder, old, settings | {"selection": _known_selection(old, settings, pairs)})
    return digest_settings(old), []


def _known_selection(old: dict[str, Any], settings: dict[str, Any], pairs: Any) -> dict[str, Any]:
    return old["selection"] | settings["selection"] | {"corpus": describe_corpus(pairs)}


def _open_folder(
    folder: Path, manifest: dict[str, Any], select: Callable[[], Selection], pairs: Any
) -> tuple[str, list[int]]:
    """Write or check manifest and selection; return the digest of the settings and which shards are to be computed."""
    old = _read_binding_manifest(folder, manifest)
    path = folder / "selection.json"
    if old is not None and path.is_file() and sha256_of(path) == old["selection"]["sha256"]:
        manifest["selection"] = _known_selection(old, manifest, pairs)
        _require_same(folder, old, manifest)
    else:
        selection = select()
        content = selection.encode()
        manifest["selection"] |= {
            "number": len(selection.pairs),
            "lengths": None if selection.lengths is None else list(selection.lengths),
            "corpus": selection.corpus,
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        _require_same(folder, old, manifest)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    (folder / "shards").mkdir(exist_ok=True)
    written = manifest if old is None else old | {"label": manifest["label"] or old["label"]}
    digest = digest_settings(written)
    shards = range(len(plan_shards(written["selection"]["number"])))
    missing = [shard for shard in shards if find_shard(folder, shard, digest) is None]
    if missing:
        _require_same(folder, old, manifest, versions=True)
    _clean(folder, missing)
    write_json(folder / "manifest.json", written | {"shards": None})
    return digest, missing


def _read_binding_manifest(folder: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """The manifest of what is continued; one of other settings is forgotten where nothing was computed with it."""
    old = read_manifest(folder)
    if old is not None and find_differences(old, settings, versions=False):
        if not any((folder / "shards").glob("*.json")):
            return None
        _require_same(folder, old, settings)
    return old


def _clean(folder: Path, missing: Sequence[int]) -> None:
    """Remove what processes that were killed have left, and sidecars of shards that are to be computed."""
    for name in ("manifest.json", "selection.json", "metrics.json"):
        remove_leftovers(folder, name)
    for leftover in (folder / "shards").glob(".[0-9]*"):
        leftover.unlink()
    for shard in missing:  # from now on a sidecar means that the shard is finished
        (folder / "shards" / shard_name(shard)).with_suffix(".json").unlink(missing_ok=True)


def _require_same(folder: Path, old: dict[str, Any] | None, new: dict[str, Any], versions: bool = False) -> None:
    differences = [] if old is None else find_differences(old, new, versions=versions)
    if differences:
        raise RunError(
            f"{folder} holds an evaluation with other settings: {'; '.join(differences)}. Evaluate into another "
            "folder, or with the settings in its manifest.json."
        )


def _require_own(folder: Path, digest: str) -> dict[str, Any]:
    """The manifest, if it is still that of this evaluation: nothing is written among the results of another one."""
    manifest = read_manifest(folder)
    if manifest is None or digest_settings(manifest) != digest:
        raise RunError(
            f"{folder / 'manifest.json'} was replaced or removed while this evaluation ran: nothing more is written. "
            "Evaluate into a folder of its own."
        )
    return manifest


def _finish(folder: Path, task: _Task, shards: int, digest: str) -> None:
    """Write the overall figures, then the manifest with the checksums of all files."""
    manifest = _require_own(folder, digest)
    if manifest["shards"] is not None:  # it was finished before
        return
    found = [find_shard(folder, shard, digest) for shard in range(shards)]
    if None in found:
        name = shard_name(found.index(None))
        raise RunError(f"{folder / 'shards' / name} was damaged after it was written: check the disk, start again.")
    run = Run(folder, manifest | {"shards": found})
    metrics = {prefix: summarize(run.rows(prefix)) for prefix in run.prefixes}
    if "model" in metrics:
        written = [row.target_ids.tolist() for row in run.rows("model")]
        metrics["model"]["kept"] = sum(map(task.keeps, written)) / len(written)
        warn_of_other_splits(metrics["model"]["kept"])
    write_json(folder / "metrics.json", metrics)
    checksums = {"metrics": {"sha256": sha256_of(folder / "metrics.json")}, "shards": found}
    write_json(folder / "manifest.json", _require_own(folder, digest) | checksums)


def _wait_for_end(folder: Path, digest: str) -> None:
    """Wait until the main process has finished.

    Not at a barrier: a process that is first to leave one and ends may break it for the other.
    """
    while _require_own(folder, digest)["shards"] is None:
        time.sleep(LOOK)


# ---- shards


class _Task(NamedTuple):
    """The task: what is computed for each sentence."""

    explainer: Explainer
    kind: Kind
    vocabulary: Vocabulary
    prompt: Prompt | None
    prefixes: tuple[str, ...]
    method: Method
    seed: int
    max_memory: int | str
    generate_options: dict[str, Any]

    @property
    def model(self) -> PreTrainedModel:
        return self.explainer.model

    def longest(self, given: int | None) -> int | None:
        """The most tokens that a side may have."""
        prompts = DecoderPrompts(self.model, self.vocabulary, self.generate_options)
        limit, forced = self.vocabulary.limit, len(prompts.forced)
        return min((n for n in (given, limit and limit - forced) if n is not None), default=None)

    def count_tokens(self, sources: Sequence[str], targets: Sequence[str]) -> Iterator[tuple[int, int]]:
        """The numbers of source and target tokens that `explain` shows for texts."""
        return self.kind.count_tokens(self._asked(sources), targets)

    def read_targets(self, pairs: Sequence[Pair]) -> list[Prefix]:
        """The pairs' targets as prefixes."""
        reading = self.kind.read(self._asked([pair.source for pair in pairs]))
        return reading.read_targets([pair.target for pair in pairs])[0]

    def keeps(self, ids: list[int]) -> bool:
        """Whether the tokenizer splits what the model wrote as it wrote it."""
        return self.kind.keeps(self.vocabulary, self.prompt, ids)

    def _asked(self, sources: Sequence[str]) -> Asked:
        return Asked(self.model, self.vocabulary, list(sources), self.prompt, None, self.generate_options)


def _read_task(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: Any,
    prefixes: Sequence[str],
    method: Method,
    seed: int,
    max_memory: int | str | None,
    generate_options: dict[str, Any],
) -> _Task:
    if isinstance(prefixes, str) or not prefixes or not set(prefixes) <= set(PREFIXES):
        raise ValueError(f"prefixes must be one or more of {', '.join(PREFIXES)}, got {prefixes!r}.")
    if len(set(prefixes)) < len(prefixes):
        raise ValueError(f"prefixes lists one twice: {', '.join(prefixes)}.")
    explainer, kind = Explainer(model, tokenizer), kind_of(model)
    read, memory = kind.corpus_prompt(model, tokenizer, prompt), max_memory or MEMORY
    vocabulary = Vocabulary(model, tokenizer)
    return _Task(explainer, kind, vocabulary, read, tuple(prefixes), method, seed, memory, generate_options)


def _compute_shards(
    folder: Path, task: _Task, selection: Selection, digest: str, missing: Sequence[int], progress: bool
) -> None:
    """Compute this process's part of the missing shards; the main process waits until all are there."""
    state = this_process()
    shards = plan_shards(len(selection.pairs))
    costs = {shard: estimate_cost([selection.pairs[n] for n in shards[shard]]) for shard in missing}
    shares = share_out(costs, state.num_processes)
    others = {
        shard: len(shards[shard])
        for process, share in enumerate(shares)
        for shard in share
        if process != state.process_index and state.is_main_process
    }
    done = len(selection.pairs) - sum(len(shards[shard]) for shard in missing)
    targets = _read_targets(task, selection.pairs) if missing else {}
    visible = progress and state.is_main_process and bool(missing)
    with Progress(folder, done, len(selection.pairs), others, visible) as bar:
        for shard in shares[state.process_index]:
            found = []
            for results in _explain_shard(task, selection.pairs, targets, shards[shard], shard):
                found.append(results)
                bar.add()
            by_prefix = [sentence for prefix in task.prefixes for sentence in (row[prefix] for row in found)]
            _require_own(folder, digest)
            write_shard(folder, shard, by_prefix, digest)
        bar.wait_for_others()


def _read_targets(task: _Task, pairs: Sequence[Pair]) -> dict[str, list[Any] | None]:
    """By prefix type the target ids of all sentences; None for what the model generates."""
    targets: dict[str, list[Any] | None] = dict.fromkeys(task.prefixes)
    given = set(task.prefixes) - {"model"}
    if given:
        references = task.read_targets(pairs)
        for prefix in given:
            chosen = references if prefix == "reference" else _shuffle(references, task.seed)
            targets[prefix] = [target.ids for target in chosen]
    return targets


def _shuffle(references: Sequence[Prefix], seed: int) -> list[Prefix]:
    try:
        return shuffle_targets(references, seed)
    except ValueError as error:
        raise RunError(
            "Random prefixes are targets of other sentences of the evaluation set, which needs at least two with "
            "different targets: evaluate more pairs, or without random prefixes."
        ) from error


def _explain_shard(
    task: _Task, pairs: Sequence[Pair], targets: dict[str, list[Any] | None], numbers: range, shard: int
) -> Iterator[dict[str, Stored]]:
    """The results of a shard's sentences by prefix type. They depend on nothing that was computed before."""
    chosen = {prefix: given and [given[n] for n in numbers] for prefix, given in targets.items()}
    devices = [task.model.device] if task.model.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(task.seed * SHARDS + shard)  # for generate options that sample
        explained = task.explainer.explain_prefixes(
            [pairs[n].source for n in numbers],
            chosen,
            prompt=task.prompt,
            method=task.method,
            max_memory=task.max_memory,
            **task.generate_options,
        )
        for number, results in zip(numbers, explained, strict=True):
            yield {prefix: Stored(number, pairs[number].number, c) for prefix, c in results.items()}
