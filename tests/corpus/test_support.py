"""How far sources are covered and how translations are supported, against versions in plain loops."""

from typing import Any

import pytest
import torch
from tiny_models import tiny_model
from tiny_tokenizer import tiny_tokenizer

from hf_lrp.corpus.support import Measures, group_values, measure_pairs, ratios, read_others, token_coverage
from hf_lrp.links.erasure import erasure
from hf_lrp.links.heads import Head
from hf_lrp.links.weights import HeadReader

SOURCES = ["the cat sees the dog", "he eats", "she was in the house"]
TARGETS = ["the dog eats", "a house", "the cat was in a street"]
HEADS = (Head(0, 1, "reads"), Head(1, 0, "predicts"))


@pytest.fixture(scope="module")
def reader() -> HeadReader:
    return HeadReader(tiny_model("marian"), tiny_tokenizer())


def test_coverage_is_the_largest_weight_over_the_steps_of_all_heads_together() -> None:
    weights = torch.rand(3, 4, 5)  # [heads, T, S]
    expected = [max(sum(float(weights[h, t, s]) for h in range(3)) / 3 for t in range(4)) for s in range(5)]
    assert token_coverage(weights).tolist() == pytest.approx(expected)


def test_words_have_the_means_of_their_tokens() -> None:
    tokens, special = ("▁The", "▁sleep", "s", ".", "</s>"), (False, False, False, False, True)
    words = group_values(tokens, special, torch.tensor([0.5, 0.2, 0.4, 0.9, 0.7]))
    assert words.texts == ("The", "sleeps", ".")
    assert words.tokens == ((0,), (1, 2), (3,))
    assert words.values == pytest.approx([0.5, 0.3, 0.9])


def test_a_pair_is_measured_as_the_model_sees_it_alone(reader: HeadReader) -> None:
    found = measure_pairs(reader, reader.read(SOURCES, TARGETS), HEADS, Measures())
    model: Any = reader.model
    model.set_attn_implementation("eager")
    for source, target, support in zip(SOURCES, TARGETS, found, strict=True):
        pairs = reader.read([source], [target])
        ids, prefix = pairs.reading.sources.items[0], pairs.prefixes[0]
        decoder_ids = torch.cat([prefix.prompt, prefix.ids])[None]
        with torch.no_grad():
            output = model(input_ids=ids[None], decoder_input_ids=decoder_ids, output_attentions=True, use_cache=False)
        steps = range(len(prefix.ids))
        logs = output.logits[0].log_softmax(-1)
        assert support.log_probability == pytest.approx(
            sum(float(logs[t, prefix.ids[t]]) for t in steps) / len(steps), abs=1e-4
        )
        coverage = [
            max(
                sum(float(output.cross_attentions[h.layer][0, h.head, t + (h.step == "reads"), s]) for h in HEADS) / 2
                for t in steps
            )
            for s in range(len(ids) - 1)  # without the end of the sentence
        ]
        assert support.coverage == pytest.approx(sum(coverage) / len(coverage), abs=1e-5)
        assert support.source.values == pytest.approx(
            [sum(coverage[i] for i in w) / len(w) for w in support.source.tokens], abs=1e-5
        )
        assert " ".join(support.source.texts) == source and " ".join(support.target.texts) == target


def test_ratios_compare_with_the_mean_of_other_sources(reader: HeadReader) -> None:
    pairs = reader.read(SOURCES, TARGETS)
    others = read_others(reader, SOURCES, SOURCES, TARGETS)
    assert len(others) == 2  # there are no more
    for each in others:
        for number, source in enumerate(each.reading.sources.items):
            assert not torch.equal(source, pairs.reading.sources.items[number])
    own = {source: n for n, source in enumerate(SOURCES)}

    def logs(source: str, target: str) -> torch.Tensor:
        ((_, found),) = reader.weights(reader.read([source], [target]), HEADS, log_probability=True)
        assert found.log_probability is not None
        return found.log_probability

    for number, found in enumerate(ratios(reader, pairs, others)):
        elsewhere = [logs(source, TARGETS[number]) for source in SOURCES if own[source] != number]
        expected = logs(SOURCES[number], TARGETS[number]) - sum(elsewhere) / len(elsewhere)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match="one source only"):
        read_others(reader, SOURCES[:1], SOURCES[:1], TARGETS[:1])


def test_other_measures_are_those_of_words(reader: HeadReader) -> None:
    pairs = reader.read(SOURCES, TARGETS)
    others = read_others(reader, SOURCES, SOURCES, TARGETS)
    plain = measure_pairs(reader, pairs, HEADS, Measures())
    found = measure_pairs(reader, pairs, HEADS, Measures(erasure=True, ratio=True), others)
    falls, above = erasure(reader, pairs), ratios(reader, pairs, others)
    for number, (one, other) in enumerate(zip(found, plain, strict=True)):
        assert (one.coverage, one.log_probability) == (other.coverage, other.log_probability)
        for words, values in ((one.source, falls[number]), (one.target, above[number])):
            means = [float(values[list(own)].mean()) for own in words.tokens]
            assert words.values == pytest.approx(means, abs=1e-5)
