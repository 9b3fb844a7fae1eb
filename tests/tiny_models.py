"""Tiny models with random weights, and the rebuilt models of the golden figures."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import (
    MarianConfig,
    MarianMTModel,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PreTrainedConfig,
    PreTrainedModel,
)

CLASSES: dict[str, tuple[type[PreTrainedConfig], type[PreTrainedModel]]] = {
    "marian": (MarianConfig, MarianMTModel),
    "pegasus": (PegasusConfig, PegasusForConditionalGeneration),
}
FAMILIES = tuple(CLASSES)
SETTINGS = ("a1_b0_eps1e-12", "a0.5_b0.5_eps1e-12")


def tiny_model(
    family: str = "marian", *, seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any
) -> PreTrainedModel:
    """A model in eval mode, none of whose parameters is zero or one; `changes` replaces config values."""
    config_class, model_class = CLASSES[family]
    config = config_class(**(_sizes(d_model=16, heads=2, ffn=24, layers=2, vocab=40, pad=39) | changes))
    model = model_class(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name:
                continue
            parameter.normal_(0.0, 0.3, generator=generator)
            if name.endswith("norm.weight"):
                parameter.add_(1.0)
        model.get_buffer("final_logits_bias").normal_(0.0, 0.3, generator=generator)
    return model.eval().to(dtype)


def random_ids(*shape: int, seed: int = 0, vocab: int = 38) -> Tensor:
    """Token ids that are neither eos (0 and 1) nor padding (39)."""
    return torch.randint(2, vocab, shape, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class Golden:
    """A rebuilt model, its inputs, and what the released code computes for them."""

    model: PreTrainedModel
    source_ids: Tensor
    target_ids: Tensor
    decoder_ids: Tensor
    logits: Tensor
    source: dict[str, Tensor]
    decoder: dict[str, Tensor]


def load_golden(name: str, dtype: torch.dtype = torch.float64) -> Golden:
    """`name`: post_norm (Marian) or pre_norm (Pegasus). Ids are 1-D, shares [T, S] and [T, T]."""
    with np.load(Path(__file__).parent / "golden" / f"{name}.npz") as file:
        arrays = {key: torch.from_numpy(file[key]) for key in file if key != "meta"}
        meta = json.loads(str(file["meta"]))
    target = arrays["target_ids"][0].long()
    start = torch.tensor([meta["pad"]])
    return Golden(
        model=_rebuild(meta, arrays, dtype),
        source_ids=arrays["source_ids"][0].long(),
        target_ids=target,
        decoder_ids=torch.cat([start, target[:-1]]),
        logits=arrays["logits"][0],
        source={setting: arrays[f"source/{setting}"][0] for setting in SETTINGS},
        decoder={setting: arrays[f"target/{setting}"][0] for setting in SETTINGS},
    )


def _rebuild(meta: dict[str, Any], arrays: dict[str, Tensor], dtype: torch.dtype) -> PreTrainedModel:
    config_class, model_class = CLASSES["pegasus" if meta["normalize_before"] else "marian"]
    sizes = {key: meta[key] for key in ("d_model", "heads", "ffn", "layers", "vocab", "pad")}
    positions = arrays["positions"]
    model = model_class(config_class(**_sizes(**sizes) | {"max_position_embeddings": len(positions)}))
    weights = {key.removeprefix("weights/"): value for key, value in arrays.items() if key.startswith("weights/")}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and all("embed" in key or key == "lm_head.weight" for key in missing)
    with torch.no_grad():
        for side in ("encoder", "decoder"):
            model.get_parameter(f"model.{side}.embed_positions.weight").copy_(positions)
    return model.eval().to(dtype)


def _sizes(*, d_model: int, heads: int, ffn: int, layers: int, vocab: int, pad: int) -> dict[str, Any]:
    sides = {"attention_heads": heads, "ffn_dim": ffn, "layers": layers}
    return {
        **{f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in sides.items()},
        "d_model": d_model,
        "vocab_size": vocab,
        "decoder_vocab_size": vocab,
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "eos_token_id": 1,
        "forced_eos_token_id": None,
        "max_position_embeddings": 32,
        "activation_function": "relu",
        "scale_embedding": True,
    }
