"""Turning points of made-up series: found where they are, and never where there are none."""

import numpy as np
import pytest

from hf_lrp.corpus.stages import FEWEST, find_stages

UNEVEN = np.array([1, 2, 4, 6, 8, 11, 14, 18, 22, 26, 31, 36, 42, 50, 60, 70, 85, 100.0])
EVEN = np.arange(1, 41) * 2.5
WITHOUT = {
    "falls": lambda x: 1 - x / 100,
    "falls, then is flat": lambda x: np.exp(-x / 12),
    "rises": lambda x: x / 100,
    "rises, then is flat": lambda x: 1 - np.exp(-x / 12),
    "is flat": lambda x: 0 * x,
    "rises, then falls": lambda x: np.interp(x, [0, 40, 100], [0, 1, 0]),
}


def valley(x: np.ndarray) -> np.ndarray:
    """Falls until 20, rises until 50, then hardly."""
    return np.interp(x, [0, 20, 50, 100], [0.8, 0.5, 0.75, 0.78])


@pytest.mark.parametrize("steps", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_both_turning_points_are_found(steps: np.ndarray) -> None:
    stages = find_stages(steps, valley(steps))
    gap = np.diff(steps)[np.searchsorted(steps, 50) - 1]  # between checkpoints there
    assert stages.first_end == pytest.approx(20, abs=2.5)
    assert 50 <= stages.second_end <= 50 + 2 * gap
    assert 0.2 < stages.fall < 0.3 and 0.22 < stages.rise < 0.28  # of medians, which do not reach the very bottom
    assert stages.reason == ""


@pytest.mark.parametrize("seed", range(20))
def test_both_turning_points_are_found_in_noise(seed: int) -> None:
    noise = 0.01 * np.random.default_rng(seed).normal(size=len(EVEN))
    stages = find_stages(EVEN, valley(EVEN) + noise)
    assert stages.first_end == pytest.approx(20, abs=5)
    assert stages.second_end == pytest.approx(52, abs=8)
    assert 0.005 < stages.noise < 0.02


def test_units_do_not_matter() -> None:
    stages = find_stages(1000 * UNEVEN, 7 * valley(UNEVEN) - 3)
    reference = find_stages(UNEVEN, valley(UNEVEN))
    assert (stages.first_end, stages.second_end) == (1000 * reference.first_end, 1000 * reference.second_end)


@pytest.mark.parametrize("kind", WITHOUT)
@pytest.mark.parametrize("steps", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_none_is_invented(kind: str, steps: np.ndarray) -> None:
    draw = np.random.default_rng(0)
    values = WITHOUT[kind](steps)
    for noise in (0.0, 0.01, 0.03, 0.1, 0.3):
        for _ in range(10):
            stages = find_stages(steps, values + noise * draw.normal(size=len(steps)))
            assert (stages.first_end, stages.second_end) == (None, None)
            assert stages.reason and np.isnan(stages.fall)


@pytest.mark.parametrize("where", [1, 10, 20, 38])
@pytest.mark.parametrize("kind", WITHOUT)
def test_one_odd_checkpoint_is_no_turning_point(kind: str, where: int) -> None:
    values = WITHOUT[kind](EVEN)
    values[where] -= 5.0
    assert find_stages(EVEN, values).first_end is None


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_rise_that_goes_on_has_no_third_stage(noise: float) -> None:
    draw = np.random.default_rng(0)
    for _ in range(20):
        values = np.interp(EVEN, [0, 20, 100], [1, 0, 1]) + noise * draw.normal(size=len(EVEN))
        stages = find_stages(EVEN, values)
        assert stages.first_end == pytest.approx(20, abs=5)
        assert stages.second_end is None and "not slowed" in stages.reason


def test_few_checkpoints_show_nothing() -> None:
    steps = np.arange(FEWEST - 1)
    assert "are needed" in find_stages(steps, valley(steps)).reason


@pytest.mark.parametrize(
    ("steps", "values"), [([1, 2, 2], [1, 2, 3]), ([1, 2, 3], [1, np.nan, 3]), ([1, 2], [1, 2, 3])]
)
def test_what_is_no_series_is_refused(steps: list[float], values: list[float]) -> None:
    with pytest.raises(ValueError, match="steps must grow"):
        find_stages(steps, values)
