"""A model as relevance sees it: stacks of layers, read from the model with its family's description."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from hf_lrp.relevance.blocks import Attention, FeedForward, FrontEnd, Layer, Leak, Residual, require_equal
from hf_lrp.relevance.families import HOW_TO, Family, family_of
from hf_lrp.relevance.modules import (
    Recorded,
    RelevanceConv1d,
    RelevanceLayer,
    RelevanceLayerNorm,
    RelevanceLinear,
    RelevanceRMSNorm,
    Tape,
    Window,
)

_NORMS: dict[str, type[Recorded]] = {"layer": RelevanceLayerNorm, "rms": RelevanceRMSNorm}


@dataclass(frozen=True)
class Stack:
    """Encoder or decoder."""

    layers: tuple[Layer, ...]
    final_norm: Any | None
    front: FrontEnd | None = None

    def replay(self, tape: Tape, memory: Tensor | None = None) -> Tensor:
        """The stack's output [length, d]; raises if the stack is not what it is taken for."""
        x = tape.input(self.layers[0].module)
        if self.front is not None:
            self.front.check(tape, x)
        for layer in self.layers:
            x = layer.replay(tape, x, memory)
        if self.final_norm is None:
            return x
        require_equal(tape.input(self.final_norm), x, "input of the final norm")
        return self.final_norm.replay(tape)

    def relprop(self, window: Window, relevance: Tensor, leak: Leak) -> Tensor:
        """From the stack's output [positions, steps, d] to the total of each input position: [positions, steps].

        A position's total is all that is asked for, and whatever works within a position keeps it. So the lowest
        projections and everything below them (norms, scales and sums of embeddings) need no propagation. What mixes
        positions, the front end's convolutions, does.
        """
        if self.final_norm is not None:
            relevance = self.final_norm.relprop(window, relevance)
        lowest, *others = self.layers
        for layer in reversed(others):
            relevance, window = layer.relprop(window, relevance, leak)
        if self.front is None:
            return lowest.totals(window, relevance, leak)
        relevance, window = lowest.relprop(window, relevance, leak)
        return self.front.totals(window, relevance)


@dataclass(frozen=True)
class Network:
    """A model as relevance sees it, and the modules that need a counterpart.

    head_bias: [V] or None; head_scale: the output layer sees the decoder's output times this.
    """

    encoder: Stack
    decoder: Stack
    head: Any
    head_bias: Tensor | None
    head_scale: float
    counterparts: dict[nn.Module, type[Recorded]]

    def check_decoder(self, tape: Tape, memory: Tensor, logits: Tensor) -> None:
        """Raise if a recorded forward pass is not the one relevance assumes, from the encoder's output on.

        memory: the encoder's replayed output, [source, d]; logits: those of the pass, [length, V].
        """
        output = self.decoder.replay(tape, memory)
        require_equal(tape.input(self.head), output * self.head_scale, "input of the output layer")
        bias = 0.0 if self.head_bias is None else self.head_bias
        require_equal(logits, tape.output(self.head) + bias, "output of the model")

    def logit_rows(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Weights [n, d] and biases [n] of the logits ``ids`` [n], or of differences of two, [n, 2]."""
        rows = self.head.weight[ids]
        biases = [bias[ids] for bias in (self.head.bias, self.head_bias) if bias is not None]
        total = sum(biases[1:], biases[0]) if biases else rows.new_zeros(ids.shape)
        return (rows, total) if ids.dim() == 1 else (rows[:, 0] - rows[:, 1], total[:, 0] - total[:, 1])


def read_network(model: PreTrainedModel) -> Network:
    """Describe ``model`` by its family; raises for architectures that are not supported."""
    family = family_of(model)
    try:
        return _read(model, family)
    except (AttributeError, IndexError) as error:
        raise TypeError(
            f"{type(model).__name__} is not built as the description of {model.config.model_type!r} says: {error}. "
            f"Another task's class, custom modeling code or an unknown transformers version can cause this. {HOW_TO}"
        ) from error


def _read(model: PreTrainedModel, family: Family) -> Network:
    head = _find(model, family.head)
    encoder = _read_stack(_find(model, family.encoder), family, is_decoder=False)
    decoder = _read_stack(_find(model, family.decoder), family, is_decoder=True)
    counterparts: dict[nn.Module, type[Recorded]] = {head: RelevanceLinear}
    for stack in (encoder, decoder):
        counterparts |= _counterparts(stack, _NORMS[family.norm])
    bias = None if family.head_bias is None else _find(model, family.head_bias).flatten()
    scaled = family.scaled_head is not None and getattr(model.config, family.scaled_head)
    scale = model.config.d_model**-0.5 if scaled else 1.0
    return Network(encoder, decoder, head, bias, scale, counterparts)


def _find(root: Any, path: str) -> Any:
    """What an attribute path leads to; numbers index module lists."""
    for name in path.split("."):
        root = root[int(name)] if name.lstrip("-").isdigit() else getattr(root, name)
    return root


def _has(root: Any, path: str) -> bool:
    try:
        _find(root, path)
    except (AttributeError, IndexError):
        return False
    return True


def _read_stack(stack: Any, family: Family, is_decoder: bool) -> Stack:
    modules = list(_find(stack, family.layers))
    layers = tuple(_read_layer(layer, modules[0], family, is_decoder) for layer in modules)
    front = None
    if family.convolutions and not is_decoder:
        convolutions = tuple(_find(stack, name) for name in family.convolutions)
        front = FrontEnd(convolutions, F.gelu, stack.embed_positions)
    return Stack(layers, _find(stack, family.final_norm) if family.norm_first else None, front)


def _read_layer(layer: Any, first: Any, family: Family, is_decoder: bool) -> Layer:
    own = _find(layer, family.self_attention)
    bias = None
    if family.position_bias is not None:
        bias = own if hasattr(own, family.position_bias) else _find(first, family.self_attention)
    blocks: list[tuple[Attention | FeedForward, str]] = [
        (_read_attention(own, family, causal=is_decoder, bias=bias), family.self_attention_norm)
    ]
    if is_decoder:
        cross = _read_attention(_find(layer, family.cross_attention), family, cross=True)
        blocks.append((cross, family.cross_attention_norm))
    blocks.append((_read_feed_forward(layer, family), family.feed_forward_norm))
    residuals = (Residual(block, _find(layer, norm), family.norm_first) for block, norm in blocks)
    return Layer(layer, tuple(residuals))


def _read_attention(
    module: Any, family: Family, causal: bool = False, cross: bool = False, bias: Any | None = None
) -> Attention:
    q, k, v, out = (_find(module, projection) for projection in family.projections)
    return Attention(q, k, v, out, _find(module, family.heads), _find(module, family.scaling), causal, cross, bias)


def _read_feed_forward(layer: Any, family: Family) -> FeedForward:
    activation = _find(layer, family.activation)
    if family.gated_feed_forward is not None and _has(layer, family.gated_feed_forward[0]):
        fc1, gate, fc2 = (_find(layer, path) for path in family.gated_feed_forward)
        return FeedForward(fc1, fc2, activation, gate)
    fc1, fc2 = (_find(layer, path) for path in family.feed_forward)
    return FeedForward(fc1, fc2, activation)


def _counterparts(stack: Stack, norm: type[Recorded]) -> dict[nn.Module, type[Recorded]]:
    found: dict[nn.Module, type[Recorded]] = {}
    for layer in stack.layers:
        found[layer.module] = RelevanceLayer
        for residual in layer.residuals:
            found[residual.norm] = norm
            found |= dict.fromkeys(residual.block.linears, RelevanceLinear)
    if stack.final_norm is not None:
        found[stack.final_norm] = norm
    if stack.front is not None:
        found |= dict.fromkeys(stack.front.convolutions, RelevanceConv1d)
    return found
