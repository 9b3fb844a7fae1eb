"""Attention weights of padded batches: those that the model itself computes, alone and together."""

from typing import Any

import pytest
import torch
from left_alone import unchanged
from tiny_decoders import DECODERS, tiny_decoder
from tiny_models import ALL_FAMILIES, PAD, random_ids, tiny_model
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from hf_lrp.models.attention_weights import attention_blocks, attention_recorded, head_weights, record_batch
from hf_lrp.models.reading import read_network
from hf_lrp.models.recording import UnknownStructure

SOURCES, TARGETS = (5, 3), (4, 7)  # lengths


def batch(model: PreTrainedModel) -> tuple[dict[str, Tensor], list[tuple[int, int]]]:
    """Two sentences, padded, and how many positions of queries and keys each has."""
    sources, targets = (
        [random_ids(length, seed=length + n) for length in lengths] for n, lengths in enumerate((SOURCES, TARGETS))
    )
    if not model.config.is_encoder_decoder:
        return _padded(targets), [(n, n) for n in TARGETS]
    ids = {"decoder_input_ids": _padded(targets)["input_ids"]}
    if model.main_input_name == "input_ids":
        return _padded(sources) | ids, list(zip(TARGETS, SOURCES, strict=True))
    config: Any = model.config
    shape = len(TARGETS), config.num_mel_bins, 2 * config.max_source_positions
    features = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    return {"input_features": features} | ids, [(n, config.max_source_positions) for n in TARGETS]


def _padded(rows: list[Tensor]) -> dict[str, Tensor]:
    ids = pad_sequence(rows, batch_first=True, padding_value=PAD)
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": mask}


def read_weights(model: PreTrainedModel, inputs: dict, lengths: list, stop: bool) -> list[list[Tensor]]:
    """Per layer and sentence: [heads, queries, keys]."""
    network = read_network(model)
    blocks = attention_blocks(network.decoder, cross=network.encoder is not None)
    with torch.no_grad(), attention_recorded(model, network, blocks) as part:
        tape, output = record_batch(model, inputs, part, stop)
    assert (output is None) == stop
    tapes = [tape.sentence(n) for n in range(len(lengths))]
    return [[head_weights(b, t, slice(q), slice(k)) for t, (q, k) in zip(tapes, lengths, strict=True)] for b in blocks]


# Falcon cannot be set to eager attention once it is built, and then returns weights of no causal attention.
COMPARABLE = [name for name in (*ALL_FAMILIES, *DECODERS) if not name.startswith("falcon")]


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("name", COMPARABLE)
def test_weights_are_those_that_eager_attention_returns(name: str, stop: bool) -> None:
    model = tiny_model(name) if name in ALL_FAMILIES else tiny_decoder(name)
    inputs, lengths = batch(model)
    with unchanged(model):
        found = read_weights(model, inputs, lengths, stop)
    if name != "fsmt":  # it has no other attention
        model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(**inputs, output_attentions=True, use_cache=False)
    expected = output.cross_attentions if model.config.is_encoder_decoder else output.attentions
    assert len(found) == len(expected) == 2
    for layer, tensors in zip(found, expected, strict=True):
        for number, (queries, keys) in enumerate(lengths):
            torch.testing.assert_close(layer[number], tensors[number, :, :queries, :keys], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["marian", "fsmt", "t5", "llama", "bloom", "falcon"])
def test_a_batch_gives_what_its_sentences_give_alone(name: str) -> None:
    model = tiny_model(name) if name in ALL_FAMILIES else tiny_decoder(name)
    inputs, lengths = batch(model)
    together = read_weights(model, inputs, lengths, stop=True)
    for number, (queries, keys) in enumerate(lengths):
        cut = {"decoder_input_ids": queries, "input_ids": keys, "attention_mask": keys}
        alone = {key: tensor[number : number + 1, : cut[key]] for key, tensor in inputs.items()}
        for layer, single in zip(together, read_weights(model, alone, [(queries, keys)], True), strict=True):
            torch.testing.assert_close(layer[number], single[0], rtol=0, atol=1e-5)


def test_another_attention_than_the_described_one_is_refused() -> None:
    model = tiny_model("marian")
    inputs, lengths = batch(model)
    model.model.decoder.layers[1].encoder_attn.scaling = 0.5  # what runs
    network = read_network(model)
    model.model.decoder.layers[1].encoder_attn.scaling = 0.25
    blocks = attention_blocks(network.decoder, cross=True)
    with torch.no_grad(), attention_recorded(model, network, blocks) as part:
        tape, _ = record_batch(model, inputs, part, stop=True)
    head_weights(blocks[0], tape.sentence(0), slice(lengths[0][0]), slice(lengths[0][1]))
    with pytest.raises(UnknownStructure, match="attention"):
        head_weights(blocks[1], tape.sentence(0), slice(lengths[0][0]), slice(lengths[0][1]))
