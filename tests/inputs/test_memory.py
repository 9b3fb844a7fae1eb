"""Memory limits."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import torch
from tiny_models import tiny_model

from hf_lrp import explain
from hf_lrp.inputs.memory import LARGEST_BATCH, generation_batch_size, memory_limit
from hf_lrp.models.loading import load
from hf_lrp.relevance.patching import patched
from hf_lrp.relevance.propagation import memory_for_steps, propagate

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (1000, 1000),
        (4e9, 4 * 10**9),
        ("1GB", 10**9),
        ("1GiB", 2**30),
        ("1gib", 2**30),
        ("500mb", 5 * 10**8),
        ("0.5MB", 500_000),
    ],
)
def test_sizes_are_read(given, size):
    assert memory_limit(given, CPU) == size


def test_default_is_a_share_of_what_is_free():
    assert 0 < memory_limit(None, CPU) < memory_limit("100000GB", CPU)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (0, "must be positive"),
        (-1, "must be positive"),
        ("much", "or a text such as"),
        (0.5, "whole number"),
        (True, "whole number"),
    ],
)
def test_bad_sizes_are_named(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        memory_limit(given, CPU)


def test_batches_grow_with_memory_up_to_a_limit():
    model = tiny_model()
    sizes = [generation_batch_size(model, 20, 4, limit) for limit in (1, 10**5, 10**6, 10**12)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 1
    assert sizes[-1] == LARGEST_BATCH
    assert generation_batch_size(model, 40, 4, 10**6) < generation_batch_size(model, 10, 4, 10**6)


def test_a_sentence_may_be_written_three_times_as_long_as_its_source():
    """Keys and values of both stacks for source and target, twice for each layer, and scores, all for each beam."""
    model = tiny_model(max_position_embeddings=400)
    written = 3 * 50 + 20
    kept = 2 * model.config.decoder_layers * (50 + written) * model.config.d_model
    one = 4 * 2 * (kept + 8 * model.config.decoder_vocab_size)  # in float32, with two beams
    assert generation_batch_size(model, 50, 2, 7 * one) == 7
    assert generation_batch_size(model, 50, 2, 7 * one - 1) == 6


def test_too_little_memory_for_one_step_names_the_least_that_works():
    model, ids = tiny_model(max_position_embeddings=400), [4, 5] * 150
    with pytest.raises(ValueError, match=r"is 0\.001 MB, but .* of 300 source and 300 target tokens .*MB'") as caught:
        explain(model, None, ids, ids, max_memory="1KB")
    least = str(caught.value).split("max_memory='")[1].split("'")[0]
    assert explain(model, None, ids, ids[:4], max_memory=least).conservation_error < 1e-5
    with pytest.raises(ValueError, match="or shorter sentences"):
        explain(model, None, ids, ids, max_memory=memory_limit(least, CPU) // 2)


def peak(work):
    """Bytes that the process takes for a call, on top of what it holds before."""
    process, ended, most = psutil.Process(), threading.Event(), 0
    before = process.memory_info().rss

    def watch():
        nonlocal most
        while not ended.wait(0.001):
            most = max(most, process.memory_info().rss - before)

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        work()
        ended.set()
        watching.result()
    return most


def explain_last_steps(model, source, target, limit):
    """What explain does in so much memory, for the steps that need most of it."""
    steps = slice(len(target) - 8, len(target))
    with patched(model) as patch:
        memory = memory_for_steps(patch.network, len(source), len(target), 4, limit)
        return propagate(patch, {"input_ids": source}, target, lambda logits: logits.argmax(-1), steps, memory)


@pytest.mark.parametrize("length", [10, 60, 120])
def test_the_least_that_is_named_is_not_exceeded(length):
    model = load()[0].float()
    source, target = torch.randint(10, 3000, (2, length), generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="Give at least") as caught:
        explain(model, None, source, target, max_memory=1000)
    least = memory_limit(re.search(r"max_memory='(\d+MB)'", str(caught.value))[1], CPU)
    results = []
    assert peak(lambda: results.append(explain_last_steps(model, source, target, least))) <= least
    total = results[0].source.sum(1) + results[0].decoder.sum(1)
    torch.testing.assert_close(total, torch.ones(8), rtol=0, atol=1e-5)
