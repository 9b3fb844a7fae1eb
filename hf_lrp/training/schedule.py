"""The learning rate of the Transformer: a linear warm-up, then the inverse square root of the step."""

from __future__ import annotations

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def transformer_schedule(optimizer: Optimizer, d_model: int, warmup: int, scale: float) -> LambdaLR:
    """lr = scale · d_model^-0.5 · min(step^-0.5, step · warmup^-1.5), with step 1 for the first update.

    Step it once per update. The highest rate, scale / sqrt(d_model · warmup), is that of step `warmup`.

    Raises:
        ValueError: the optimizer's learning rate, which would multiply all this, is not 1.
    """
    rates = {group["lr"] for group in optimizer.param_groups}
    if rates != {1.0}:
        raise ValueError(f"The optimizer needs a learning rate of 1.0, not {sorted(map(float, rates))}.")
    if d_model < 1 or warmup < 1 or scale <= 0:
        raise ValueError(f"d_model {d_model}, warmup {warmup} and scale {scale} must be positive.")

    def rate(updates_done: int) -> float:
        step = updates_done + 1
        return scale * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)

    return LambdaLR(optimizer, rate)
