"""What is known of each model family, as data, and how a model is read with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_lrp.blocks import Attention, FeedForward, Layer, Leak, Residual, require_equal
from hf_lrp.modules import Recorded, RelevanceLayer, RelevanceLayerNorm, RelevanceLinear, Tape, Window


@dataclass(frozen=True)
class Family:
    """Where the parts of an encoder-decoder architecture are. Names are attribute paths; defaults are BART's.

    norm_first: layer norm inside the residual (pre-norm), with one more norm on top of each stack.
    """

    norm_first: bool
    encoder: str = "model.encoder"
    decoder: str = "model.decoder"
    layers: str = "layers"
    final_norm: str = "layer_norm"
    self_attention: str = "self_attn"
    self_attention_norm: str = "self_attn_layer_norm"
    cross_attention: str = "encoder_attn"
    cross_attention_norm: str = "encoder_attn_layer_norm"
    projections: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "out_proj")
    feed_forward: tuple[str, str] = ("fc1", "fc2")
    activation: str = "activation_fn"
    feed_forward_norm: str = "final_layer_norm"
    head: str = "lm_head"
    head_bias: str = "final_logits_bias"


# Keyed by `config.model_type`.
FAMILIES: dict[str, Family] = {
    "marian": Family(norm_first=False),
    "pegasus": Family(norm_first=True),
}


@dataclass(frozen=True)
class Stack:
    """Encoder or decoder."""

    layers: tuple[Layer, ...]
    final_norm: Any | None

    def replay(self, tape: Tape, memory: Tensor | None = None) -> Tensor:
        """The stack's output [length, d]; raises if the stack is not what it is taken for."""
        x = tape.input(self.layers[0].module)
        for layer in self.layers:
            x = layer.replay(tape, x, memory)
        if self.final_norm is None:
            return x
        require_equal(tape.input(self.final_norm), x, "input of the final norm")
        return tape.output(self.final_norm)

    def relprop(self, window: Window, relevance: Tensor, leak: Leak) -> Tensor:
        """From the stack's output [positions, steps, d] to the total of each input position: [positions, steps].

        A position's total is all that is asked for, and whatever works within a position keeps it. So the lowest
        projections and everything below them (norms, scales and sums of embeddings) need no propagation.
        """
        if self.final_norm is not None:
            relevance = self.final_norm.relprop(window, relevance)
        lowest, *others = self.layers
        for layer in reversed(others):
            relevance, window = layer.relprop(window, relevance, leak)
        return lowest.totals(window, relevance, leak)


@dataclass(frozen=True)
class Network:
    """A model as relevance sees it, and the modules that need a counterpart."""

    encoder: Stack
    decoder: Stack
    head: Any
    head_bias: Tensor
    counterparts: dict[nn.Module, type[Recorded]]

    def check(self, tape: Tape, logits: Tensor) -> None:
        """Raise if a recorded forward pass that gave ``logits`` [length, V] is not the one relevance assumes."""
        output = self.decoder.replay(tape, self.encoder.replay(tape))
        require_equal(tape.input(self.head), output, "input of the output layer")
        require_equal(logits, tape.output(self.head) + self.head_bias, "output of the model")


def read_network(model: PreTrainedModel) -> Network:
    """Describe ``model`` by its family; raises for architectures that are not supported."""
    family = family_of(model)
    head = model.get_submodule(family.head)
    bias = getattr(model, family.head_bias).flatten()
    encoder = _read_stack(model.get_submodule(family.encoder), family, is_decoder=False)
    decoder = _read_stack(model.get_submodule(family.decoder), family, is_decoder=True)
    counterparts: dict[nn.Module, type[Recorded]] = {head: RelevanceLinear}
    for stack in (encoder, decoder):
        counterparts |= _counterparts(stack)
    return Network(encoder, decoder, head, bias if head.bias is None else bias + head.bias, counterparts)


def family_of(model: PreTrainedModel) -> Family:
    """The description of a model's family; raises a TypeError that says what is supported."""
    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            f"Expected a transformers PreTrainedModel, got {type(model).__name__}. If it wraps one (DataParallel, "
            "torch.compile, Accelerate, PEFT), pass the model inside, with adapters merged."
        )
    supported = ", ".join(sorted(FAMILIES))
    name = type(model).__name__
    if not model.config.is_encoder_decoder:
        raise TypeError(
            f"{name} is not an encoder-decoder model: it has no source side to compare with the target prefix. "
            f"Supported model types: {supported}."
        )
    if model.config.model_type not in FAMILIES:
        raise TypeError(f"{name} (model type {model.config.model_type!r}) is not supported. Supported: {supported}.")
    if model.get_output_embeddings() is None:
        raise TypeError(f"{name} has no output layer: load the checkpoint with AutoModelForSeq2SeqLM.from_pretrained.")
    return FAMILIES[model.config.model_type]


def _read_stack(stack: nn.Module, family: Family, is_decoder: bool) -> Stack:
    layers = tuple(
        _read_layer(layer, family, is_decoder) for layer in cast(nn.ModuleList, stack.get_submodule(family.layers))
    )
    return Stack(layers, stack.get_submodule(family.final_norm) if family.norm_first else None)


def _read_layer(layer: nn.Module, family: Family, is_decoder: bool) -> Layer:
    fc1, fc2 = (layer.get_submodule(name) for name in family.feed_forward)
    blocks: list[tuple[Attention | FeedForward, str]] = [
        (_read_attention(layer, family, family.self_attention, causal=is_decoder), family.self_attention_norm)
    ]
    if is_decoder:
        cross = _read_attention(layer, family, family.cross_attention, cross=True)
        blocks.append((cross, family.cross_attention_norm))
    blocks.append((FeedForward(fc1, fc2, getattr(layer, family.activation)), family.feed_forward_norm))
    residuals = (Residual(block, layer.get_submodule(norm), family.norm_first) for block, norm in blocks)
    return Layer(layer, tuple(residuals))


def _read_attention(
    layer: nn.Module, family: Family, name: str, causal: bool = False, cross: bool = False
) -> Attention:
    module: Any = layer.get_submodule(name)
    q, k, v, out = (module.get_submodule(projection) for projection in family.projections)
    return Attention(q, k, v, out, module.num_heads, module.scaling, causal, cross)


def _counterparts(stack: Stack) -> dict[nn.Module, type[Recorded]]:
    found: dict[nn.Module, type[Recorded]] = {}
    for layer in stack.layers:
        found[layer.module] = RelevanceLayer
        for residual in layer.residuals:
            found[residual.norm] = RelevanceLayerNorm
            found |= dict.fromkeys(residual.block.linears, RelevanceLinear)
    if stack.final_norm is not None:
        found[stack.final_norm] = RelevanceLayerNorm
    return found
