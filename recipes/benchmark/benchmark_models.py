"""The part of benchmark.py about other models: families of equal size, a decoder-only model, and Whisper."""

from __future__ import annotations

from typing import Any

import torch
from benchmark_sentences import BASELINE, explain_all
from benchmark_subjects import BART_LIKE, OTHERS, random_sentence, transformer_base
from benchmark_times import Tasks, take_turns
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSpeechSeq2Seq,
    PreTrainedModel,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from hf_lrp import explain
from hf_lrp.relevance.patching import patched
from hf_lrp.relevance.propagation import propagate

PROMPT, STEPS = 100, 25
SPEECH_STEPS = 8


def compare_families(rounds: int) -> dict[str, Any]:
    """Explaining with each family at equal size, S = 20, T = 23."""
    ids = random_sentence(20, 1), random_sentence(23, 2)
    models = {family: transformer_base(family) for family in BART_LIKE + OTHERS}
    return take_turns({name: lambda m=model: explain_all(m, *ids) for name, model in models.items()}, rounds)


def decoder_only() -> PreTrainedModel:
    """Random weights in the size of SmolLM2-135M: rotary positions, nine heads, three of keys and values."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "vocab_size": 49152}
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3}
    config = AutoConfig.for_model("llama", **sizes, **heads, tie_word_embeddings=True, max_position_embeddings=2048)
    return AutoModelForCausalLM.from_config(config).eval()


def explain_steps(model: PreTrainedModel, ids: Tensor, steps: int, max_memory: int = 2**40) -> None:
    """The last ``steps`` predictions for a sequence of ids."""
    with patched(model) as patch:
        propagate(patch, {}, ids, lambda logits: logits.argmax(-1), slice(len(ids) - steps, len(ids)), max_memory)


def gradient_steps(model: PreTrainedModel, ids: Tensor, steps: int) -> None:
    """One forward pass, then backward passes from the top logits of these predictions to the embeddings."""
    inputs = model.get_input_embeddings()(ids[None]).detach().requires_grad_()
    logits = model(inputs_embeds=inputs, use_cache=False, logits_to_keep=steps).logits[0]
    for step in logits.max(-1).values:
        torch.autograd.grad(step, inputs, retain_graph=True)


def measure_decoder_only(rounds: int, prompt: int = PROMPT, steps: int = STEPS) -> dict[str, Any]:
    """Explaining and what it is compared with, for a prompt and the steps after it."""
    model = decoder_only()
    ids = torch.randint(10, model.config.vocab_size, (prompt + steps,), generator=torch.Generator().manual_seed(1))
    tasks: Tasks = {
        BASELINE: lambda: gradient_steps(model, ids, steps),
        "explain": lambda: explain_steps(model, ids, steps),
    }
    return {"prompt": prompt, "steps": steps, **take_turns(tasks, rounds)}


def measure_speech(checkpoint: str | None, rounds: int) -> dict[str, Any]:
    """Explaining some steps of Whisper: a checkpoint, or random weights in the size of Whisper tiny.

    The encoder has 1,500 positions however long the speech is, so features are drawn.
    """
    torch.manual_seed(0)
    if checkpoint is None:
        model: Any = WhisperForConditionalGeneration(WhisperConfig())  # the sizes of Whisper tiny
        model.generation_config.no_timestamps_token_id = 50363  # as checkpoints of today have it
    else:
        model = AutoModelForSpeechSeq2Seq.from_pretrained(checkpoint, dtype=torch.float32, trust_remote_code=False)
    model.eval()
    features = torch.randn(model.config.num_mel_bins, 2 * model.config.max_source_positions)
    target = torch.randint(10, 10_000, (SPEECH_STEPS,), generator=torch.Generator().manual_seed(1))
    tasks: Tasks = {
        "all": lambda: explain(model, None, features, target),
        "R(source) alone": lambda: explain(model, None, features, target, source_tokens=False),
    }
    return {"steps": SPEECH_STEPS, **take_turns(tasks, rounds)}
