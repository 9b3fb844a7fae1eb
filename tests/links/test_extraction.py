"""Links from weights, against a version in plain loops, and heads found on made-up weights."""

import math

import pytest
import torch
from torch import Tensor

from hf_lrp.links.extraction import Extraction, link_strengths, mutual_best, read_links, word_weights


def random_weights(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) ** 3


def slow_strengths(w: list[list[float]], diagonal: float) -> list[list[float]]:
    targets, sources = len(w), len(w[0])
    result = []
    for t in range(targets):
        row = []
        for s in range(sources):
            of_row, of_column = sum(w[t]), sum(w[u][s] for u in range(targets))
            distance = abs((t + 0.5) / targets - (s + 0.5) / sources)
            row.append((w[t][s] / of_row + w[t][s] / of_column) / 2 * math.exp(-diagonal * distance))
        result.append(row)
    return result


@pytest.mark.parametrize("diagonal", [0.0, 0.5])
@pytest.mark.parametrize("shape", [(4, 6), (5, 3), (1, 1)])
def test_strengths_and_links_agree_with_a_slow_version(shape: tuple[int, int], diagonal: float) -> None:
    weights = random_weights(*shape, seed=sum(shape))
    strengths = link_strengths(weights, diagonal)
    slow = slow_strengths(weights.double().tolist(), diagonal)
    torch.testing.assert_close(strengths.double(), torch.tensor(slow, dtype=torch.float64), rtol=0, atol=1e-6)
    how = Extraction(mutual=0.2, other=0.3, ratio=0.6)
    links = set()
    for t, row in enumerate(slow):
        for s, strength in enumerate(row):
            best = max(max(row), max(other[s] for other in slow))
            both = strength == max(row) and strength == max(other[s] for other in slow)
            if (both and strength >= 0.2) or (strength >= 0.3 and strength >= 0.6 * best):
                links.add((s, t))
    assert read_links(strengths, how) == links


def test_a_word_may_have_several_links_or_none() -> None:
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 0.1], [0.02, 0.02, 0.02]])
    links = read_links(link_strengths(weights, 0.0), Extraction())
    assert links == {(0, 0), (1, 0), (2, 1)}


def test_words_get_the_weights_of_their_pieces() -> None:
    weights = random_weights(2, 3, 4)
    target = torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.5, 1.0]])
    source = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])  # the last token is no word's
    expected = torch.zeros(2, 2, 2)
    for head in range(2):
        for t in range(3):
            for s in range(4):
                for a in range(2):
                    for b in range(2):
                        expected[head, a, b] += target[a, t] * weights[head, t, s] * source[b, s]
    torch.testing.assert_close(word_weights(weights, target, source), expected)


def test_mutual_choices_are_counted() -> None:
    weights = torch.stack([torch.eye(3), torch.tensor([[0.9, 0.1, 0.1]] * 3), torch.eye(3).flip(0)])
    assert mutual_best(weights).tolist() == pytest.approx([1.0, 1 / 3, 1.0])
