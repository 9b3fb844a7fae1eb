"""Where training would go wrong if no process had all of the model."""

from __future__ import annotations

from transformers import Trainer


def require_whole_parameters(trainer: Trainer, purpose: str) -> None:
    """An error if parameters are divided among processes, which would wait for each other in every forward pass.

    Processes that sample or explain make different numbers of passes, and would wait for ever.
    """
    if getattr(trainer, "is_fsdp_enabled", False) or getattr(trainer, "is_fsdp_xla_enabled", False):
        kind = "FSDP"
    elif trainer.is_deepspeed_enabled and trainer.accelerator.state.deepspeed_plugin.zero_stage == 3:
        kind = "DeepSpeed ZeRO-3"
    else:
        return
    raise ValueError(
        f"{purpose} needs the whole model in every process, but {kind} divides it among them. Train with plain data "
        "parallelism (distributed_type MULTI_GPU), as recipes/training/accelerate does, or with DeepSpeed ZeRO-1 or 2."
    )
