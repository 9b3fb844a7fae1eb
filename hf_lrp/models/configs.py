"""Configs of a model: what they say of token ids, positions and sizes, in one place for explaining and training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import nn
from transformers import GenerationConfig, PreTrainedModel

IGNORED_LABEL = -100  # labels that no loss counts
START_UNKNOWN = (
    "model.config.decoder_start_token_id is not set, so the first decoder input is unknown. Set it to the token the "
    "model was trained to start with"
)


def generation_config_of(model: PreTrainedModel) -> GenerationConfig:
    """A model's generation config; what its config says, for models that cannot generate."""
    config = getattr(model, "generation_config", None)
    return GenerationConfig.from_model_config(model.config) if config is None else config


def start_token(model: PreTrainedModel) -> int | None:
    """The decoder's first input: that of the generation config, as in `generate`, or else of the config."""
    start = getattr(generation_config_of(model), "decoder_start_token_id", None)
    return getattr(model.config, "decoder_start_token_id", None) if start is None else start


def require_start_token(model: PreTrainedModel) -> int:
    """The decoder's first input; raises if no config names it."""
    start = start_token(model)
    if start is None:
        raise ValueError(f"{START_UNKNOWN}.")
    return start


def end_tokens(model: PreTrainedModel) -> list[int]:
    """The tokens that end a sentence, by the generation config or else by the config; none if neither names any."""
    return as_list(generation_config_of(model).eos_token_id) or as_list(model.config.eos_token_id)


def require_end_tokens(model: PreTrainedModel) -> list[int]:
    """The tokens that end a sentence; raises if there are none."""
    ends = end_tokens(model)
    if not ends:
        raise ValueError("model.config.eos_token_id is not set, so no sentence would ever end. Set it.")
    return ends


def as_list(ids: int | Sequence[int] | None) -> list[int]:
    """Token ids of a config, which may be one, several or none."""
    if ids is None:
        return []
    return [ids] if isinstance(ids, int) else list(ids)


def position_limit(model: PreTrainedModel) -> int | None:
    """How many positions the decoder has; None: no limit, as for T5, which knows only distances between positions."""
    config = model.config
    return getattr(config, "max_target_positions", getattr(config, "max_position_embeddings", None))


def vocabulary_sizes(model: PreTrainedModel) -> dict[str, int]:
    """How many token ids the encoder reads ("source") and the head predicts ("target")."""
    return {
        "source": len(cast(nn.Embedding, model.get_input_embeddings()).weight),
        "target": len(cast(nn.Linear, model.get_output_embeddings()).weight),
    }
