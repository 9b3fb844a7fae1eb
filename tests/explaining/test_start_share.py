"""Shares without that of the decoder start token, which cannot always be left out."""

import re

import pytest
import torch
from tiny_models import random_ids, tiny_model
from tiny_tokenizer import tiny_tokenizer

from hf_lrp import AlphaBeta, explain
from hf_lrp.explaining.start_share import leave_out_start

PAPER, STEEP = AlphaBeta(1, 0), AlphaBeta(4, -3)
REMEDY = "start_token='keep'"


def left_out(source: list[float], target: list[float], start: float, dtype: torch.dtype = torch.float32):
    shares = (torch.tensor([row], dtype=dtype) for row in (source, target))
    return leave_out_start(*shares, torch.tensor([start], dtype=dtype), [7], STEEP)


@pytest.mark.parametrize(
    ("source", "target", "start"),
    [
        ([3.0, -1.0], [-2.0], 1.0),  # exactly 0
        ([2.0**40, -(2.0**40)], [2.0**-10], 1.0),  # what is left is below the rounding errors of what it is left of
        ([2.0**20, -(2.0**20)], [3.0], 5.0),  # all shares sum to 8, so that a sum of 3 may well be one of -4
        ([float("inf"), 1.0], [-float("inf")], 1.0),
    ],
)
def test_shares_that_cancel_are_refused(source, target, start):
    message = rf"At step 7, with {re.escape(str(STEEP))}, the shares of source and prefix cancel.*{REMEDY}"
    with pytest.raises(ValueError, match=message):
        left_out(source, target, start)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_shares_of_one_sign_and_large_ones_of_both_are_divided_by_their_sum(dtype):
    source, target = left_out([1e-12, 2e-12], [1e-12], 1.0, dtype)
    assert source.tolist() == [[pytest.approx(0.25), pytest.approx(0.5)]] and target.item() == pytest.approx(0.25)
    source, target = left_out([1024.0, -512.0], [-512.0 + 0.5], 0.5, dtype)
    assert (source.tolist(), target.tolist()) == ([[2048.0, -1024.0]], [[-1023.0]])


def test_a_decoder_that_does_not_read_the_source_is_refused_at_the_first_step():
    model = tiny_model()
    for layer in model.get_submodule("model.decoder.layers"):
        for parameter in layer.encoder_attn.out_proj.parameters():
            parameter.data.zero_()
    with pytest.raises(ValueError, match=rf"At step 1, with .*, source and prefix have no share at all.*{REMEDY}"):
        explain(model, tiny_tokenizer(), "the cat sees", "he dog")
    c = explain(model, tiny_tokenizer(), "the cat sees", "he dog", start_token="keep")
    assert c.start[0].item() == pytest.approx(1) and not c.source.any()
    later = torch.arange(1, len(c))
    with pytest.raises(ValueError, match="At step 1"):  # the number of a step that is chosen is that of the sentence
        explain(model, tiny_tokenizer(), "the cat sees", "he dog", predict={"he": "cat"})
    d = explain(model, tiny_tokenizer(), "the cat sees", "he dog", predict={"dog": "cat"})
    assert d.steps == (2,) and d.target_total.item() == pytest.approx(1) and (c.target_total[later] > 0).all()


@pytest.mark.filterwarnings("ignore:hf_lrp")
@pytest.mark.parametrize("numbers", [range(20), pytest.param(range(20, 260), marks=pytest.mark.slow)])
def test_results_of_steep_rules_are_finite_or_refused(numbers):
    """Whether they are depends on the rounding of the machine."""
    expected = re.compile(rf"shares of source and prefix cancel.*{REMEDY}|grows beyond what torch.float32 can hold")
    finite, refused = 0, []
    for number in numbers:
        family, rule = ("marian", "pegasus", "bart")[number % 3], AlphaBeta(2 + number % 5, -1 - number % 5)
        model, ids = tiny_model(family, seed=number), random_ids(2, 5, seed=number)
        try:
            c = explain(model, None, ids[0], ids[1], rule=rule)
        except ValueError as error:
            refused.append(str(error))
        else:
            assert all(torch.isfinite(shares).all() for shares in (c.source, c.target, c.start))
            assert torch.allclose(c.source_total + c.target_total, torch.ones(5), atol=1e-3 * c.source.abs().max())
            finite += 1
    assert all(expected.search(message) for message in refused), refused
    assert finite >= len(numbers) / 5  # all those of alpha 2
