"""Choose how links are read, on the even lines of gold sets alone, as `word_links.md` fixes it.

    python recipes/links/choose_links.py --out choice.json --set zh-en zh-en.tsv opus-mt-zh-en \
        --set en-fr en-fr.tsv embedded --set de-en de-en.tsv europarl-links-de-en \
        --turned de-en de-en.tsv europarl-links-en-de

Heads are found without gold links. Tried: how they are found, crossed with two means of the shares and four strengths
of the diagonal; other ways to add heads up and to make shares; and, for each of these, all thresholds. Models of one
name share its weight. With gold links: how links are read by what these teach, and by thresholds alone, in five parts,
each read by what the other four teach.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm
from word_links import DRAWS, SEED, Gold, error_rate, read_gold

from hf_lrp.data.files import write_atomically
from hf_lrp.data.json_files import json_bytes
from hf_lrp.links.agreement import Search, choose_by_gold, heads_by_agreement
from hf_lrp.links.aligner import Aligner
from hf_lrp.links.extraction import DEFAULT, DIAGONAL, Extraction, linked
from hf_lrp.links.heads import LinkHeads, all_heads
from hf_lrp.links.words import read_word_weights
from hf_lrp.models.loading import load

SEARCHES = {
    **{f"{n} heads by agreement": Search(first=n, rounds=0) for n in (2, 4, 6, 8)},
    **{f"{n} heads, rated once": Search(heads=n, rounds=1) for n in (8, 12)},
    **{f"{n} heads, rated twice": Search(heads=n) for n in (8, 12, 16)},
    **{f"12 heads, rated twice, power {p}": Search(power=p) for p in (2.0, 8.0)},
}
PARTS = 5  # for cross-validation
USUAL = "12 heads, rated twice"
DIAGONALS = (0.0, 0.25, 0.5, 1.0)
THRESHOLDS = tuple(
    (mutual, other, ratio)
    for mutual, other, ratio in product(
        (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35), (0.25, 0.275, 0.3, 0.35, 0.4, 0.45), (0.6, 0.7, 0.75, 0.8, 0.9)
    )
    if mutual <= other
)


class Candidates(NamedTuple):
    """The even lines of a gold set: weights [candidates, target words, source words], and its links so shaped."""

    name: str
    heads: tuple[Any, ...]
    weights: list[Tensor]
    sure: list[np.ndarray]
    possible: list[np.ndarray]


def read_candidates(name: str, gold: Gold, model: str) -> Candidates:
    """The weights of all heads and steps of a model."""
    aligner = Aligner(*(load() if model == "embedded" else load(model)))
    heads = all_heads(aligner.reader.blocks)
    texts = aligner.texts(gold.sources, gold.targets)
    found = dict(read_word_weights(aligner.reader, *texts, heads))
    weights = [found[number].weights for number in range(len(found))]
    masks: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    for number, each in enumerate(weights):
        sure, possible = (np.zeros(each.shape[1:], dtype=bool) for _ in masks)
        for mask, links in ((sure, gold.sure[number]), (possible, gold.sure[number] | gold.possible[number])):
            for source, target in links:
                mask[target, source] = True
        masks[0].append(sure)
        masks[1].append(possible)
    return Candidates(name, heads, weights, *masks)


# ---- ways to add heads up, and to make strengths of weights


def averaged(heads: LinkHeads, weights: Tensor) -> Tensor:
    """Shares of each head of its source words, averaged."""
    return heads.combine(weights / weights.sum(-2, True).clamp(min=1e-12))


def squared(heads: LinkHeads, weights: Tensor) -> Tensor:
    """Squared weights."""
    return heads.combine(weights**2)


def largest(heads: LinkHeads, weights: Tensor) -> Tensor:
    """The largest of the heads' weights."""
    return (weights * torch.tensor(heads.weights)[:, None, None]).amax(0)


def shares(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Of target words and of source words."""
    return weights / weights.sum(1, True).clamp(min=1e-12), weights / weights.sum(0, True).clamp(min=1e-12)


def arithmetic(weights: Tensor) -> Tensor:
    """The mean of both shares."""
    return sum(shares(weights)) / 2


def geometric(weights: Tensor) -> Tensor:
    """The root of both shares' product."""
    rows, columns = shares(weights)
    return (rows * columns).sqrt()


def in_turns(weights: Tensor) -> Tensor:
    """Rows and columns normalised in turns."""
    for _ in range(10):
        weights = shares(shares(weights)[0])[1]
    return arithmetic(weights)


def relative(weights: Tensor) -> Tensor:
    """The mean of both shares over the sentence's mean of the best ones, times what that is elsewhere."""
    found = arithmetic(weights)
    return 0.65 * found / found.amax(1).mean().clamp(min=1e-12)


Setting = tuple[str, Callable[[LinkHeads, Tensor], Tensor], Callable[[Tensor], Tensor], float]


def settings() -> Iterator[Setting]:
    """What is tried: the name of a search, how heads are added, how strengths are made, the diagonal."""
    for search, strengths, diagonal in product(SEARCHES, (arithmetic, geometric), DIAGONALS):
        yield search, LinkHeads.combine, strengths, diagonal
    for combine, strengths in product((averaged, squared, largest), (arithmetic, geometric)):
        yield USUAL, combine, strengths, DIAGONAL
    for strengths in (in_turns, relative):
        yield USUAL, LinkHeads.combine, strengths, DIAGONAL


def name_of(setting: Setting) -> str:
    """A setting in words."""
    search, combine, strengths, diagonal = setting
    told = (combine.__name__, strengths.__name__)
    return ", ".join([search, *(name for name in told if name != "combine"), f"diagonal {diagonal}"])


# ---- measuring


def by_thresholds(candidates: Candidates, heads: LinkHeads, setting: Setting) -> np.ndarray:
    """What error rates are made of, by thresholds: [thresholds, sentences, 4], as `word_links.counts`."""
    _, combine, strengths_of, diagonal = setting
    mutual, other, ratio = (np.array(each)[:, None, None] for each in zip(*THRESHOLDS, strict=True))
    places = [candidates.heads.index(head) for head in heads.heads]
    result = np.empty((len(THRESHOLDS), len(candidates.weights), 4))
    for number, weights in enumerate(candidates.weights):
        targets, sources = weights.shape[1:]
        at = [(torch.arange(n) + 0.5) / n for n in (targets, sources)]
        near = torch.exp(-diagonal * (at[0][:, None] - at[1]).abs())
        strengths = (strengths_of(combine(heads, weights[places])) * near).numpy()
        best = np.minimum(
            strengths / strengths.max(1, keepdims=True).clip(1e-12),
            strengths / strengths.max(0, keepdims=True).clip(1e-12),
        )
        found = (strengths >= mutual) & (best >= 1) | (strengths >= other) & (best >= ratio)
        sure, possible = candidates.sure[number], candidates.possible[number]
        result[:, number, 0], result[:, number, 1] = found.sum((1, 2)), sure.sum()
        result[:, number, 2], result[:, number, 3] = (found & sure).sum((1, 2)), (found & possible).sum((1, 2))
    return result


class Tried(NamedTuple):
    """A setting with its best thresholds: counts [sentences, 4] and error rate of each set, and their mean."""

    name: str
    thresholds: tuple[float, ...]
    counts: list[np.ndarray]
    rates: list[float]
    mean: float


def weights_of(sets: list[Candidates]) -> np.ndarray:
    """How much each set counts: models of one name share its weight."""
    names = [each.name for each in sets]
    found = np.array([1 / names.count(name) for name in names])
    return found / found.sum()


def try_setting(sets: list[Candidates], heads: list[LinkHeads], setting: Setting) -> tuple[Tried, list[np.ndarray]]:
    """A setting with its best thresholds, and the counts with all of them."""
    every = [by_thresholds(each, own, setting) for each, own in zip(sets, heads, strict=True)]
    rates = np.stack([error_rate(each.sum(1)) for each in every], 1)
    best = int((rates @ weights_of(sets)).argmin())
    return told(sets, name_of(setting), every, best), every


def told(sets: list[Candidates], name: str, every: list[np.ndarray], place: int) -> Tried:
    rates = [float(error_rate(each[place].sum(0))) for each in every]
    return Tried(name, THRESHOLDS[place], [each[place] for each in every], rates, float(weights_of(sets) @ rates))


def difference(sets: list[Candidates], one: Tried, other: Tried) -> list[float]:
    """The 95 % interval of the difference of mean error rates, sentences drawn in pairs within each set."""
    rng, total = np.random.default_rng(SEED), np.zeros(DRAWS)
    for weight, ours, theirs in zip(weights_of(sets), one.counts, other.counts, strict=True):
        rows = rng.integers(len(ours), size=(DRAWS, len(ours)))
        total += weight * (error_rate(ours[rows].sum(1)) - error_rate(theirs[rows].sum(1)))
    return np.percentile(total, [2.5, 97.5]).tolist()


def cross_validate(candidates: Candidates, learned: bool) -> float:
    """The error rate where each of five parts is read by the gold links of the others."""
    total = np.zeros(4)
    for part in range(PARTS):
        known = [n for n in range(len(candidates.weights)) if n % PARTS != part]
        weights = [candidates.weights[n] for n in known]
        heads = choose_by_gold(
            weights,
            candidates.heads,
            [_links(candidates.sure[n]) for n in known],
            [_links(candidates.possible[n]) for n in known],
        )
        places = [candidates.heads.index(head) for head in heads.heads]
        if not learned:
            heads = replace(heads, learned=())
            taught = by_thresholds(_part(candidates, known), heads, (USUAL, LinkHeads.combine, arithmetic, DIAGONAL))
            heads = replace(heads, how=Extraction(*THRESHOLDS[int(error_rate(taught.sum(1)).argmin())]))
        for n in range(part, len(candidates.weights), PARTS):
            found = linked(heads.strengths(candidates.weights[n][places]), heads.how).numpy()
            sure, possible = candidates.sure[n], candidates.possible[n]
            total += [found.sum(), sure.sum(), (found & sure).sum(), (found & possible).sum()]
    return float(error_rate(total))


def _part(candidates: Candidates, numbers: list[int]) -> Candidates:
    columns = ([column[n] for n in numbers] for column in candidates[2:])
    return Candidates(candidates.name, candidates.heads, *columns)


def _links(mask: np.ndarray) -> set[tuple[int, int]]:
    return {(int(source), int(target)) for target, source in np.argwhere(mask)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked: dict[str, Any] = {"nargs": 3, "action": "append", "default": [], "metavar": ("NAME", "GOLD", "MODEL")}
    parser.add_argument("--set", **asked, help="a gold set and a model; models of one name share its weight")
    parser.add_argument("--turned", **asked, help="likewise, of a model that translates the gold file's target")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    args = parser.parse_args()
    sets, labels = [], []
    for turned, chosen in ((False, args.set), (True, args.turned)):
        for name, path, model in chosen:
            sets.append(read_candidates(name, read_gold(Path(path), turned).half(0), model))
            labels.append(f"{name}, turned" if turned else name)
    heads = {
        name: [heads_by_agreement(each.weights, each.heads, search) for each in sets]
        for name, search in SEARCHES.items()
    }
    tried, default = [], None
    usual = (USUAL, LinkHeads.combine, arithmetic, DIAGONAL)
    for setting in tqdm(list(settings()), desc="Settings"):
        best, every = try_setting(sets, heads[setting[0]], setting)
        tried.append(best)
        if setting == usual:
            place = THRESHOLDS.index((DEFAULT.mutual, DEFAULT.other, DEFAULT.ratio))
            default = told(sets, "the default", every, place)
    assert default is not None
    tried.sort(key=lambda each: each.mean)
    rows = [
        {"setting": t.name, "thresholds": t.thresholds, **dict(zip(labels, t.rates, strict=True)), "mean": t.mean}
        for t in (default, *tried)
    ]
    taught = {
        label: {"learned": cross_validate(each, True), "thresholds alone": cross_validate(each, False)}
        for label, each in zip(labels, sets, strict=True)
    }
    result = {
        "default": rows[0],
        "best against the default": difference(sets, tried[0], default),
        "with gold links": taught,
    }
    write_atomically(args.out, json_bytes(result | {"tried": rows[1:]}))
    print(json.dumps(result | {"best": rows[1:6]}, indent=1))


if __name__ == "__main__":
    main()
