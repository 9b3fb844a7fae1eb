"""Shares without that of the decoder's start, renormalised to sum to 1: the paper's definition."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hf_lrp.methods.method import Method


def leave_out_start(
    source: Tensor, target: Tensor, start: Tensor, steps: Sequence[int], method: Method
) -> tuple[Tensor, Tensor]:
    """Raw shares of the source `[T, S]` and of the prefix `[T, N]`, divided by their sum at each step.

    Shares of both signs can cancel, and a quotient by rounding errors means nothing. How inexact the shares are shows
    in how far all of them, with those of the start `[T]`, miss 1: relative to their sizes, what is left may be as
    wrong. Shares of one sign do not cancel, however small they are. ``steps``: the numbers of the T steps, for errors.

    Raises:
        ValueError: what is left at a step cannot be told from 0.
    """
    total = source.sum(1) + target.sum(1)
    size = source.abs().sum(1) + target.abs().sum(1)
    missed = (total + start - 1).abs() / (size + start.abs())
    lost = ~(total.abs() > missed.clamp_min(torch.finfo(total.dtype).eps) * size)
    if lost.any():
        row = int(lost.nonzero()[0, 0])
        raise ValueError(_too_little(steps[row], total[row].item(), size[row].item(), method))
    return source / total[:, None], target / total[:, None]


def _too_little(step: int, total: float, size: float, method: Method) -> str:
    found = (
        f"the shares of source and prefix cancel: they sum to {total:.2g}, while their sizes sum to {size:.2g}"
        if size
        else "source and prefix have no share at all"
    )
    return (
        f"At step {step}, with {method}, {found}, so nothing is left that could sum to 1 without the start token. Use "
        "start_token='keep', which returns raw shares, a rule closer to AlphaBeta(1, 0), or explain model.double()."
    )
