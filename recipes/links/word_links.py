"""Measure word links of a model on gold links, as `word_links.md` fixes it.

    python recipes/links/word_links.py --gold zh-en.tsv --model opus-mt-zh-en --out zh-en.json
    python recipes/links/word_links.py --gold de-en.tsv --model de-en --reverse en-de --out de-en.json
    python recipes/links/word_links.py --gold zh-en.tsv --links eflomal.txt --out zh-en-eflomal.json
    python recipes/links/word_links.py --gold zh-en.tsv --model opus-mt-zh-en --contributions --out zh-en-shares.json
    python recipes/links/word_links.py --gold en-fr.tsv --model SmolLM2 --prompt "$PROMPT" --out en-fr.json

A file that is there already is shown, not made again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from hf_lrp.data.files import write_atomically
from hf_lrp.data.json_files import json_bytes
from hf_lrp.explaining.explainer import Explainer
from hf_lrp.links.agreement import Search, heads_by_agreement
from hf_lrp.links.aligner import Aligner
from hf_lrp.links.heads import all_heads
from hf_lrp.links.words import read_word_weights
from hf_lrp.models.loading import load
from hf_lrp.results.alignment import Links, parse_links, read_links

DRAWS, SEED = 10_000, 0
BASELINE_HEADS, BASELINE_THRESHOLD, BASELINE_RATIO, BASELINE_DIAGONAL = 6, 0.275, 0.75, 0.5


class Gold(NamedTuple):
    """Pairs of words with sure and possible links."""

    sources: list[list[str]]
    targets: list[list[str]]
    sure: list[Links]
    possible: list[Links]

    def half(self, first: int) -> Gold:
        """Even (0) or odd (1) lines."""
        return Gold(*(column[first::2] for column in self))


def read_gold(path: Path, turned: bool) -> Gold:
    """A file of gold links; turned: the target's language becomes the source's."""
    gold = Gold([], [], [], [])
    for line in path.read_text(encoding="utf-8").splitlines():
        source, target, written = line.split("\t")
        links = [set(each) for each in parse_links(written)]
        sides = source.split(), target.split()
        if turned:
            sides, links = sides[::-1], [{(t, s) for s, t in each} for each in links]
        for column, value in zip(gold, (*sides, *links), strict=True):
            column.append(value)
    return gold


def counts(found: Sequence[Links], gold: Gold) -> np.ndarray:
    """What error rates are made of, [sentences, 4]: links found, sure ones, hits of sure and of possible ones."""
    rows = zip(found, gold.sure, gold.possible, strict=True)
    return np.array([[len(a), len(s), len(a & s), len(a & (s | p))] for a, s, p in rows], dtype=float)


def error_rate(numbers: np.ndarray) -> np.ndarray:
    """Of sums [..., 4]."""
    found, sure, hits, possible = np.moveaxis(numbers, -1, 0)
    return 1 - (hits + possible) / (found + sure)


def interval(numbers: np.ndarray, other: np.ndarray | None = None) -> dict[str, float]:
    """The error rate of counts [sentences, 4], or its difference from another's, with its 95 % interval."""
    drawn = np.random.default_rng(SEED).integers(len(numbers), size=(DRAWS, len(numbers)))

    def rate(which: np.ndarray) -> tuple[float, np.ndarray]:
        return float(error_rate(which.sum(0))), error_rate(np.stack([which[rows].sum(0) for rows in drawn]))

    value, resampled = rate(numbers)
    if other is not None:
        against = rate(other)
        value, resampled = value - against[0], resampled - against[1]
    low, high = np.percentile(resampled, [2.5, 97.5])
    return {"value": value, "low": float(low), "high": float(high)}


def baseline(aligner: Aligner, choosing: Gold, reporting: Gold) -> list[Links]:
    """The rule that the work started from: six heads by agreement, the geometric mean of shares, one threshold."""
    candidates = all_heads(aligner.reader.blocks)
    texts = [aligner.texts(each.sources, each.targets) for each in (choosing, reporting)]
    known = [pair.weights for _, pair in read_word_weights(aligner.reader, *texts[0], candidates)]
    heads = heads_by_agreement(known, candidates, Search(first=BASELINE_HEADS, rounds=0)).heads
    found = dict(read_word_weights(aligner.reader, *texts[1], heads))
    return [_baseline_links(found[number].weights.sum(0)) for number in range(len(found))]


def _baseline_links(weights: torch.Tensor) -> set[tuple[int, int]]:
    targets, sources = weights.shape
    rows, columns = weights / weights.sum(1, True), weights / weights.sum(0, True).clamp(min=1e-12)
    at = [(torch.arange(n) + 0.5) / n for n in (targets, sources)]
    strengths = (rows * columns).sqrt() * torch.exp(-BASELINE_DIAGONAL * (at[0][:, None] - at[1]).abs())
    best = torch.minimum(strengths / strengths.amax(1, True), strengths / strengths.amax(0, True).clamp(min=1e-12))
    return {(s, t) for t, s in ((strengths > BASELINE_THRESHOLD) & (best >= BASELINE_RATIO)).nonzero().tolist()}


def diagonal(gold: Gold) -> list[Links]:
    """Each target word linked to the source word at its relative position."""
    return [
        {(min(len(s) - 1, round((j + 0.5) / len(t) * len(s) - 0.5)), j) for j in range(len(t))}
        for s, t in zip(gold.sources, gold.targets, strict=True)
    ]


def by_contributions(model: Path, gold: Gold) -> list[Links]:
    """What `Contributions.alignment()` gives."""
    explainer = Explainer(*load(model))
    rows = zip(gold.sources, gold.targets, strict=True)
    return [explainer.explain(" ".join(s), " ".join(t), predict="target").alignment() for s, t in rows]


def measure(args: argparse.Namespace, gold: Gold) -> dict[str, Any]:
    """Error rates of both halves by what chose the heads."""
    choosing, reporting = gold.half(0), gold.half(1)
    aligner = Aligner(
        *load(args.model), reverse=None if args.reverse is None else load(args.reverse), prompt=args.prompt
    )
    known = [
        (s, t, " ".join(f"{i}{'-' if (i, j) in sure else 'p'}{j}" for i, j in sorted(possible)))
        for s, t, sure, possible in zip(*choosing, strict=True)
    ]
    found: dict[str, list[Links]] = {"diagonal": diagonal(reporting)}
    heads, even = {}, {}
    started = time.perf_counter()
    for name in ("without gold links", "with gold links"):
        if name.startswith("without"):
            aligner.find_heads(choosing.sources, choosing.targets)
        else:
            aligner.choose_heads(known)
        heads[name] = [str(each) for each in aligner.all_heads]
        links = [[each.links for each in aligner.align(half.sources, half.targets)] for half in (choosing, reporting)]
        even[name] = interval(counts(links[0], choosing))
        found[name] = links[1]
    if args.reverse is None:
        found["baseline"] = baseline(aligner, choosing, reporting)
    numbers = {name: counts(links, reporting) for name, links in found.items()}
    return {
        "model": str(args.model.name),
        "pairs": [len(choosing.sources), len(reporting.sources)],
        "odd lines": {name: interval(each) for name, each in numbers.items()},
        "even lines": even,
        "difference from the baseline": {
            name: interval(numbers[name], numbers["baseline"]) for name in even if "baseline" in numbers
        },
        "heads": heads,
        "seconds": round(time.perf_counter() - started, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gold", type=Path, required=True, help="source, target and links, with tabs between them")
    parser.add_argument("--turned", action="store_true", help="the model translates the gold file's target")
    parser.add_argument("--model", type=Path, help="a folder")
    parser.add_argument("--reverse", type=Path, help="a model of the other direction")
    parser.add_argument("--prompt", help="with {source}, for a model without an encoder")
    parser.add_argument("--links", type=Path, help="links of another aligner for all lines, instead of a model")
    parser.add_argument("--contributions", action="store_true", help="measure Contributions.alignment() on odd lines")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    args = parser.parse_args()
    if not args.out.exists():
        gold = read_gold(args.gold, args.turned)
        if args.links is not None:
            odd = [set(links) for links in read_links(args.links).sure[1::2]]
            result = {"odd lines": {args.links.stem: interval(counts(odd, gold.half(1)))}}
        elif args.contributions:
            odd = by_contributions(args.model, gold.half(1))
            result = {"odd lines": {"Contributions.alignment()": interval(counts(odd, gold.half(1)))}}
        else:
            result = measure(args, gold)
        write_atomically(args.out, json_bytes(result))
    print(json.dumps(json.loads(args.out.read_text(encoding="utf-8")), indent=1, ensure_ascii=False), file=sys.stdout)


if __name__ == "__main__":
    main()
