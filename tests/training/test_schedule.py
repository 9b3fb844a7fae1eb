"""The learning rate at each update, against the formula."""

import io
import math

import pytest
import torch
from torch.optim import Adam
from torch.optim.lr_scheduler import LambdaLR

from hf_lrp.training.schedule import transformer_schedule


def optimizer_and_schedule(d_model: int = 512, warmup: int = 16000, scale: float = 4.0) -> tuple[Adam, LambdaLR]:
    optimizer = Adam([torch.nn.Parameter(torch.zeros(2))], lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    return optimizer, transformer_schedule(optimizer, d_model, warmup, scale)


def rates(optimizer: Adam, schedule: LambdaLR, updates: int) -> list[float]:
    """The rate of each of the next updates."""
    used = []
    for _ in range(updates):
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return used


def test_the_first_update_is_step_1():
    optimizer, schedule = optimizer_and_schedule()
    first, second = rates(optimizer, schedule, 2)
    assert first == pytest.approx(4 / math.sqrt(512) * 16000**-1.5, rel=1e-12)
    assert second == pytest.approx(2 * first, rel=1e-12)


def test_rates_are_those_of_the_formula():
    optimizer, schedule = optimizer_and_schedule(d_model=64, warmup=10, scale=2.0)
    expected = [2 / 8 * (step / (10 * math.sqrt(10)) if step < 10 else 1 / math.sqrt(step)) for step in range(1, 101)]
    used = rates(optimizer, schedule, 100)
    assert used == pytest.approx(expected, rel=1e-12)
    assert max(range(100), key=used.__getitem__) == 9
    assert used[9] == pytest.approx(2 / math.sqrt(64 * 10), rel=1e-12)


@pytest.mark.parametrize("updates_done", [3, 10, 25])
def test_it_continues_from_its_saved_state(updates_done):
    optimizer, schedule = optimizer_and_schedule(warmup=10)
    rates(optimizer, schedule, updates_done)
    file = io.BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}, file)
    expected = rates(optimizer, schedule, 20)

    file.seek(0)
    state = torch.load(file)
    optimizer, schedule = optimizer_and_schedule(warmup=10)
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    assert rates(optimizer, schedule, 20) == expected


def test_another_base_rate_is_refused():
    optimizer = Adam([torch.nn.Parameter(torch.zeros(2))], lr=5e-5)
    with pytest.raises(ValueError, match="learning rate of 1.0, not .5e-05."):
        transformer_schedule(optimizer, 512, 16000, 4.0)


@pytest.mark.parametrize("settings", [{"d_model": 0}, {"warmup": 0}, {"scale": 0.0}, {"scale": -1.0}])
def test_settings_must_be_positive(settings):
    with pytest.raises(ValueError, match="must be positive"):
        optimizer_and_schedule(**settings)
