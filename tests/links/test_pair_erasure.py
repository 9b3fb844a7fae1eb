"""Log-probabilities without a token of the source, against the model itself, one sentence and one token at a time."""

from typing import Any

import pytest
import torch
from left_alone import unchanged
from tiny_decoders import tiny_decoder
from tiny_models import ALL_FAMILIES, tiny_model
from tiny_tokenizer import tiny_tokenizer

from hf_lrp.links.erasure import erasure, log_probabilities
from hf_lrp.links.weights import HeadReader

SOURCES = [[5, 9, 7, 3, 1], [8, 4, 1], [11, 6, 2, 9, 14, 1]]
TARGETS = [[4, 12, 1], [7, 9, 21, 13, 5, 1], [3, 1]]
TEXT_FAMILIES = [family for family in ALL_FAMILIES if family != "whisper"]


def slow_log_probability(model: Any, source: list[int], target: list[int], hidden: int | None) -> float:
    """The sum over the target, where the mask hides one token."""
    mask = torch.tensor([[int(place != hidden) for place in range(len(source))]])
    decoder_ids = torch.tensor([[model.config.decoder_start_token_id, *target[:-1]]])
    with torch.no_grad():
        logits = model(
            input_ids=torch.tensor([source]), attention_mask=mask, decoder_input_ids=decoder_ids, use_cache=False
        ).logits[0]
    logs = logits.double().log_softmax(-1)
    return sum(float(logs[t, i]) for t, i in enumerate(target))


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_hidden_tokens_are_hidden_from_all_attention(family: str) -> None:
    model = tiny_model(family)
    reader = HeadReader(model)
    with unchanged(model):
        found = erasure(reader, reader.read(SOURCES, TARGETS))
    for source, target, falls in zip(SOURCES, TARGETS, found, strict=True):
        whole = slow_log_probability(model, source, target, None)
        expected = [whole - slow_log_probability(model, source, target, place) for place in range(len(source))]
        assert falls.tolist() == pytest.approx(expected, abs=1e-3)
        assert len(set(expected)) == len(source)  # every token counts, and differently


def test_a_decoder_only_model_hides_tokens_of_the_source_in_its_prompt() -> None:
    model, tokenizer = tiny_decoder("llama"), tiny_tokenizer()
    reader = HeadReader(model, tokenizer, "the {source} is")
    pairs = reader.read(["dog in house", "cat"], ["the cat", "a dog eats"])
    (falls, _) = erasure(reader, pairs)
    prompt, ids = pairs.reading.prompts[0], pairs.prefixes[0].ids
    for hidden, place in enumerate(prompt.places["source"]):
        row = torch.cat([prompt.ids, ids])[None]
        mask = torch.ones_like(row)
        mask[0, place] = 0
        totals = []
        for one in (torch.ones_like(row), mask):
            with torch.no_grad():
                logits = model(
                    input_ids=row, attention_mask=one, position_ids=torch.arange(row.shape[1])[None], use_cache=False
                ).logits[0]
            logs = logits.double().log_softmax(-1)[len(prompt.ids) - 1 : -1]
            totals.append(float(logs.gather(1, ids[:, None]).sum()))
        assert float(falls[hidden]) == pytest.approx(totals[0] - totals[1], abs=1e-3)


def test_pairs_come_with_their_places() -> None:
    reader = HeadReader(tiny_model("marian"))
    pairs = reader.read(SOURCES, TARGETS)
    found = dict(log_probabilities(reader, pairs, [(2, None), (0, 1), (2, 0)]))
    assert sorted(found) == [0, 1, 2]
    assert [len(found[place]) for place in range(3)] == [2, 3, 2]
