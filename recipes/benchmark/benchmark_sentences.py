"""The part of benchmark.py about single sentences: against gradients, growth with their length, and memory."""

from __future__ import annotations

import importlib.util
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import torch
from benchmark_corpus import compiled_off
from benchmark_subjects import load_model, random_sentence, random_text
from benchmark_times import Tasks, take_turns
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel

from hf_lrp import explain

BASELINE = "forward + T backward, to embeddings only"


def forward(model: PreTrainedModel, source: Tensor, target: Tensor) -> None:
    """One forward pass."""
    with torch.no_grad():
        model(input_ids=source[None], decoder_input_ids=target[None], use_cache=False)


def backward_passes(model: PreTrainedModel, source: Tensor, target: Tensor) -> None:
    """One forward pass, then `backward()` from each step's top logit."""
    logits = model(input_ids=source[None], decoder_input_ids=target[None], use_cache=False).logits[0]
    for step in logits.max(-1).values:
        step.backward(retain_graph=True)
    model.zero_grad()


def backward_passes_to_embeddings(model: PreTrainedModel, source: Tensor, target: Tensor) -> None:
    """The same without gradients of weights, only down to both sides' embeddings: the least that will do."""
    embed = model.get_input_embeddings()
    inputs = [embed(ids[None]).detach().requires_grad_() for ids in (source, target)]
    logits = model(inputs_embeds=inputs[0], decoder_inputs_embeds=inputs[1], use_cache=False).logits[0]
    for step in logits.max(-1).values:
        torch.autograd.grad(step, inputs, retain_graph=True)


def explain_all(model: PreTrainedModel, source: Tensor, target: Tensor) -> None:
    """All steps."""
    explain(model, None, source, target)


def source_alone(model: PreTrainedModel, source: Tensor, target: Tensor) -> None:
    """All steps, without the encoder's way back."""
    explain(model, None, source, target, source_tokens=False)


def without_compiled(model: PreTrainedModel, source: Tensor, target: Tensor) -> None:
    """All steps, through torch alone."""
    with compiled_off():
        explain(model, None, source, target)


def inseq_task(checkpoint: str, source_text: str, target_text: str) -> Callable[[], None]:
    """inseq's input x gradient over source and prefix, for one sentence pair."""
    import inseq

    attribution = inseq.load_model(checkpoint, "input_x_gradient")

    def run() -> None:
        attribution.attribute(source_text, target_text, attribute_target=True, show_progress=False)

    return run


def compare(checkpoint: str | None, source: int, target: int, rounds: int) -> dict[str, Any]:
    """Explaining and what it is compared with, on sentences of these lengths."""
    model = load_model(checkpoint)
    ids = random_sentence(source, 1), random_sentence(target, 2)
    if checkpoint is not None:
        tokenizer = AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=False)
        texts, ids = zip(*(random_text(tokenizer, length, length) for length in (source, target)), strict=True)
    tasks: Tasks = {
        "forward": lambda: forward(model, *ids),
        "forward + T backward": lambda: backward_passes(model, *ids),
        BASELINE: lambda: backward_passes_to_embeddings(model, *ids),
        "explain": lambda: explain_all(model, *ids),
        "explain, R(source) alone": lambda: source_alone(model, *ids),
        "explain without the compiled part": lambda: without_compiled(model, *ids),
    }
    if checkpoint is not None and importlib.util.find_spec("inseq"):
        tasks["inseq input_x_gradient"] = inseq_task(checkpoint, *texts)
    return {"source": source, "target": target, **take_turns(tasks, rounds)}


def grow(checkpoint: str | None, lengths: Sequence[int], rounds: int) -> list[dict[str, Any]]:
    """Time and memory for S = T = each length; the longer, the fewer rounds."""
    model = load_model(checkpoint)
    rows = []
    for length in lengths:
        ids = random_sentence(length, 1), random_sentence(length, 2)
        tasks: Tasks = {
            BASELINE: lambda ids=ids: backward_passes_to_embeddings(model, *ids),
            "explain": lambda ids=ids: explain_all(model, *ids),
        }
        long = length >= 80  # nothing is left to warm up
        times = take_turns(tasks, max(1, rounds * 40 // (length + 20)) if long else rounds, warm_up=not long)
        rows.append({"length": length, **times, "memory": peak_memory(checkpoint, length, None)})
    return rows


def measure_memory(checkpoint: str | None, length: int) -> list[dict[str, Any]]:
    """The peak for long sentences, with and without a limit."""
    return [
        {"length": length, "limit": limit, "bytes": peak_memory(checkpoint, length, limit)} for limit in (None, "1GB")
    ]


def peak_memory(checkpoint: str | None, length: int, max_memory: str | None) -> int:
    """Bytes that explain() takes on top of the loaded model, for S = T = length, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(peak_memory_here, (checkpoint, length, max_memory, torch.get_num_threads()))


def peak_memory_here(checkpoint: str | None, length: int, max_memory: str | None, threads: int) -> int:
    """The same in this process."""
    torch.set_num_threads(threads)
    model = load_model(checkpoint)
    source, target = random_sentence(length, 1), random_sentence(length, 2)
    explain(model, None, source[:2], target[:2])
    process = psutil.Process()
    before = peak = process.memory_info().rss
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(explain, model, None, source, target, max_memory=max_memory)
        while not running.done():
            peak = max(peak, process.memory_info().rss)
            time.sleep(0.005)
        running.result()
    return peak - before
