"""Tiny models with random weights, of all families, and the rebuilt models of the golden figures."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from built_once import built_once
from packaging.version import Version
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.seamless_m4t import modeling_seamless_m4t


def _classes(config: str, model: str) -> tuple[type[PreTrainedConfig], type[PreTrainedModel]]:
    return getattr(transformers, config), getattr(transformers, model)


# Keyed by `config.model_type`.
CLASSES: dict[str, tuple[type[PreTrainedConfig], type[PreTrainedModel]]] = {
    "marian": _classes("MarianConfig", "MarianMTModel"),
    "pegasus": _classes("PegasusConfig", "PegasusForConditionalGeneration"),
    "bart": _classes("BartConfig", "BartForConditionalGeneration"),
    "plbart": _classes("PLBartConfig", "PLBartForConditionalGeneration"),
    "blenderbot-small": _classes("BlenderbotSmallConfig", "BlenderbotSmallForConditionalGeneration"),
    "blenderbot": _classes("BlenderbotConfig", "BlenderbotForConditionalGeneration"),
    "mbart": _classes("MBartConfig", "MBartForConditionalGeneration"),
    "m2m_100": _classes("M2M100Config", "M2M100ForConditionalGeneration"),
    "t5": _classes("T5Config", "T5ForConditionalGeneration"),
    "mt5": _classes("MT5Config", "MT5ForConditionalGeneration"),
    "umt5": _classes("UMT5Config", "UMT5ForConditionalGeneration"),
    "fsmt": _classes("FSMTConfig", "FSMTForConditionalGeneration"),
    "whisper": _classes("WhisperConfig", "WhisperForConditionalGeneration"),
    "seamless_m4t": _classes("SeamlessM4TConfig", "SeamlessM4TForTextToText"),
}
ALL_FAMILIES = tuple(CLASSES)
# The two that stand for post-norm and pre-norm where not all are needed.
FAMILIES = ("marian", "pegasus")
SETTINGS = ("a1_b0_eps1e-12", "a0.5_b0.5_eps1e-12")
GOLDEN = ("post_norm", "pre_norm", "narrow_heads")

EOS, PAD, VOCABULARY = 1, 39, 40
_STARTS = {"marian": PAD, "pegasus": PAD, "t5": PAD, "mt5": PAD, "umt5": PAD, "whisper": 38}  # others: the end token

# What older releases of transformers do not do as they should
OLD_SEAMLESS = not hasattr(modeling_seamless_m4t, "create_causal_mask")
RELEASE = Version(transformers.__version__)
_SINUSOIDAL = ("marian", "pegasus", "fsmt")  # fixed position embeddings among their parameters

_UNEVEN = {
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 20,
}
# More encoder than decoder layers: with fewer, `generate` of transformers makes a cache with too few layers.
_T5_UNEVEN = {"num_layers": 2, "num_decoder_layers": 1, "num_heads": 3, "d_kv": 6, "d_ff": 20}
_UNTIED = {"tie_word_embeddings": False}
_UNSCALED = {"scale_embedding": False, "activation_function": "gelu"}
_SMALL_T5 = {"relative_attention_num_buckets": 4, "relative_attention_max_distance": 6}

# What other families call other names, or have on top.
_OWN: dict[str, dict[str, Any]] = {
    "fsmt": {"src_vocab_size": 43, "tgt_vocab_size": VOCABULARY, "num_beams": 1},
    "whisper": {
        "num_mel_bins": 5,
        "max_source_positions": 6,
        "max_target_positions": 32,
        "scale_embedding": False,
        "activation_function": "gelu",
        "bos_token_id": 0,
        "suppress_tokens": None,
        "begin_suppress_tokens": None,
    },
    "m2m_100": {"max_position_embeddings": 64},  # positions are counted from the padding token's id on
    "seamless_m4t": {"hidden_size": 16, "max_position_embeddings": 64},
}

# By a readable name: the family, and what differs from `tiny_model(family)`.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{family: (family, {}) for family in ALL_FAMILIES},
    "marian uneven": ("marian", _UNEVEN | {"activation_function": "swish"}),
    "marian two vocabularies": (
        "marian",
        {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 44, "tie_word_embeddings": True},
    ),
    "pegasus untied": ("pegasus", _UNTIED | _UNSCALED),
    "bart uneven, untied": ("bart", _UNEVEN | _UNTIED),
    "bart unscaled": ("bart", _UNSCALED),
    "plbart unscaled, uneven": ("plbart", _UNSCALED | _UNEVEN),
    "plbart untied": ("plbart", _UNTIED),
    "blenderbot-small unscaled, uneven": ("blenderbot-small", _UNSCALED | _UNEVEN),
    "blenderbot unscaled, uneven": ("blenderbot", _UNSCALED | _UNEVEN),
    "mbart unscaled, uneven": ("mbart", _UNSCALED | _UNEVEN),
    "mbart untied": ("mbart", _UNTIED),
    "m2m_100 unscaled, uneven": ("m2m_100", _UNSCALED | _UNEVEN),
    "m2m_100 untied": ("m2m_100", _UNTIED),
    "t5 uneven": ("t5", _T5_UNEVEN),
    "t5 gated": ("t5", {"feed_forward_proj": "gated-gelu"}),
    "t5 gated, unscaled, untied, uneven": ("t5", {"feed_forward_proj": "gated-gelu"} | _UNTIED | _T5_UNEVEN),
    "t5 few buckets, gelu": ("t5", {"feed_forward_proj": "gelu"} | _SMALL_T5),
    "mt5 plain, uneven": ("mt5", {"feed_forward_proj": "relu"} | _T5_UNEVEN),
    "mt5 untied": ("mt5", _UNTIED),
    "umt5 uneven, few buckets": ("umt5", _T5_UNEVEN | _SMALL_T5),
    "umt5 plain, untied": ("umt5", {"feed_forward_proj": "relu"} | _UNTIED),
    "fsmt unscaled, uneven": ("fsmt", _UNSCALED | _UNEVEN),
    "fsmt one vocabulary, tied": ("fsmt", {"src_vocab_size": VOCABULARY, "tie_word_embeddings": True}),
    "whisper uneven": ("whisper", _UNEVEN | {"activation_function": "relu"}),
    "whisper scaled, untied": ("whisper", {"scale_embedding": True} | _UNTIED),
    "seamless_m4t unscaled, uneven": ("seamless_m4t", _UNSCALED | _UNEVEN),
    "seamless_m4t untied": ("seamless_m4t", _UNTIED),
}


@built_once
def tiny_model(
    family: str = "marian", *, seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any
) -> PreTrainedModel:
    """A model in eval mode, none of whose parameters is zero or one; `changes` replaces config values.

    `tie_word_embeddings=False` unties the output layer also where the config class forces it to be tied, as
    transformers does for checkpoints that hold both weights. FSMT runs in float64 only with `fill_with_lowest`, and
    what cannot be computed in float64 by an old release is skipped.
    """
    if family == "seamless_m4t" and dtype == torch.float64 and OLD_SEAMLESS:
        pytest.skip("transformers before 5.8 cannot compute SeamlessM4T in float64")
    config_class, model_class = CLASSES[family]
    config = config_class(**(_config(family) | changes))
    model = model_class(config)
    head: Any = output_layer(model)
    if changes.get("tie_word_embeddings") is False:
        head.weight = nn.Parameter(head.weight.detach().clone())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name and family in _SINUSOIDAL:
                continue
            parameter.normal_(0.0, 0.3, generator=generator)
            if name.endswith(("norm.weight", "layernorm_embedding.weight")):
                parameter.add_(1.0)
        if hasattr(model, "final_logits_bias"):
            model.get_buffer("final_logits_bias").normal_(0.0, 0.3, generator=generator)
    if family == "umt5" and not getattr(
        model.get_submodule("decoder.block.0.layer.0.SelfAttention"), "is_causal", True
    ):
        pytest.skip(f"transformers {RELEASE} lets the decoder of UMT5 look ahead, which is refused")
    return model.eval().to(dtype)


def require_attention_weights(output: Any) -> None:
    """Skip where an older release of transformers returns none, as 5.15 does for T5."""
    if not output.encoder_attentions and Version("5.20") > RELEASE:
        pytest.skip(f"transformers {RELEASE} returns no attention weights of this model")


def fill_with_lowest(tensor: Tensor) -> Tensor:
    """Stands in for FSMT's `fill_with_neg_inf`, which fails in float64: the lowest number of float32 does not."""
    return torch.full_like(tensor, torch.finfo(torch.float32).min)


def tiny_variant(name: str, **options: Any) -> PreTrainedModel:
    """The model of VARIANTS with this name; `options` are those of `tiny_model` and win over the variant's."""
    family, changes = VARIANTS[name]
    return tiny_model(family, **(changes | options))


def output_layer(model: PreTrainedModel) -> nn.Module:
    """The linear layer that computes logits."""
    names = ("lm_head", "proj_out", "model.decoder.output_projection")
    return next(module for name, module in model.named_modules() if name in names)


def random_ids(*shape: int, seed: int = 0, vocab: int = 38) -> Tensor:
    """Token ids that are neither eos (0 and 1) nor padding (39)."""
    return torch.randint(2, vocab, shape, generator=torch.Generator().manual_seed(seed))


def encoder_inputs(model: PreTrainedModel, length: int = 5, seed: int = 3) -> dict[str, Tensor]:
    """What the encoder is given: {"input_ids": [length]}, or {"input_features": [bins, frames]} of an audio model.

    An audio model's number of frames is fixed: two per source position.
    """
    if model.main_input_name != "input_features":
        return {"input_ids": random_ids(length, seed=seed)}
    config: Any = model.config
    shape = config.num_mel_bins, 2 * config.max_source_positions
    features = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return {"input_features": features.to(model.dtype)}


def decoder_inputs(model: PreTrainedModel, length: int = 6, seed: int = 4) -> Tensor:
    """The decoder's input ids [length], from the start token on."""
    start: Any = model.config.decoder_start_token_id
    return torch.cat([torch.tensor([start]), random_ids(length - 1, seed=seed)])


def _config(family: str) -> dict[str, Any]:
    """Config values of a family's tiny model."""
    start = _STARTS.get(family, EOS)
    if family.endswith("t5"):
        sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "vocab_size": VOCABULARY}
        return sizes | {"pad_token_id": PAD, "decoder_start_token_id": start, "eos_token_id": EOS}
    config = _sizes(d_model=16, heads=2, ffn=24, layers=2, vocab=VOCABULARY, pad=PAD)
    config["decoder_start_token_id"] = start
    return config | _OWN.get(family, {})


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
    """`name`: post_norm, narrow_heads (Marian) or pre_norm (Pegasus). Ids are 1-D, shares [T, S] and [T, T]."""
    with np.load(Path(__file__).parents[1] / "golden" / f"{name}.npz") as file:
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
