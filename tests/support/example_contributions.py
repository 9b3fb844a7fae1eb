"""Made-up contributions for the tests of the result and of its pictures."""

from collections.abc import Sequence
from typing import Any

import torch

from hf_lrp.models.words import group_words
from hf_lrp.results.contributions import Contributions
from hf_lrp.results.used_method import UsedMethod

ENGLISH = ("▁The", "▁cat", "▁sleep", "s", "</s>")
FRENCH = ("▁Le", "▁chat", "▁dor", "t", ".", "</s>")


def make_contributions(
    source: Sequence[str] = ENGLISH, target: Sequence[str] = FRENCH, /, seed: int = 0, **changes: Any
) -> Contributions:
    """Random shares that sum to 1 at each step; `changes` replaces fields."""
    generator = torch.Generator().manual_seed(seed)
    steps, positions = len(target), len(source)
    shares = torch.rand(steps, positions + steps, generator=generator, dtype=torch.float64)
    shares[:, positions:] = shares[:, positions:].tril(-1)
    shares = (shares / shares.sum(1, keepdim=True)).float()
    values: dict[str, Any] = {
        "source": shares[:, :positions],
        "target": shares[:, positions:],
        "start": torch.full((steps,), 0.03),
        "logits": torch.randn(steps, generator=generator),
        "log_probability": torch.rand(steps, generator=generator).log(),
        "source_tokens": source,
        "target_tokens": target,
        "predicted_tokens": target,
        "source_ids": torch.arange(positions),
        "target_ids": torch.arange(steps) + 100,
        "predicted_ids": torch.arange(steps) + 100,
        "source_words": group_words(source, [token == "</s>" for token in source]),
        "target_words": group_words(target, [token == "</s>" for token in target]),
        "conservation_error": 3e-7,
        "start_token": "exclude",
        "prefix": "model",
        "predict": "top1",
        "method": UsedMethod("LRP", {"rule": "AlphaBeta(alpha=1.0, beta=0.0)"}),
        "model": "made-up/en-fr",
        "dtype": "float32",
        "notes": ("float16 weights were propagated in float32",),
    }
    return Contributions(**(values | changes))
