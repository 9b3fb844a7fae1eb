"""A real 77M-parameter checkpoint (OPUS-MT zh-en) on FLORES sentences, where both are at hand.

They are looked for in the folder that HF_LRP_SHARED names, else in ../shared beside the checkout.
"""

import os
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_lrp import explain

SHARED = Path(os.environ.get("HF_LRP_SHARED", Path(__file__).parents[3] / "shared"))
CHECKPOINT = SHARED / "models" / "opus-mt-zh-en"
SENTENCES = SHARED / "data" / "flores-dev.zh"

pytestmark = pytest.mark.skipif(
    not (CHECKPOINT.exists() and SENTENCES.exists()), reason=f"needs {CHECKPOINT.name} and {SENTENCES.name}"
)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(CHECKPOINT)


@pytest.fixture(scope="module")
def model():
    return AutoModelForSeq2SeqLM.from_pretrained(CHECKPOINT, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def by_length(tokenizer):
    """Sentences by their number of source tokens."""
    groups: dict[int, list[str]] = {}
    for line in SENTENCES.read_text(encoding="utf-8").splitlines():
        groups.setdefault(len(tokenizer(line).input_ids), []).append(line)
    return groups


def short_sentences(by_length, count):
    """Up to ``count`` sentences of 8 to 22 source tokens, evenly from all lengths."""
    pool = [by_length.get(length, []) for length in range(8, 23)]
    rounds = [group[i] for i in range(max(map(len, pool))) for group in pool if i < len(group)]
    return rounds[:count]


def mean_source(c):
    return c.source_total[1:].mean().item()


def test_a_few_sentences(model, tokenizer, by_length):
    results = explain(model, tokenizer, short_sentences(by_length, 4))
    assert max(c.conservation_error for c in results) <= 1e-5
    assert 0.7 < torch.tensor([mean_source(c) for c in results]).mean() < 0.88
    again = explain(model, tokenizer, short_sentences(by_length, 4)[0], results[0].target_ids)
    torch.testing.assert_close(again.source, results[0].source, atol=1e-6, rtol=0)


@pytest.mark.slow
def test_every_length_conserves(model, tokenizer, by_length):
    results = explain(model, tokenizer, [group[0] for _, group in sorted(by_length.items())], num_beams=1)
    worst = max(c.conservation_error for c in results)
    lengths = sorted(by_length)
    print(f"{len(results)} sentences, {lengths[0]} to {lengths[-1]} source tokens: worst error {worst:.1e}")
    assert worst <= 1e-5


@pytest.mark.slow
def test_prefix_types_differ_as_they_should(model, tokenizer, by_length):
    sources = short_sentences(by_length, 100)
    own = explain(model, tokenizer, sources)
    random = explain(model, tokenizer, sources, [c.target_ids for c in own], prefix="random")
    lower = sum(mean_source(r) < mean_source(o) for o, r in zip(own, random, strict=True))
    second = [
        torch.stack([c.source_total[1] for c in group if len(c.source_total) > 1]).mean() for group in (own, random)
    ]
    later = torch.stack([c.source_total[13] for c in own if len(c.source_total) >= 14]).mean()
    means = [torch.tensor([mean_source(c) for c in group]).mean() for group in (own, random)]
    start = torch.cat([c.start for c in own]).mean()
    print(
        f"model prefixes: R_2(source) {second[0]:.3f}, step 14 {later:.3f}, mean {means[0]:.3f}, start {start:.3f}; "
        f"random prefixes: R_2(source) {second[1]:.3f}, mean {means[1]:.3f}; lower for {lower} of {len(own)}"
    )
    assert second[0] == pytest.approx(0.85, abs=0.03)
    assert later == pytest.approx(0.75, abs=0.04)
    assert means[0] == pytest.approx(0.79, abs=0.03)
    assert second[1] == pytest.approx(0.75, abs=0.04)
    assert means[1] == pytest.approx(0.66, abs=0.04)
    assert start == pytest.approx(0.03, abs=0.01)
    assert lower >= 0.95 * len(own)
