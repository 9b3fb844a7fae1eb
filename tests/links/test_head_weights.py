"""Weights of chosen heads for padded batches, against what the model returns for each sentence alone."""

from typing import Any

import pytest
import torch
from left_alone import unchanged
from tiny_decoders import tiny_decoder
from tiny_models import ALL_FAMILIES, tiny_model
from tiny_tokenizer import tiny_tokenizer
from torch import Tensor
from transformers import PreTrainedModel

from hf_lrp.links.heads import Head
from hf_lrp.links.weights import HeadReader, HeadWeights

SOURCES = [[5, 9, 7, 3, 1], [8, 4, 1], [11, 6, 2, 9, 14, 1]]
TARGETS = [[4, 12, 1], [7, 9, 21, 13, 5, 1], [3, 1]]
HEADS = [Head(0, 1, "reads"), Head(1, 0, "predicts"), Head(1, 0, "reads")]
TEXT_FAMILIES = [family for family in ALL_FAMILIES if family != "whisper"]


def read_together(model: PreTrainedModel, log_probability: bool = False) -> list[HeadWeights]:
    reader = HeadReader(model)
    with unchanged(model):
        found = dict(reader.weights(reader.read(SOURCES, TARGETS), HEADS, log_probability))
    return [found[number] for number in range(len(SOURCES))]


def slow_weights(model: Any, source: list[int], target: list[int]) -> tuple[Tensor, Tensor]:
    """One sentence, from what the model returns itself."""
    decoder_ids = torch.tensor([[model.config.decoder_start_token_id, *target]])
    with torch.no_grad():
        output = model(
            input_ids=torch.tensor([source]), decoder_input_ids=decoder_ids, output_attentions=True, use_cache=False
        )
    rows = [
        [output.cross_attentions[h.layer][0, h.head, t + (h.step == "reads")] for t in range(len(target))]
        for h in HEADS
    ]
    logs = output.logits[0].double().log_softmax(-1)
    return torch.stack([torch.stack(row) for row in rows]), torch.stack([logs[t, i] for t, i in enumerate(target)])


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_a_batch_gives_the_weights_of_each_sentence_alone(family: str) -> None:
    model = tiny_model(family)
    together = read_together(model, log_probability=True)
    if family != "fsmt":  # it has no other attention
        model.set_attn_implementation("eager")
    for found, source, target in zip(together, SOURCES, TARGETS, strict=True):
        weights, logs = slow_weights(model, source, target)
        torch.testing.assert_close(found.weights, weights, rtol=0, atol=1e-5)
        assert found.log_probability is not None
        torch.testing.assert_close(found.log_probability.double(), logs, rtol=0, atol=1e-4)


def test_without_probabilities_weights_are_the_same() -> None:
    model = tiny_model("marian")
    for one, other in zip(read_together(model), read_together(model, log_probability=True), strict=True):
        assert one.log_probability is None
        torch.testing.assert_close(one.weights, other.weights, rtol=0, atol=1e-6)


def test_a_target_as_long_as_the_model_has_positions_is_read() -> None:
    model = tiny_model("bart", max_position_embeddings=6)
    (_, found), *_ = HeadReader(model).weights(HeadReader(model).read([[5, 1]], [[4, 5, 6, 7, 8, 1]]), HEADS)
    reads, predicts = found.weights[2], found.weights[1]
    torch.testing.assert_close(reads[:-1], predicts[1:])
    torch.testing.assert_close(reads[-1], predicts[-1])  # there is no step that reads the last token


def test_a_decoder_gives_the_weights_of_the_source_in_its_prompt() -> None:
    model, tokenizer = tiny_decoder("llama"), tiny_tokenizer()
    reader = HeadReader(model, tokenizer, prompt="the cat sees {source} and")
    pairs = reader.read(["a big dog", "the house"], ["he sees", "it is small"])
    found = dict(reader.weights(pairs, HEADS))
    model.set_attn_implementation("eager")
    for number, (source, target) in enumerate([("a big dog", "he sees"), ("the house", "it is small")]):
        before, whole = "the cat sees", f"the cat sees {source} and {target}"
        ids = tokenizer(whole, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            attentions = model(input_ids=ids, output_attentions=True, use_cache=False).attentions
        first, length = len(before.split()), len(source.split())
        steps = torch.arange(ids.shape[1] - len(target.split()), ids.shape[1])
        for head, weights in zip(HEADS, found[number].weights, strict=True):
            expected = attentions[head.layer][
                0, head.head, steps - int(head.step == "predicts"), first : first + length
            ]
            torch.testing.assert_close(weights, expected, rtol=0, atol=1e-5)


def test_heads_that_a_model_lacks_are_refused() -> None:
    reader = HeadReader(tiny_model("marian"))
    pairs = reader.read(SOURCES, TARGETS)
    with pytest.raises(ValueError, match="no layer 3 head 1.*it has 2 layers with 2 heads"):
        list(reader.weights(pairs, [Head(2, 0)]))
    with pytest.raises(ValueError, match="3 sources, but 2 targets"):
        reader.read(SOURCES, TARGETS[:2])
