"""Families whose layers are built alike give the same contributions for the same weights and the same layer inputs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tiny_models import RELEASE, decoder_inputs, fill_with_lowest, random_ids, tiny_model
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.fsmt import modeling_fsmt

from hf_lrp import AlphaBeta, Epsilon, patched
from hf_lrp.relevance.propagation import Relevance, propagate
from hf_lrp.relevance.rules import Rule

SOURCE = random_ids(5, seed=1)
STEPS = 4
UNEVEN = {"encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 12, "encoder_attention_heads": 4}
GATED = {"feed_forward_proj": "gated-gelu"}
UNTIED = {"tie_word_embeddings": False}  # in T5 also: what the output layer sees is not scaled

# Other names of what BART has.
RENAMED = {
    "fsmt": {"model.decoder.output_projection": "lm_head"},
    "seamless_m4t": {
        "text_encoder": "model.encoder",
        "text_decoder": "model.decoder",
        "cross_attention": "encoder_attn",
        "ffn_layer_norm": "final_layer_norm",
        ".ffn.": ".",
    },
}

PAIRS = [
    ("marian", "bart", {}, {}),
    ("marian", "bart", UNEVEN, UNEVEN),
    ("bart", "plbart", {}, {}),
    ("bart", "blenderbot-small", {}, {}),
    ("marian", "fsmt", {}, {}),
    ("marian", "fsmt", UNEVEN, UNEVEN),
    ("pegasus", "mbart", {}, {}),
    ("mbart", "m2m_100", {}, {}),
    ("mbart", "blenderbot", {}, {}),
    ("mbart", "blenderbot", UNEVEN, UNEVEN),
    ("m2m_100", "seamless_m4t", {}, {}),
    ("t5", "mt5", GATED, GATED),
    ("t5", "mt5", {}, {"feed_forward_proj": "relu"}),
    ("t5", "umt5", GATED | {"tie_word_embeddings": True}, GATED),
]
pairs = pytest.mark.parametrize(
    ("one", "other", "changes", "other_changes"),
    PAIRS,
    ids=[f"{one}-{other}{' changed' * bool(changes)}" for one, other, changes, _ in PAIRS],
)


@pytest.fixture(autouse=True)
def fsmt_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modeling_fsmt, "fill_with_neg_inf", fill_with_lowest)


def shared_names(model: PreTrainedModel) -> dict[str, str]:
    """BART's names of a model's weights, embeddings excepted, and the model's own."""
    names = {}
    for name in model.state_dict():
        shared = name
        for own, barts in RENAMED.get(model.config.model_type, {}).items():
            shared = shared.replace(own, barts)
        if "embed" not in name and "shared" not in name:
            names[shared] = name
    return names


def copy_weights(source: PreTrainedModel, target: PreTrainedModel) -> None:
    """Give target the weights of source; a bias of logits that one of them lacks is zero in the other."""
    theirs, ours = shared_names(source), shared_names(target)
    weights, state = source.state_dict(), target.state_dict()
    for name in [name for name in ours if "relative_attention_bias" in name]:  # UMT5 has one in each layer
        theirs.setdefault(name, name.replace(".block.1.", ".block.0."))
    for names, values in ((theirs, weights), (ours, state)):
        if "final_logits_bias" in theirs.keys() ^ ours.keys() and "final_logits_bias" in names:
            values[names.pop("final_logits_bias")].zero_()
    assert theirs.keys() == ours.keys()
    for name, own in ours.items():
        assert state[own].shape == weights[theirs[name]].shape
        state[own].copy_(weights[theirs[name]])


@contextmanager
def entering(model: Any, source: Tensor, target: Tensor) -> Iterator[None]:
    """Replace what enters the first layer of encoder and decoder, by [1, length, d], whatever the embeddings are."""

    def replace(layer: nn.Module, x: Tensor) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            assert args[0].numel() == x.numel()
            return x.reshape(args[0].shape), *args[1:]

        return layer.register_forward_pre_hook(hook)

    stacks = (model.get_encoder(), source), (model.get_decoder(), target)
    hooks = [replace(next(c for c in stack.children() if isinstance(c, nn.ModuleList))[0], x) for stack, x in stacks]
    yield
    for hook in hooks:
        hook.remove()


def run(model: PreTrainedModel, rule: Rule) -> Relevance:
    generator = torch.Generator().manual_seed(5)
    source, target = (torch.randn(1, length, 16, generator=generator).double() for length in (len(SOURCE), STEPS))
    decoder = decoder_inputs(model, STEPS)
    with entering(model, source, target), patched(model, rule) as patch:
        return propagate(
            patch, {"input_ids": SOURCE}, decoder, lambda logits: logits.argmax(-1), slice(0, STEPS), 2**40
        )


def require_unscaled_t5() -> None:
    if tiny_model("t5", **UNTIED).config.scale_decoder_outputs:
        pytest.skip(f"transformers {RELEASE} scales what the output layer of T5 sees in every checkpoint")


def distance(one: Relevance, other: Relevance) -> float:
    parts = ("source", "decoder")
    return max(float((getattr(one, part) - getattr(other, part)).abs().max()) for part in parts)


@pairs
@pytest.mark.parametrize("rule", [AlphaBeta(), AlphaBeta(0.5, 0.5), Epsilon()], ids=str)
def test_families_agree(
    one: str, other: str, changes: dict[str, Any], other_changes: dict[str, Any], rule: Rule
) -> None:
    if "t5" in (one, other):
        require_unscaled_t5()
    first = tiny_model(one, dtype=torch.float64, seed=1, **(UNTIED | changes))
    second = tiny_model(other, dtype=torch.float64, seed=2, **(UNTIED | other_changes))
    before = run(second, rule)
    copy_weights(first, second)
    expected, actual = run(first, rule), run(second, rule)
    torch.testing.assert_close(actual.logits, expected.logits, rtol=0, atol=1e-6)
    assert torch.equal(actual.explained, expected.explained)
    assert distance(actual, expected) < 1e-6
    assert distance(before, expected) > 1e-3


@pytest.mark.parametrize("rule", [AlphaBeta(), AlphaBeta(0.5, 0.5)], ids=str)
def test_scaling_what_the_output_layer_sees_makes_no_difference(rule: Rule) -> None:
    require_unscaled_t5()
    scaled = tiny_model("t5", dtype=torch.float64, seed=1)
    unscaled = tiny_model("t5", dtype=torch.float64, seed=2, **UNTIED)
    copy_weights(scaled, unscaled)
    few, many = run(scaled, rule), run(unscaled, rule)
    torch.testing.assert_close(many.logits, 4 * few.logits, rtol=0, atol=1e-6)
    assert distance(many, few) < 1e-6
