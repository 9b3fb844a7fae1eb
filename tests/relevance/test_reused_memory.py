"""Memory of large tensors is used again, and never while something still lies there."""

import weakref

import pytest
import torch
from tiny_models import random_ids, tiny_model

from hf_lrp import explain
from hf_lrp.relevance import reused_memory as memory


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SMALLEST", 0)


def test_the_next_tensor_gets_the_memory_of_one_that_is_gone() -> None:
    like = torch.empty(1)
    with memory.recycled():
        first = memory.new_empty(like, 30, 40)
        place = first.data_ptr()
        assert memory.new_empty(like, 30, 40).data_ptr() != place
        view = first[3:].transpose(0, 1)
        del first
        assert memory.new_empty(like, 30, 40).data_ptr() != place, "a view is still in use"
        del view
        assert memory.new_empty(like, 40, 25).data_ptr() == place
        assert memory.new_empty(like, 2, 5).data_ptr() != place, "a small tensor would keep all of it"


def test_what_fits_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    made, plain = [], torch.empty

    def empty(size: int) -> torch.Tensor:
        tensor = plain(size)
        made.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(torch, "empty", empty)
    pool = memory.Pool()
    pool.take(1000)
    kept = pool.take(3000)
    assert [each() is None for each in made] == [True, False]
    pool.take(3000)
    assert [each() is None for each in made] == [True, False, False]
    assert len(kept) == 3000


def test_other_tensors_are_as_ever() -> None:
    with memory.recycled():
        double = memory.new_empty(torch.empty(1, dtype=torch.float64), 4, 5)
    assert double.dtype == torch.float64
    assert memory.new_empty(torch.empty(1), 4, 5).shape == (4, 5)


@pytest.mark.parametrize("family", ["marian", "t5"])
def test_contributions_are_the_same_to_the_bit(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, source, target = tiny_model(family), random_ids(7, seed=1), random_ids(6, seed=2)
    reused = explain(model, None, source, target)
    monkeypatch.setattr(memory, "SMALLEST", 2**60)
    plain = explain(model, None, source, target)
    assert (reused.source == plain.source).all()
    assert (reused.target == plain.target).all()
