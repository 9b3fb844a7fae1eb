"""Contrasts that do not depend on length, and intervals over sentences and seeds."""

import numpy as np
import pytest
from claims.curves import Curves, continued, difference, from_end, lengths_of, places, step_differences, thirds
from claims.data_amount import trend
from claims.intervals import mean_and_half_width, mean_interval, ratio_values

from hf_lrp.results.intervals import student_quantile

LINES = np.array([[[1.0, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, np.nan, np.nan, np.nan]]])


def test_contrasts_within_a_sentence() -> None:
    assert lengths_of(LINES).tolist() == [[8, 5]]
    assert from_end(LINES, 0).tolist() == [[8, 5]] and from_end(LINES, 1).tolist() == [[7, 4]]
    assert np.isnan(from_end(LINES, 6)).tolist() == [[False, True]]
    np.testing.assert_allclose(places(LINES, 2, 1)[0, 1], [np.nan, 1 / 6, 3 / 6, 5 / 6, *[np.nan] * 4])
    np.testing.assert_allclose([part[0] for part in thirds(LINES, 2, 1)], [[2.5, 2], [4.5, 3], [6.5, 4]])


def test_a_line_goes_on() -> None:
    bent = np.where(np.isnan(LINES), np.nan, LINES.copy())
    bent[0, 0, 7], bent[0, 1, 4] = -3, -3
    np.testing.assert_allclose(continued(bent, 2), [[8, 5]])


def test_differences_at_equal_lengths() -> None:
    one = Curves((1, 2), {"q": np.concatenate([LINES, LINES])})
    other = Curves((2, 3), {"q": np.concatenate([LINES - 1, LINES - 1])[..., :5]})
    found = difference(one, other, "q")
    assert found.shape == (1, 2)  # seed 2 alone
    np.testing.assert_allclose(found[0, 1], 1)
    loose = step_differences(one, other, "q", equal=False)
    np.testing.assert_allclose(loose[0, 1], [1, 1, 1, 1, 1])


def test_steps_before_the_end_of_the_shorter() -> None:
    long, short = LINES[:, :1], LINES[:, 1:]
    one, other = Curves((1,), {"q": long}), Curves((1,), {"q": short})
    np.testing.assert_allclose(step_differences(one, other, "q", equal=False)[0, 0], [0, 0, 0, 0, *[np.nan] * 4])
    assert np.isnan(difference(one, other, "q")).all()


@pytest.mark.parametrize(
    ("seeds", "of_seeds", "of_sentences"), [(2, 1.0, 0.1), (3, 0.2, 2.0), (5, 0.0, 1.0), (3, 0.3, 0)]
)
def test_intervals_cover_as_often_as_they_say(seeds: int, of_seeds: float, of_sentences: float) -> None:
    rng = np.random.default_rng(0)
    tries, sentences = 4000, 40
    values = of_seeds * rng.standard_normal((seeds, 1, tries))
    values = values + of_sentences * rng.standard_normal((sentences, tries))
    values = values + 0.5 * rng.standard_normal((seeds, sentences, tries))
    values[rng.random(values.shape) < 0.2] = np.nan  # sentences that cannot be compared
    means, half = mean_and_half_width(values, 0.9)
    assert (np.abs(means) < half).mean() > 0.88


def test_an_interval_over_sentences_alone() -> None:
    values = np.random.default_rng(0).standard_normal((1, 400))
    found = mean_interval(values)
    assert found.high - found.low == pytest.approx(2 * 1.6487 * values.std(ddof=1) / 20, rel=1e-3)
    assert (found.sentences, found.seeds) == (400, 1)


def test_a_ratio_of_means() -> None:
    rng = np.random.default_rng(1)
    below = 2 + 0.2 * rng.standard_normal((1, 2000))
    above = 0.5 * below + 0.1 * rng.standard_normal((1, 2000))
    values = ratio_values(above, below)
    assert values.mean() == pytest.approx(above.mean() / below.mean())
    assert values.std() == pytest.approx(0.05, rel=0.05)  # what the two have in common does not count


def test_a_trend_over_all_amounts() -> None:
    rng = np.random.default_rng(2)
    levels = {100: 0.0, 1_000: 0.3, 10_000: 0.1, 100_000: 0.6}
    amounts = {
        pairs: Curves((1, 2), {"q": level + 0.001 * rng.standard_normal((2, 30, 5))})
        for pairs, level in levels.items()
    }
    found = trend(amounts, "q")
    line = np.polyfit([2, 3, 4, 5], list(levels.values()), 1)
    assert found.value == pytest.approx(line[0], abs=1e-3)
    residuals = np.array(list(levels.values())) - np.polyval(line, [2, 3, 4, 5])
    expected = student_quantile(5, 0.9) * np.sqrt(2 * (residuals**2).sum() / 5 / (2 * 5))
    assert found.high - found.value == pytest.approx(expected, rel=0.02)
