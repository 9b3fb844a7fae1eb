"""How much memory may be used, and what fits into it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import psutil
import torch
from accelerate.utils.modeling import convert_file_size_to_int
from transformers import PreTrainedModel

from hf_lrp.models.configs import position_limit, vocabulary_sizes

# Without a limit by the user, this share of the memory that is free at the moment.
FREE_SHARE = 0.5
LARGEST_BATCH = 64


def memory_limit(given: float | str | None, device: torch.device) -> int:
    """Bytes, from a number, a text such as "4GB" or "4GiB", or a share of what is free on ``device``."""
    if given is None:
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
        return int(free * FREE_SHARE)
    if isinstance(given, str):
        try:  # accelerate reads a lower-case b as bits, which nobody means here
            size = convert_file_size_to_int(given.upper().replace("IB", "iB"))
        except (ValueError, OverflowError):
            raise ValueError(
                f"max_memory must be a number of bytes, or a text such as '4GB', got {given!r}."
            ) from None
    else:
        is_whole = isinstance(given, float) and given.is_integer()  # 4e9
        size = require_whole("max_memory", int(given) if is_whole else given, " of bytes, or a text such as '4GB'")
    if size <= 0:
        raise ValueError(f"max_memory must be positive, got {given}.")
    return int(size)


def require_whole(name: str, given: Any, unit: str = "") -> int:
    """An option that must be a whole number, of Python or of numpy."""
    if not isinstance(given, (int, np.integer)) or isinstance(given, bool):
        raise TypeError(f"{name} must be a whole number{unit}, got {given!r}.")
    return int(given)


def generation_batch_size(model: PreTrainedModel, longest: int, beams: int, limit: int) -> int:
    """How many sources of up to ``longest`` tokens or frames may be translated together within ``limit`` bytes."""
    config: Any = model.config
    item = next(model.parameters()).element_size()
    names = ("num_decoder_layers", "decoder_layers", "num_hidden_layers")  # the last where there is no encoder
    layers = next(getattr(config, name) for name in names if hasattr(config, name))
    width = config.num_heads * config.d_kv if hasattr(config, "d_kv") else config.hidden_size  # d_kv: T5's
    written = min(3 * longest + 20, position_limit(model) or math.inf)  # that generation may write
    cache = 2 * layers * (longest + written) * width
    scores = 8 * vocabulary_sizes(model)["target"]  # logits and what beam search keeps of them
    return max(1, min(LARGEST_BATCH, limit // (item * beams * (cache + scores))))
