"""Sentences of runs to look at: where a run depends least on the source, or where two runs differ most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from hf_lrp.corpus.run_comparison import MeasuredRun, shared_prefixes
from hf_lrp.models.words import group_words, looks_special
from hf_lrp.results.contributions import Contributions
from hf_lrp.results.spans import Span
from hf_lrp.results.used_method import UsedMethod

if TYPE_CHECKING:
    from hf_lrp.corpus.run import Sentence
    from hf_lrp.results.comparison import Comparison

NUMBER = 10  # of examples


class Examples(NamedTuple):
    """What to look at: results or pairs of them, the numbers of their sentences from 1, and how they were chosen."""

    entries: list[Contributions | Comparison]
    numbers: list[int]
    caption: str


def choose_examples(runs: Sequence[MeasuredRun]) -> Examples | None:
    """One run: its sentences with the lowest R(source). Several: those where the last differs most from the first.

    None where the runs share no prefix type.
    """
    prefixes = shared_prefixes(runs)
    if not prefixes:
        return None
    prefix, first, last = prefixes[0], runs[0], runs[-1]
    means = [run.tables[prefix].means["source_total"] for run in (first, last)]
    if len(runs) == 1:
        key, how = means[0], f"where {first.label} depends least on the source"
    else:
        key, how = -np.abs(means[1] - means[0]), f"where R(source) of {last.label} differs most from {first.label}"
    chosen = sorted(np.argsort(key, kind="stable")[: int(np.isfinite(key).sum())][:NUMBER].tolist())
    shown = runs[:1] if len(runs) == 1 else (first, last)
    found = [_read(run, prefix, chosen) for run in shown]
    entries = [_entry([results[number] for results in found]) for number in chosen]
    return Examples(entries, [number + 1 for number in chosen], f"{len(chosen)} sentences {how}, {prefix} prefixes.")


def _read(run: MeasuredRun, prefix: str, numbers: Sequence[int]) -> dict[int, Contributions]:
    """The results of some sentences, by number."""
    wanted = set(numbers)
    found = {}
    for sentence in run.run.sentences(prefix):
        if sentence.sentence in wanted:
            found[sentence.sentence] = as_contributions(sentence, run)
        if len(found) == len(wanted):
            break
    return found


def _entry(results: Sequence[Contributions]) -> Contributions | Comparison:
    """One result, or two side by side; where tokenizers split the source in different ways, the first of them."""
    if len(results) > 1 and results[0].source_tokens == results[1].source_tokens:
        return results[0].compare(results[1])
    return results[0]


def as_contributions(sentence: Sentence, run: MeasuredRun) -> Contributions:
    """A stored sentence as a result, which is called what the run is called; logits are not stored."""
    manifest = run.run.manifest
    tensors: dict[str, Any] = {
        name: torch.from_numpy(np.array(getattr(sentence, name)))
        for name in ("source", "target", "start", "log_probability", "source_ids", "target_ids", "predicted_ids")
    }
    words = {
        side: group_words(tokens, list(map(looks_special, tokens)))
        for side, tokens in (("source", sentence.source_tokens), ("target", sentence.target_tokens))
    }
    return Contributions(
        **tensors,
        logits=torch.full((len(sentence.start),), torch.nan),
        source_tokens=sentence.source_tokens,
        target_tokens=sentence.target_tokens,
        predicted_tokens=sentence.predicted_tokens,
        source_words=words["source"],
        target_words=words["target"],
        conservation_error=sentence.conservation_error,
        start_token="exclude",
        prefix=sentence.prefix,
        predict=manifest["predict"],
        method=UsedMethod("LRP", {"rule": manifest["rule"]}),
        model=run.label,
        dtype="float32",
        spans={name: Span((name,), torch.from_numpy(np.array(s))[:, None]) for name, s in sentence.spans.items()},
    )
