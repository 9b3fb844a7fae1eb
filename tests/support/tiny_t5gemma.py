"""A tiny T5Gemma with random weights."""

import pytest
import torch
from built_once import built_once
from packaging.version import Version
from tiny_models import RELEASE
from torch import nn
from transformers import T5GemmaConfig, T5GemmaForConditionalGeneration, T5GemmaModuleConfig


@built_once
def tiny_t5gemma(dtype: torch.dtype = torch.float32) -> T5GemmaForConditionalGeneration:
    """In eval mode, with windows and soft caps that make a difference."""
    if Version("5.8") > RELEASE:
        pytest.skip(f"transformers {RELEASE} has other windows in T5Gemma, which is refused")
    stack = T5GemmaModuleConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        query_pre_attn_scalar=6,
        sliding_window=2,
        layer_types=["sliding_attention", "full_attention"],
        attn_logit_softcapping=5.0,
        final_logit_softcapping=2.0,
        pad_token_id=39,
        bos_token_id=2,
        eos_token_id=1,
    )
    model = T5GemmaForConditionalGeneration(T5GemmaConfig(encoder=stack, decoder=stack, vocab_size=40))
    model.set_attn_implementation("eager")  # older releases of transformers leave soft caps out
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.0, 0.3)
    return model.eval().to(dtype)
