"""Settings of all tests of methods."""

import pytest


@pytest.fixture(autouse=True)
def fsmt_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    from tiny_models import fill_with_lowest
    from transformers.models.fsmt import modeling_fsmt

    monkeypatch.setattr(modeling_fsmt, "fill_with_neg_inf", fill_with_lowest)
