"""A forward pass recorded and replayed without any method: what attention weights, norms and vectors are read from."""

from itertools import pairwise

import pytest
import torch
from left_alone import is_patched, unchanged
from tiny_models import ALL_FAMILIES, decoder_inputs, encoder_inputs, tiny_model
from transformers import PreTrainedModel

from hf_lrp import patched
from hf_lrp.models.exchange import recorded
from hf_lrp.models.recording import Tape
from hf_lrp.models.structure import Attention


def attentions(layers: tuple, cross: bool) -> list[Attention]:
    blocks = [branch.block for layer in layers for residual in layer.residuals for branch in residual.branches]
    return [block for block in blocks if isinstance(block, Attention) and block.cross == cross]


def forward(model: PreTrainedModel, **options: object) -> tuple:
    inputs = {name: tensor[None] for name, tensor in encoder_inputs(model).items()}
    with torch.no_grad():
        return model(**inputs, decoder_input_ids=decoder_inputs(model)[None], use_cache=False, **options)


@pytest.mark.parametrize("family", [name for name in ALL_FAMILIES if name != "fsmt"])
def test_replayed_attention_is_the_models(family: str) -> None:
    model, tape, whole = tiny_model(family), Tape(), slice(None)
    model.set_attn_implementation("eager")
    with recorded(model) as network:
        assert is_patched(model)
        with tape.recording():
            output = forward(model, output_attentions=True)
        network.check_decoder(tape, network.encoder.replay(tape), output.logits[0])
        found = {
            name: [block.weights(*block.states(tape, whole, whole)[:2], 0)[0] for block in blocks]
            for name, blocks in (
                ("encoder_attentions", attentions(network.encoder.layers, False)),
                ("decoder_attentions", attentions(network.decoder.layers, False)),
                ("cross_attentions", attentions(network.decoder.layers, True)),
            )
        }
    for name, weights in found.items():
        assert len(weights) == len(output[name]) > 0
        for actual, expected in zip(weights, output[name], strict=True):
            torch.testing.assert_close(actual, expected[0], rtol=0, atol=1e-6)


def test_recorded_and_patched_may_be_nested_in_any_order(model: PreTrainedModel) -> None:
    layer = model.model.decoder.layers[0].fc1
    names = []
    with unchanged(model):
        with recorded(model):
            names.append(type(layer).__name__)
            with patched(model):
                names.append(type(layer).__name__)
            names.append(type(layer).__name__)
        with patched(model), recorded(model):
            names.append(type(layer).__name__)
    assert names == ["RecordedLinear", "RelevanceLinear", "RecordedLinear", "RelevanceLinear"]


def test_layers_join_as_replayed(model: PreTrainedModel) -> None:
    tape = Tape()
    with recorded(model) as network, tape.recording():
        forward(model)
    for before, after in pairwise(network.decoder.layers):
        assert torch.equal(tape.output(before.module), tape.input(after.module))
