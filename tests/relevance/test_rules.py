"""The rules as such: their settings, and how totals are kept."""

import math

import pytest
import torch

from hf_lrp.relevance.rules import AlphaBeta, Epsilon, Gamma, Rule, conserve


def test_conserve_gives_what_is_missing_by_magnitude() -> None:
    received = [torch.tensor([[3.0, -1.0]]), torch.tensor([[0.0, 4.0]])]
    conserve(Epsilon(), received, torch.tensor([[10.0]]))
    torch.testing.assert_close(received[0], torch.tensor([[4.5, -0.5]]))
    torch.testing.assert_close(received[1], torch.tensor([[0.0, 6.0]]))


def test_conserve_rescales_shares_and_leaves_zero_totals_alone() -> None:
    received = [torch.tensor([[1.0, 3.0], [0.0, 0.0], [0.0, 0.0]])]
    conserve(AlphaBeta(), received, torch.tensor([[8.0], [5.0], [0.0]]))
    torch.testing.assert_close(received[0], torch.tensor([[2.0, 6.0], [2.5, 2.5], [0.0, 0.0]]))


@pytest.mark.parametrize("setting", [(1.0, 0.5), (2.0, 1.0), (math.nan, 0.0), (math.inf, -math.inf)])
def test_alpha_and_beta_must_sum_to_one(setting: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"alpha \+ beta must be 1, or relevance is not conserved; got"):
        AlphaBeta(*setting)


@pytest.mark.parametrize(("rule", "name"), [(Epsilon, "eps"), (Gamma, "gamma")])
@pytest.mark.parametrize("value", [-1e-6, math.nan, math.inf])
def test_stabiliser_and_gamma_must_be_non_negative_numbers(rule: type[Rule], name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a non-negative number; got {value}"):
        rule(value)  # type: ignore[call-arg]
