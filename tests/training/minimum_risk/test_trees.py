"""Candidates scored as trees: as each would be alone, for every family, and no beginning twice."""

import itertools

import pytest
import torch
from minimum_risk_examples import encode, make_batch
from slow_minimum_risk import slow_log_probability
from tiny_models import EOS, random_ids, tiny_model, tiny_variant

from hf_lrp.training.minimum_risk import trees as candidate_trees
from hf_lrp.training.minimum_risk.trees import score_candidates


def make_candidates(sources=3):
    """Of each source what is not scored, and candidates that share beginnings or are the beginning of another."""
    alone, start, middle, end = (
        random_ids(7, seed=1),
        random_ids(4, seed=2),
        random_ids(3, seed=3),
        torch.tensor([EOS]),
    )
    rows = [
        alone,
        torch.cat([start, middle]),
        torch.cat([start, end]),
        start,
        end,
        torch.cat([start, middle.flip(0), end]),
        torch.cat([alone, end]),
        torch.cat([start[:2], middle, end]),
    ]
    return [rows[: len(rows) - number] for number in range(sources)]


def in_order(scores, candidates):
    """Log-probabilities as nested lists: for each source those of its second and further candidates."""
    found = {(int(source), int(number)): value for value, source, number in zip(*scores, strict=True)}
    assert len(found) == len(scores.source) == sum(len(rows) - 1 for rows in candidates)
    return [[found[source, number] for number in range(1, len(rows))] for source, rows in enumerate(candidates)]


def expected_scores(model, batch, candidates):
    sources = [ids[mask.bool()] for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]
    return [
        [slow_log_probability(model, source, ids) for ids in rows[1:]]
        for source, rows in zip(sources, candidates, strict=True)
    ]


@pytest.mark.parametrize(
    ("family", "attention"),
    [
        *itertools.product(("marian", "pegasus", "bart", "mbart", "m2m_100", "t5"), ("sdpa", "eager")),
        ("fsmt", "eager"),
    ],
)
@pytest.mark.parametrize("row", [1, 12, 1000])
def test_scores_are_those_of_each_candidate_alone(family, attention, row, monkeypatch):
    monkeypatch.setattr(candidate_trees, "_ROW", row)
    dtype = torch.float32 if family == "fsmt" else torch.float64  # FSMT makes no mask in float64
    model = tiny_variant(family, dtype=dtype)
    model.set_attn_implementation(attention)
    batch, candidates = make_batch(), make_candidates()
    with torch.no_grad():
        found = score_candidates(model, *encode(model, batch), candidates, chunk_tokens=10**6)
        expected = expected_scores(model, batch, candidates)
    for got, wanted in zip(in_order(found, candidates), expected, strict=True):
        torch.testing.assert_close(torch.stack(got), torch.stack(wanted), rtol=0, atol=200 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("family", ["marian", "bart"])
def test_gradients_are_those_of_each_candidate_alone(family):
    model = tiny_variant(family, dtype=torch.float64)
    batch, candidates = make_batch(), make_candidates()
    states, mask = encode(model, batch)
    weights = [[float(number - source) for number in range(1, len(rows))] for source, rows in enumerate(candidates)]

    def decoder_gradients(scores):
        total = sum(w * value for pair in zip(weights, scores, strict=True) for w, value in zip(*pair, strict=True))
        model.zero_grad()
        total.backward()
        named = model.get_decoder().layers.named_parameters()
        return {name: parameter.grad.clone() for name, parameter in named}

    found = decoder_gradients(in_order(score_candidates(model, states, mask, candidates, chunk_tokens=40), candidates))
    expected = decoder_gradients(expected_scores(model, batch, candidates))
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-9)


def test_a_tree_has_each_beginning_once_and_spells_its_candidates():
    model, (candidates,) = tiny_model(), make_candidates(1)
    (tree,) = candidate_trees.grow_trees(3, candidates, model, 1000)
    beginnings = {tuple(ids[:length].tolist()) for ids in candidates[1:] for length in range(len(ids))}
    assert len(tree.inputs) == len(beginnings) < sum(map(len, candidates[1:]))
    assert len(tree.edges) == len({tuple(ids[:n].tolist()) for ids in candidates[1:] for n in range(1, len(ids) + 1)})
    assert tree.source == 3 and sorted(tree.numbers) == list(range(1, len(candidates)))
    for number, path in zip(tree.numbers, tree.paths, strict=True):
        assert [tree.edges[edge][1] for edge in path] == candidates[number].tolist()
        nodes = [tree.edges[edge][0] for edge in path]
        assert [tree.depths[node] for node in nodes] == list(range(len(path)))
        assert [tree.parents[node] for node in nodes] == [0, *nodes[:-1]]
        assert [tree.inputs[node] for node in nodes] == [tree.inputs[0], *candidates[number].tolist()[:-1]]


@pytest.mark.parametrize("limit", [0, 8, 20])
def test_trees_keep_to_the_limit_unless_one_candidate_has_more(limit):
    candidates = [*make_candidates(1)[0], random_ids(30, seed=9)]
    trees = list(candidate_trees.grow_trees(0, candidates, tiny_model(), limit))
    assert sorted(itertools.chain(*(tree.numbers for tree in trees))) == list(range(1, len(candidates)))
    assert all(len(tree.inputs) <= limit or len(tree.numbers) == 1 for tree in trees)
    assert (len(trees) == len(candidates) - 1) == (limit == 0)


def test_rows_are_no_longer_than_the_positions_of_the_model(monkeypatch):
    model = tiny_model(max_position_embeddings=9)
    lengths = []
    monkeypatch.setattr(candidate_trees, "score_chunk", record_lengths(lengths, candidate_trees.score_chunk))
    batch, candidates = make_batch(), make_candidates()
    with torch.no_grad():
        score_candidates(model, *encode(model, batch), candidates, chunk_tokens=10**6)
    assert max(lengths) <= 9


def record_lengths(lengths, function):
    def recorded(model, states, mask, trees, shared):
        lengths.extend(len(tree.inputs) for tree in trees)
        return function(model, states, mask, trees, shared)

    return recorded


def test_chunks_hold_trees_of_similar_sizes():
    trees = [
        candidate_trees.Tree(0, [0] * (1 + 7 * number % 30), [], [], [], [], [number]) for number in range(1, 400)
    ]
    chunks = list(candidate_trees.split_trees(trees, 1000))
    assert sorted(tree.numbers for chunk in chunks for tree in chunk) == [[number] for number in range(1, 400)]
    sizes = [len(chunk) * len(chunk[0].inputs) for chunk in chunks]
    assert max(sizes) <= 1000 and len(chunks) < 15
    assert sum(sizes) < 1.15 * sum(len(tree.inputs) for tree in trees)
    assert [len(chunk) for chunk in candidate_trees.split_trees(trees, 1)] == [1] * len(trees)


def test_chunks_of_uneven_rows_that_fit_are_not_computed_again(monkeypatch):
    model = tiny_model(dtype=torch.float64)
    batch, candidates = make_batch(), make_candidates()
    states = encode(model, batch)
    expected = score_candidates(model, *states, candidates, chunk_tokens=10**6)
    monkeypatch.setattr(candidate_trees, "_SMALL", 1)
    monkeypatch.setattr(candidate_trees, "_ROW", 8)
    monkeypatch.delattr(candidate_trees, "checkpoint")
    lengths = []
    monkeypatch.setattr(candidate_trees, "score_chunk", record_lengths(lengths, candidate_trees.score_chunk))
    found = score_candidates(model, *states, candidates, chunk_tokens=10**6)
    assert len(set(lengths)) > 2
    for got, wanted in zip(in_order(found, candidates), in_order(expected, candidates), strict=True):
        torch.testing.assert_close(torch.stack(got), torch.stack(wanted), rtol=0, atol=1e-12)


def test_without_further_candidates_there_is_nothing_to_score():
    model, batch = tiny_model(), make_batch()
    found = score_candidates(model, *encode(model, batch), [rows[:1] for rows in make_candidates()], chunk_tokens=100)
    assert all(len(values) == 0 for values in found)


def test_positions_are_as_before_after_an_error(monkeypatch):
    model, batch = tiny_model(), make_batch()
    states = encode(model, batch)
    positions = model.get_decoder().embed_positions
    monkeypatch.setattr(positions, "forward", lambda *_, **__: torch.zeros(3, model.config.d_model))
    with pytest.raises(ValueError, match="returned 3 positions"):
        score_candidates(model, *states, make_candidates(), chunk_tokens=100)
    assert not positions._forward_hooks
