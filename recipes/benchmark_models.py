"""The part of benchmark.py about other models: families of equal size, a decoder-only model, and Whisper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from benchmark_times import seconds
from rich.console import Console
from rich.table import Table
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
Tasks = dict[str, Callable[[], None]]


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


def measure_decoder_only(repeats: int, prompt: int = PROMPT, steps: int = STEPS) -> dict[str, Any]:
    """Seconds of both, for a prompt and the steps after it."""
    model = decoder_only()
    ids = torch.randint(10, model.config.vocab_size, (prompt + steps,), generator=torch.Generator().manual_seed(1))
    tasks: Tasks = {
        "forward + T backward, to embeddings only": lambda: gradient_steps(model, ids, steps),
        "explain": lambda: explain_steps(model, ids, steps),
    }
    return {"prompt": prompt, "steps": steps, "seconds": seconds(tasks, repeats)}


def measure_speech(checkpoint: str | None, repeats: int) -> dict[str, Any]:
    """Seconds for some steps of Whisper: a checkpoint, or random weights in the size of Whisper tiny.

    The encoder has 1,500 positions however long the speech is, so features are drawn.
    """
    torch.manual_seed(0)
    if checkpoint is None:
        model: Any = WhisperForConditionalGeneration(WhisperConfig())  # the sizes of Whisper tiny
    else:
        model = AutoModelForSpeechSeq2Seq.from_pretrained(checkpoint, dtype=torch.float32, trust_remote_code=False)
    model.eval()
    features = torch.randn(model.config.num_mel_bins, 2 * model.config.max_source_positions)
    target = torch.randint(10, 10_000, (SPEECH_STEPS,), generator=torch.Generator().manual_seed(1))
    tasks: Tasks = {
        "all": lambda: _run(explain(model, None, features, target)),
        "R(source) alone": lambda: _run(explain(model, None, features, target, source_tokens=False)),
    }
    return {"steps": SPEECH_STEPS, "seconds": seconds(tasks, repeats)}


def _run(_: Any) -> None:
    """A task returns nothing."""


def show_families(times: dict[str, float], console: Console) -> None:
    """Print the comparison of families."""
    table = Table(title="explain on families of equal size, S = 20, T = 23")
    for column in ("family", "seconds", "of Marian's"):
        table.add_column(column, justify="left" if column == "family" else "right")
    for name, value in times.items():
        table.add_row(name, f"{value:.3f}", f"{value / times['marian']:.2f} x")
    console.print(table)


def show_models(alone: dict[str, Any], speech: dict[str, Any], console: Console) -> None:
    """Print what was measured on the decoder-only model and on Whisper."""
    times = alone["seconds"]
    ours, base = times["explain"], times["forward + T backward, to embeddings only"]
    console.print(
        f"decoder only, SmolLM2's size, prompt of {alone['prompt']}, {alone['steps']} steps: {ours:.2f} s, one "
        f"forward and T backward passes to the embeddings {base:.2f} s: {ours / base:.2f} x"
    )
    whole, alone_time = (speech["seconds"][name] for name in ("all", "R(source) alone"))
    console.print(f"Whisper tiny, {speech['steps']} steps: {whole:.1f} s, R(source) alone {alone_time:.1f} s")
