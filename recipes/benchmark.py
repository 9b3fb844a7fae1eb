"""Measure the speed and memory of explain(), as ratios within one run.

    python recipes/benchmark.py --output benchmark.json [--checkpoint PATH_OR_HUB_ID [--data FILE FILE]]
                                [--speech PATH_OR_HUB_ID] [--training [--pairs tatoeba-en-fr.tsv]] [--quick]

On a randomly initialised Transformer base and, if given, on a real checkpoint: one forward pass; one forward and T
backward passes (what gradient x input needs), also in the cheapest form, without gradients of weights; explain() for
all T steps, R_t(source) alone, and without the compiled part; inseq's input_x_gradient where inseq is installed; peak
memory; the growth with sentence length; lists of sentences, prefix types that share the encoder and, with a corpus,
`hf-lrp analyze` in one and two processes and where its time goes (benchmark_corpus.py). Then explain() on other
families in the size of Transformer base, against Marian, on a decoder-only model and on Whisper (benchmark_models.py);
and, if asked for, training (benchmark_training.py).
Machines differ and are never idle: only ratios between lines of one run mean something.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import math
import multiprocessing
import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import benchmark_training
import psutil
import torch
from benchmark_corpus import compiled_off, list_tasks, measure_analyze, prefix_tasks, show_corpus
from benchmark_models import measure_decoder_only, measure_speech, show_families, show_models
from benchmark_times import seconds
from rich.console import Console
from rich.table import Table
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_lrp import explain
from hf_lrp.data.files import write_atomically
from hf_lrp.environment import describe_environment

VOCABULARY = 32_000


BART_LIKE = ("marian", "bart", "plbart", "blenderbot-small", "pegasus", "mbart", "m2m_100", "blenderbot")
OTHERS = ("fsmt", "t5", "mt5", "umt5")


def transformer_base(family: str = "marian") -> PreTrainedModel:
    """Random weights in the size of the paper's model."""
    torch.manual_seed(0)
    stacks = {"layers": 6, "ffn_dim": 2048, "attention_heads": 8}
    names = {
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in stacks.items()},
        **{"max_position_embeddings": 512, "activation_function": "relu", "scale_embedding": True, "dropout": 0.0},
        **{"src_vocab_size": VOCABULARY, "tgt_vocab_size": VOCABULARY, "langs": ["en", "fr"]},  # of FSMT
        **{"num_layers": 6, "num_decoder_layers": 6, "d_ff": 2048, "num_heads": 8, "d_kv": 64},  # of T5
    }
    tokens = {"pad_token_id": 1, "decoder_start_token_id": 1, "eos_token_id": 0, "bos_token_id": 0}
    known = AutoConfig.for_model(family).to_dict()
    sizes = {name: size for name, size in names.items() if name in known}
    config = AutoConfig.for_model(family, vocab_size=VOCABULARY, d_model=512, **tokens, **sizes)
    model = AutoModelForSeq2SeqLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0.0, 0.02)
    return model.eval()


def load(checkpoint: str | None) -> PreTrainedModel:
    """Transformer base, or a checkpoint in float32."""
    if checkpoint is None:
        return transformer_base()
    return AutoModelForSeq2SeqLM.from_pretrained(checkpoint, dtype=torch.float32, trust_remote_code=False).eval()


def random_sentence(length: int, seed: int) -> Tensor:
    """Ids [length] from the lower part of the vocabulary, where special tokens are few."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(10, VOCABULARY - 10, (length,), generator=generator)


def random_text(tokenizer: PreTrainedTokenizerBase, length: int, seed: int) -> tuple[str, Tensor]:
    """A text that the tokenizer takes apart into exactly ``length`` ids, and those ids."""
    pieces = [piece[1:] for piece in tokenizer.get_vocab() if piece.startswith("▁")]
    words = [piece for piece in pieces if piece.isascii() and piece.isalpha()][:5000]
    whole = [word for word, ids in zip(words, tokenizer(words).input_ids, strict=True) if len(ids) == 2]
    drawn = torch.randint(len(whole), (length - 1,), generator=torch.Generator().manual_seed(seed)).tolist()
    text = " ".join(whole[i] for i in drawn)
    return text, torch.tensor(tokenizer(text).input_ids)


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


def compare(checkpoint: str | None, source: int, target: int, repeats: int) -> dict[str, Any]:
    """The four ways side by side on sentences of these lengths."""
    model = load(checkpoint)
    ids = random_sentence(source, 1), random_sentence(target, 2)
    if checkpoint is not None:
        tokenizer = AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=False)
        texts, ids = zip(*(random_text(tokenizer, length, length) for length in (source, target)), strict=True)
    tasks: dict[str, Callable[[], None]] = {
        "forward": lambda: forward(model, *ids),
        "forward + T backward": lambda: backward_passes(model, *ids),
        "forward + T backward, to embeddings only": lambda: backward_passes_to_embeddings(model, *ids),
        "explain": lambda: explain_all(model, *ids),
        "explain, R(source) alone": lambda: source_alone(model, *ids),
        "explain without the compiled part": lambda: without_compiled(model, *ids),
    }
    if checkpoint is not None and importlib.util.find_spec("inseq"):
        tasks["inseq input_x_gradient"] = inseq_task(checkpoint, *texts)
    return {"source": source, "target": target, "seconds": seconds(tasks, repeats)}


def peak_memory(checkpoint: str | None, length: int, max_memory: str | None) -> int:
    """Bytes that explain() takes on top of the loaded model, for S = T = length, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(peak_memory_here, (checkpoint, length, max_memory, torch.get_num_threads()))


def peak_memory_here(checkpoint: str | None, length: int, max_memory: str | None, threads: int) -> int:
    torch.set_num_threads(threads)
    model = load(checkpoint)
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


def growth(checkpoint: str | None, lengths: list[int], repeats: int) -> list[dict[str, Any]]:
    """Time and memory for S = T = each length."""
    model = load(checkpoint)
    rows = []
    for length in lengths:
        ids = random_sentence(length, 1), random_sentence(length, 2)
        tasks = {
            "forward + T backward, to embeddings only": lambda ids=ids: backward_passes_to_embeddings(model, *ids),
            "explain": lambda ids=ids: explain_all(model, *ids),
        }
        times = seconds(tasks, repeats if length < 80 else 1)
        rows.append({"length": length, "seconds": times, "peak memory": peak_memory(checkpoint, length, None)})
    return rows


def families(repeats: int) -> dict[str, float]:
    """Seconds that explain() takes on each family at equal size, S = 20, T = 23."""
    ids = random_sentence(20, 1), random_sentence(23, 2)
    models = {family: transformer_base(family) for family in BART_LIKE + OTHERS}
    return seconds({name: lambda m=model: explain_all(m, *ids) for name, model in models.items()}, repeats)


def corpus(checkpoint: str | None, data: list[str] | None, quick: bool) -> dict[str, Any]:
    """Lists of sentences, prefix types of one source and, with a corpus, processes."""
    model, repeats = load(checkpoint), 2 if quick else 3
    given, generated = (seconds(tasks, repeats) for tasks in list_tasks(model, random_sentence))
    result: dict[str, Any] = {"list": {"targets given": given, "translations generated": generated}}
    result["prefixes"] = {
        length: seconds(prefix_tasks(model, random_sentence, length), repeats if length < 80 else 2)
        for length in ([10] if quick else [10, 20, 40, 80])
    }
    if checkpoint is not None and data is not None:
        result["analyze"] = measure_analyze(checkpoint, data, quick)
    return result


def measure(checkpoint: str | None, quick: bool) -> dict[str, Any]:
    """Everything about one model and single sentences."""
    repeats = 2 if quick else 6
    lengths = [10, 20] if quick else [10, 20, 40, 80, 160]
    result: dict[str, Any] = {"comparison": compare(checkpoint, 20, 23, repeats)}
    result["growth"] = growth(checkpoint, lengths, 1 if quick else 4)
    long = 40 if quick else 200
    result["memory"] = [
        {"length": long, "max_memory": limit, "peak memory": peak_memory(checkpoint, long, limit)}
        for limit in ("1GB", None)
    ]
    return result


def show(name: str, result: dict[str, Any], console: Console) -> None:
    """Print one model's results."""
    comparison = result["comparison"]
    times = comparison["seconds"]
    table = Table(title=f"{name}, S = {comparison['source']}, T = {comparison['target']}")
    table.add_column("what")
    for column in ("seconds", "explain takes"):
        table.add_column(column, justify="right")
    for task, value in times.items():
        table.add_row(task, f"{value:.3f}", f"{times['explain'] / value:.2f} x")
    console.print(table)
    table = Table(title=f"{name}, growth with S = T")
    for column in ("S = T", "explain, s", "to embeddings only, s", "ratio", "peak memory, MiB"):
        table.add_column(column, justify="right")
    for row in result["growth"]:
        ours, base = row["seconds"]["explain"], row["seconds"]["forward + T backward, to embeddings only"]
        memory = f"{row['peak memory'] / 2**20:.0f}"
        table.add_row(str(row["length"]), f"{ours:.3f}", f"{base:.3f}", f"{ours / base:.2f}", memory)
    console.print(table)
    times = {row["length"]: row["seconds"]["explain"] for row in result["growth"]}
    if 40 in times and 160 in times:
        console.print(f"growth exponent from 40 to 160: {math.log(times[160] / times[40], 4):.2f}")
    for row in result["memory"]:
        limit = row["max_memory"] or "none"
        console.print(f"S = T = {row['length']}, limit {limit}: peak {row['peak memory'] / 2**20:.0f} MiB")


def training(quick: bool, pairs: Path | None, console: Console) -> dict[str, Any]:
    """What benchmark_training.py measures."""
    results = benchmark_training.measure(quick, pairs)
    benchmark_training.show(results, console)
    return results


def commit() -> str:
    """The commit that is measured, with "+" if files differ from it."""
    here = Path(__file__).parent
    try:
        run = functools.partial(subprocess.run, cwd=here, capture_output=True, text=True, check=True)
        changed = run(["git", "status", "--porcelain", "--untracked-files=no"]).stdout
        return run(["git", "rev-parse", "--short", "HEAD"]).stdout.strip() + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="JSON file for the figures")
    parser.add_argument("--checkpoint", help="a real Marian checkpoint, folder or Hub id")
    parser.add_argument("--data", nargs=2, metavar="FILE", help="sources and targets for the checkpoint, line by line")
    parser.add_argument("--speech", help="a Whisper checkpoint (default: random weights in the size of Whisper tiny)")
    parser.add_argument("--training", action="store_true", help="measure training as well")
    parser.add_argument("--pairs", type=Path, help="TSV file of the embedded model's training data, for --training")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="fewer repeats and shorter sentences")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    console, started = Console(), time.perf_counter()
    results: dict[str, Any] = {
        "commit": commit(),
        "machine": {"cpus": os.cpu_count(), **describe_environment()},
        "threads": options.threads,
    }
    console.print(results["commit"], results["machine"])
    models = {"Transformer base": None} | ({options.checkpoint: options.checkpoint} if options.checkpoint else {})
    for name, checkpoint in models.items():
        results[name] = measure(checkpoint, options.quick)
        show(name, results[name], console)
        results[name]["corpus"] = corpus(checkpoint, options.data, options.quick)
        show_corpus(name, results[name]["corpus"], console)
    results["families"] = families(2 if options.quick else 5)
    show_families(results["families"], console)
    results["decoder only"] = measure_decoder_only(1 if options.quick else 3)
    results["speech"] = measure_speech(options.speech, 1 if options.quick else 2)
    show_models(results["decoder only"], results["speech"], console)
    if options.training:
        results["training"] = training(options.quick, options.pairs, console)
    results["minutes"] = (time.perf_counter() - started) / 60
    console.print(f"{results['minutes']:.1f} minutes in all")
    write_atomically(options.output, (json.dumps(results, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
