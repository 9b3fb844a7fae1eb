"""Tiny decoder-only models with random weights, of all families."""

from typing import Any

import torch
import transformers
from built_once import built_once
from tiny_models import EOS, PAD, VOCABULARY
from transformers import PreTrainedModel

_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": PAD,
    "bos_token_id": 0,
    "eos_token_id": EOS,
}
_WINDOWS = {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}
_FALCON = {"bias": True, "alibi": False, "ffn_hidden_size": 20}
_FALCON_7B = _FALCON | {"new_decoder_architecture": False, "multi_query": True}
_OPT = {"ffn_dim": 20, "word_embed_proj_dim": 16}

# By a readable name: the family, the prefix of its classes, and what its config has on top.
DECODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("llama", "Llama", {}),
    "llama biased, wide heads": ("llama", "Llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 6}),
    "mistral": ("mistral", "Mistral", {"sliding_window": 3}),
    "qwen2": ("qwen2", "Qwen2", _WINDOWS | {"use_sliding_window": True}),
    "qwen3": ("qwen3", "Qwen3", {"head_dim": 6}),
    "smollm3": ("smollm3", "SmolLM3", {"no_rope_layers": [1, 0]}),
    "olmo2": ("olmo2", "Olmo2", {}),
    "phi3": ("phi3", "Phi3", {"sliding_window": 3}),
    "gemma": ("gemma", "Gemma", {"head_dim": 6}),
    "gemma2": (
        "gemma2",
        "Gemma2",
        _WINDOWS | {"head_dim": 6, "attn_logit_softcapping": 1.0, "final_logit_softcapping": 2.0},
    ),
    "gemma3_text": ("gemma3_text", "Gemma3", _WINDOWS | {"head_dim": 6, "query_pre_attn_scalar": 5}),
    "cohere": ("cohere", "Cohere", {"logit_scale": 0.3}),
    "cohere with norms on queries and keys": ("cohere", "Cohere", {"use_qk_norm": True}),
    "cohere2": ("cohere2", "Cohere2", _WINDOWS),
    "gpt_neox": ("gpt_neox", "GPTNeoX", {"rotary_pct": 0.5}),
    "gpt_neox one after the other": ("gpt_neox", "GPTNeoX", {"use_parallel_residual": False}),
    "falcon": ("falcon", "Falcon", _FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon 7b": ("falcon", "Falcon", _FALCON_7B),
    "falcon rw": ("falcon", "Falcon", _FALCON_7B | {"multi_query": False, "alibi": True, "parallel_attn": False}),
    "bloom": ("bloom", "Bloom", {"n_layer": 2, "n_head": 4}),
    "gpt2": ("gpt2", "GPT2", {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 20}),
    "opt": ("opt", "OPT", _OPT),
    "opt narrow embeddings": ("opt", "OPT", _OPT | {"word_embed_proj_dim": 6}),
    "opt post-norm": ("opt", "OPT", _OPT | {"do_layer_norm_before": False}),
    "xglm": ("xglm", "XGLM", {"d_model": 16, "num_layers": 2, "attention_heads": 4, "ffn_dim": 20}),
}


@built_once
def tiny_decoder(
    name: str = "llama", *, seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any
) -> PreTrainedModel:
    """A model of DECODERS in eval mode, none of whose parameters is zero or one; `changes` replaces config values."""
    _, prefix, own = DECODERS[name]
    config_class = getattr(transformers, prefix + ("TextConfig" if prefix == "Gemma3" else "Config"))
    model_class = getattr(transformers, prefix + ("LMHeadModel" if prefix == "GPT2" else "ForCausalLM"))
    model: PreTrainedModel = model_class(config_class(**(_SIZES | own | changes)))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
            if parameter.dim() == 1:
                parameter.add_(0.5)
    if prefix == "Gemma2":  # which older releases of transformers compute without soft caps unless told otherwise
        model.set_attn_implementation("eager")
    return model.eval().to(dtype)
