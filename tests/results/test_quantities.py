"""The paper's quantities, by hand and for arrays and tensors alike."""

import math

import numpy as np
import pytest
import torch

from hf_lrp.results import quantities
from hf_lrp.results.quantities import (
    entropy,
    from_second_step,
    kl_divergence,
    mean_over_steps,
    source_entropy,
    source_total,
    source_use,
    target_entropy,
    target_total,
    token_influence,
)

SOURCE = np.array([[0.5, 0.5], [0.3, 0.1], [0.2, 0.2]])
TARGET = np.array([[0.0, 0.0, 0.0], [0.6, 0.0, 0.0], [0.15, 0.45, 0.0]])


def test_totals_are_sums_over_tokens():
    np.testing.assert_allclose(source_total(SOURCE), [1, 0.4, 0.4])
    np.testing.assert_allclose(target_total(TARGET), [0, 0.6, 0.6])
    np.testing.assert_allclose(token_influence(SOURCE, TARGET).sum(1), 1)


def test_entropies_are_of_renormalised_shares():
    quarter = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    np.testing.assert_allclose(source_entropy(SOURCE), [math.log(2), quarter, math.log(2)])
    np.testing.assert_allclose(target_entropy(TARGET), [math.nan, 0, quarter])


def test_entropy_is_undefined_where_shares_are_no_distribution():
    assert np.isnan(entropy(np.array([[0.0, 0.0], [0.7, -0.1]]))).all()
    assert np.isnan(entropy(np.empty((2, 0)))).all()


def test_use_of_source_tokens_averages_to_one():
    np.testing.assert_allclose(source_use(SOURCE), [2 / 3 * (0.5 + 0.75 + 0.5), 2 / 3 * (0.5 + 0.25 + 0.5)])
    assert np.isnan(source_use(np.array([[0.0, 0.0], [0.1, 0.2]]))).all()


def test_divergence_of_a_distribution_from_itself_is_zero():
    np.testing.assert_allclose(kl_divergence(SOURCE, SOURCE), 0)
    expected = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    np.testing.assert_allclose(kl_divergence(SOURCE[:1], SOURCE[1:2]), [expected])


def test_means_leave_out_step_1_and_what_is_undefined():
    assert mean_over_steps(np.array([1.0, 0.4, math.nan, 0.2])) == pytest.approx(0.3)
    assert mean_over_steps(np.array([0.4, 0.2]), steps=(3, 4)) == pytest.approx(0.3)
    assert mean_over_steps(np.array([1.0, 0.2]), steps=(1, 4)) == pytest.approx(0.2)
    assert math.isnan(mean_over_steps(np.array([1.0])))
    np.testing.assert_array_equal(from_second_step(np.array([1.0, 0.4])), [math.nan, 0.4])


def test_curves_are_copies():
    values = np.array([1.0, 0.4])
    from_second_step(values)
    assert values[0] == 1


@pytest.mark.parametrize("name", ["source_total", "target_total", "entropy", "source_use", "from_second_step"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_give_tensors_of_their_type(name, dtype):
    function = getattr(quantities, name)
    shares = SOURCE if name != "from_second_step" else SOURCE[:, 0]
    result = function(torch.tensor(shares, dtype=dtype))
    assert result.dtype == dtype
    np.testing.assert_allclose(result.numpy(), function(shares), rtol=1e-6)


def test_sums_run_in_float64():
    shares = torch.full((1, 10001), 1e-4)
    shares[0, 0] = 1000
    assert source_total(shares)[0].item() == pytest.approx(1001, abs=1e-4)
