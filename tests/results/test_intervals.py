"""Bootstrap intervals against a loop written from the definition, and their coverage."""

import numpy as np
import pytest
import scipy.stats

from hf_lrp.results import intervals
from hf_lrp.results.intervals import Estimate, bootstrap_mean, say_if_few, student_quantile


def slow_bootstrap(values: np.ndarray, draws: int, confidence: float, seed: int) -> list[Estimate]:
    """Draw sentences, average those that have a value, sort the averages: one column and one draw at a time."""
    n, columns = values.shape
    rng = np.random.default_rng(seed)
    samples = [rng.integers(n, size=n) for _ in range(draws)]
    estimates = []
    for column in range(columns):
        means = []
        for sample in samples:
            drawn = [values[i, column] for i in sample if not np.isnan(values[i, column])]
            if drawn:
                means.append(sum(drawn) / len(drawn))
        known = [value for value in values[:, column] if not np.isnan(value)]
        quantile = scipy.stats.t(len(known) - 1).ppf((1 + confidence) / 2)
        tail = scipy.stats.norm.cdf(-quantile * (1 - 1 / len(known)) ** -0.5)
        estimates.append(Estimate(sum(known) / len(known), *np.quantile(means, [tail, 1 - tail])))
    return estimates


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_equals_the_loop_written_from_the_definition(missing: float) -> None:
    draw = np.random.default_rng(7)
    values = draw.normal(size=(9, 4))
    values[draw.random(values.shape) < missing] = np.nan
    values[0], values[1] = 1.0, 2.0  # every column has two values
    estimate = bootstrap_mean(values, draws=60, confidence=0.9, seed=3)
    np.testing.assert_allclose(np.transpose(estimate), slow_bootstrap(values, 60, 0.9, 3), rtol=1e-12)


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_blocks_change_no_bit(missing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(1)
    values = draw.normal(size=(301, 5))
    values[draw.random(values.shape) < missing] = np.nan
    whole = bootstrap_mean(values, draws=50)
    for block in (1, 301, 1000, 9999):
        monkeypatch.setattr(intervals, "BLOCK", block)
        np.testing.assert_array_equal(bootstrap_mean(values, draws=50), whole)


def test_one_column_gives_floats() -> None:
    values = np.array([0.0, 1.0, 5.0])
    alone, column = bootstrap_mean(values), bootstrap_mean(values[:, None])
    assert all(isinstance(number, float) for number in alone)
    assert alone == tuple(part[0] for part in column)
    assert alone.value == 2.0


def test_a_column_does_not_depend_on_the_others() -> None:
    values = np.random.default_rng(0).normal(size=(40, 7))
    together = bootstrap_mean(values)
    for columns in (slice(0, 1), slice(2, 5), slice(1, 7, 2)):
        for part, whole in zip(bootstrap_mean(values[:, columns]), together, strict=True):
            np.testing.assert_array_equal(part, whole[columns])


def test_seed_repeats_and_changes_the_interval_but_not_the_mean() -> None:
    values = np.random.default_rng(0).normal(size=50)
    assert bootstrap_mean(values, seed=1) == bootstrap_mean(values, seed=1)
    assert bootstrap_mean(values, seed=1).low != bootstrap_mean(values, seed=2).low
    assert bootstrap_mean(values, seed=1).value == bootstrap_mean(values, seed=2).value


def test_what_is_never_defined_is_nan_and_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    values = np.array([[1.0, np.nan], [3.0, np.nan]])
    estimate = bootstrap_mean(values)
    assert estimate.value[0] == 2.0
    assert all(np.isnan(part[1]) for part in estimate)
    assert not len(recwarn)


def test_intervals_hold_the_true_mean_about_as_often_as_they_say() -> None:
    draw = np.random.default_rng(1)
    experiments = draw.normal(loc=0.5, size=(100, 400))  # 400 experiments of 100 sentences
    estimate = bootstrap_mean(experiments, confidence=0.9, draws=400)
    covered = np.mean((estimate.low <= 0.5) & (estimate.high >= 0.5))
    assert 0.85 <= covered <= 0.94
    expected = 2 * 1.645 / np.sqrt(100)
    np.testing.assert_allclose(np.mean(estimate.high - estimate.low), expected, rtol=0.05)


@pytest.mark.parametrize("number", [8, 15])
def test_intervals_from_few_sentences_hold_the_mean_as_often(number: int) -> None:
    experiments = np.random.default_rng(2).normal(loc=0.5, size=(number, 1000))
    estimate = bootstrap_mean(experiments)
    assert np.mean((estimate.low <= 0.5) & (estimate.high >= 0.5)) >= 0.91


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 30, 999, 10_000])
def test_quantiles_of_students_distribution_are_those_of_scipy(freedom: int, confidence: float) -> None:
    expected = scipy.stats.t(freedom).ppf((1 + confidence) / 2)
    assert student_quantile(freedom, confidence) == pytest.approx(expected, rel=1e-12)


def test_one_sentence_has_no_interval() -> None:
    estimate = bootstrap_mean(np.array([0.5]))
    assert estimate.value == 0.5 and np.isnan(estimate.low) and np.isnan(estimate.high)
    assert "no intervals" in say_if_few(1) and "from 8 sentences are rough" in say_if_few(8) and say_if_few(20) == ""


@pytest.mark.parametrize(
    ("values", "options"),
    [(np.empty((0, 3)), {}), (np.ones((2, 2, 2)), {}), (np.ones(3), {"draws": 0}), (np.ones(3), {"confidence": 1.0})],
)
def test_what_makes_no_sense_is_refused(values: np.ndarray, options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        bootstrap_mean(values, **options)
