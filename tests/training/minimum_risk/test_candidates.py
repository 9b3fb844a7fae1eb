"""Candidates: sampled from the model's distribution, distinct, cut, repeatable."""

import math

import pytest
import torch
from minimum_risk_examples import (
    MARIAN_LIKE,
    TOY_SOURCE,
    all_sequences,
    encode,
    exact_probabilities,
    make_batch,
    references_of,
    sample,
    toy_model,
)
from tiny_models import EOS, PAD, tiny_model

from hf_lrp.training.minimum_risk import candidates
from hf_lrp.training.minimum_risk.candidates import sample_candidates


def test_samples_follow_the_distribution_of_the_model():
    model = toy_model()
    number = 40_000
    states, mask = encode(model, {"input_ids": TOY_SOURCE[None], "attention_mask": torch.ones(1, 4).long()})
    found = sample_candidates(model, states, mask, [torch.tensor([0])], number, seed=0)
    draws = dict(zip((tuple(ids.tolist()) for ids in found.ids[0]), found.draws[0], strict=True))
    sequences = all_sequences(4)  # the limit: 1.4 · 1 + 3
    assert set(draws) <= {tuple(ids.tolist()) for ids in sequences} and sum(draws.values()) == number
    probabilities = exact_probabilities(model, sequences)
    observed = torch.tensor([draws.get(tuple(ids.tolist()), 0) for ids in sequences]) / number
    deviations = (observed - probabilities) / (probabilities * (1 - probabilities) / number).sqrt()
    assert deviations.abs().max() < 4.5
    assert 0.8 < deviations.square().mean() < 1.3


@pytest.mark.parametrize("family", [*MARIAN_LIKE, "t5"])  # T5 attends in float32, so it is not compared in float64
def test_candidates_are_distinct_cut_and_without_padding(family):
    model = tiny_model(family)
    batch = make_batch()
    found = sample(model, batch, 60)
    cut = 0
    for reference, rows, draws in zip(references_of(batch), *found, strict=True):
        assert torch.equal(rows[0], reference)
        assert sum(draws) == 60 and all(draws[1:])
        assert len({tuple(ids.tolist()) for ids in rows}) == len(rows)
        limit = math.floor(1.4 * len(reference)) + 3
        for ids in rows:
            assert PAD not in ids and EOS not in ids[:-1]
            assert len(ids) <= limit
            assert ids[-1] == EOS or len(ids) == limit
            cut += int(ids[-1] != EOS)
    assert cut


def test_padding_is_not_drawn_even_where_it_is_likely():
    model = tiny_model()
    model.final_logits_bias[0, PAD] = 100.0
    assert all(PAD not in ids for rows in sample(model, make_batch()).ids for ids in rows)


def test_equal_samples_count_once_and_the_reference_is_not_repeated():
    model = toy_model()
    batch = {
        "input_ids": TOY_SOURCE[None],
        "attention_mask": torch.ones(1, 4).long(),
        "labels": torch.tensor([[2, 0]]),
    }
    found = sample(model, batch, 2000)
    rows = [tuple(ids.tolist()) for ids in found.ids[0]]
    assert rows[0] == (2, 0) and len(set(rows)) == len(rows) < 2000
    assert found.draws[0][0] > 0 and sum(found.draws[0]) == 2000


def test_generation_settings_of_the_checkpoint_do_not_matter():
    model, batch = tiny_model(), make_batch()
    plain = sample(model, batch)
    model.generation_config.update(temperature=0.1, top_k=1, repetition_penalty=9.0, num_beams=4, max_length=3)
    model.config.use_cache = False
    assert_same_candidates(sample(model, batch), plain)


def test_a_forced_first_token_is_forced():
    model = tiny_model("bart")
    model.generation_config.forced_bos_token_id = 7
    assert all(ids[0] == 7 for rows in sample(model, make_batch()).ids for ids in rows[1:])


def test_candidates_do_not_exceed_the_positions_of_the_model():
    model = tiny_model(max_position_embeddings=9)
    batch = make_batch(((4, 8),))
    assert max(len(ids) for ids in sample(model, batch).ids[0]) == 9


def assert_same_candidates(first, second):
    assert first.draws == second.draws
    assert [[ids.tolist() for ids in rows] for rows in first.ids] == [
        [ids.tolist() for ids in rows] for rows in second.ids
    ]


def test_rows_of_ended_samples_do_not_change_the_others(monkeypatch):
    model, batch = tiny_model(dtype=torch.float64), make_batch()
    found = {}
    for alive in (0.0, 0.5, 1.0):  # from never taking out what has ended to always
        monkeypatch.setattr(candidates, "_ALIVE", alive)
        drawn = sample(model, batch, 40)
        found[alive] = [[ids.tolist() for ids in rows] for rows in drawn.ids], drawn.draws
    assert found[0.0] == found[0.5] == found[1.0]


def test_samples_depend_on_the_seed_only_and_leave_the_random_state():
    model, batch = tiny_model().train(), make_batch()
    states, mask = encode(model, batch)
    before = torch.get_rng_state()
    first = sample_candidates(model, states, mask, references_of(batch), 30, seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    same = sample_candidates(model, states, mask, references_of(batch), 30, seed=5, max_rows=30)  # one source a time
    assert_same_candidates(same, first)
    other = sample_candidates(model, states, mask, references_of(batch), 30, seed=6)
    assert any(
        len(rows) != len(old) or not all(map(torch.equal, rows, old))
        for rows, old in zip(other.ids, first.ids, strict=True)
    )


def test_training_flags_are_restored(monkeypatch):
    model, batch = tiny_model().train(), make_batch()
    model.model.encoder.eval()
    flags = [module.training for module in model.modules()]
    sample(model, batch)
    assert [module.training for module in model.modules()] == flags
    monkeypatch.setattr(model, "forward", lambda **_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sample(model, batch)
    assert [module.training for module in model.modules()] == flags


@pytest.mark.parametrize(("name", "remedy"), [("decoder_start_token_id", "Set it to"), ("eos_token_id", "Set it")])
def test_missing_special_tokens_are_named(name, remedy):
    model, batch = tiny_model("t5"), make_batch()
    setattr(model.config, name, None)
    setattr(model.generation_config, name, None)
    with pytest.raises(ValueError, match=f"{name} is not set.*{remedy}"):
        sample(model, batch)
