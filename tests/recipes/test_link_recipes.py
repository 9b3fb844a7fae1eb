"""What the recipes of word links count, against the package's own reading; and links of both directions together."""

import numpy as np
import torch
from choose_links import (
    DIAGONAL,
    THRESHOLDS,
    USUAL,
    Candidates,
    arithmetic,
    by_thresholds,
    cross_validate,
    geometric,
    try_setting,
)
from eflomal_links import grow_diag_final_and
from word_links import Gold, counts, error_rate

from hf_lrp.links.extraction import Extraction, link_strengths, read_links
from hf_lrp.links.heads import Head, LinkHeads

HEADS = (Head(0, 0), Head(0, 1), Head(1, 0))
SETTING = (USUAL, LinkHeads.combine, arithmetic, DIAGONAL)


def some_candidates(pairs: int) -> tuple[Candidates, Gold]:
    """Weights of three heads, the first of which looks at the gold links most."""
    generator = torch.Generator().manual_seed(1)
    weights, gold = [], Gold([], [], [], [])
    masks: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for number in range(pairs):
        targets, sources = 4 + number % 2, 5
        sure = {(n, n) for n in range(targets)}
        possible = sure | {(0, 1)}
        each = torch.rand(3, targets, sources, generator=generator)
        each[0] += torch.eye(targets, sources)
        weights.append(each)
        for mask, links in zip(masks, (sure, possible), strict=True):
            mask.append(np.array([[(s, t) in links for s in range(sources)] for t in range(targets)]))
        for column, value in zip(gold, (["a"] * sources, ["b"] * targets, sure, possible), strict=True):
            column.append(value)
    return Candidates("made", HEADS, weights, *masks), gold


def test_all_thresholds_at_once_count_what_single_ones_do() -> None:
    candidates, gold = some_candidates(6)
    heads = LinkHeads(HEADS[:2], weights=(1.0, 0.5))
    every = by_thresholds(candidates, heads, SETTING)
    for place in (0, 57, len(THRESHOLDS) - 1):
        found = [
            read_links(link_strengths(heads.combine(w[:2])), Extraction(*THRESHOLDS[place]))
            for w in candidates.weights
        ]
        np.testing.assert_array_equal(every[place], counts(found, gold))


def test_the_best_thresholds_of_a_setting_are_taken() -> None:
    candidates, _ = some_candidates(6)
    heads = [LinkHeads(HEADS[:1])]
    best, every = try_setting([candidates], heads, (USUAL, LinkHeads.combine, geometric, 0.25))
    rates = error_rate(every[0].sum(1))
    assert best.mean == rates.min() < rates.max()
    assert best.name == f"{USUAL}, geometric, diagonal 0.25"


def test_cross_validation_reads_each_part_by_the_others() -> None:
    candidates, _ = some_candidates(20)
    assert cross_validate(candidates, learned=True) < 0.1
    rest = [~mask for mask in candidates.sure[::5]]
    for number, mask in zip(range(0, 20, 5), rest, strict=True):  # what one part has, it does not teach itself
        candidates.sure[number], candidates.possible[number] = mask, mask
    assert cross_validate(candidates, learned=True) > 0.3


def test_links_of_both_directions_grow_together() -> None:
    forward = {(0, 0), (1, 1), (2, 1), (4, 4)}
    backward = {(0, 0), (1, 1), (1, 2), (3, 5)}
    # (2, 1) and (1, 2) touch (1, 1), and one of their words has none yet; (4, 4) and (3, 5) are alone on both sides
    assert grow_diag_final_and(forward, backward) == forward | backward
    assert grow_diag_final_and({(0, 0), (5, 0)}, {(0, 0)}) == {(0, 0)}  # (5, 0) touches nothing, and 0 is linked
