"""A model as relevance sees it: stacks of layers, read from the model with its family's description."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from hf_lrp.models.families import HOW_TO, Family, family_of
from hf_lrp.relevance.blocks import Attention, FrontEnd, Layer, Leak, require_equal
from hf_lrp.relevance.modules import Recorded, RelevanceConv1d, RelevanceLayer, RelevanceLinear, Tape, Window
from hf_lrp.relevance.reading import LINEARS, NORMS, find, has, read_layer


@dataclass(frozen=True)
class Stack:
    """Encoder or decoder. projection: a linear layer on top of the final norm."""

    layers: tuple[Layer, ...]
    final_norm: Any | None
    front: FrontEnd | None = None
    projection: Any | None = None

    def replay(self, tape: Tape, memory: Tensor | None = None) -> Tensor:
        """The stack's output [length, d]; raises if the stack is not what it is taken for."""
        x = tape.input(self.layers[0].module)
        if self.front is not None:
            self.front.check(tape, x)
        for layer in self.layers:
            x = layer.replay(tape, x, memory)
        if self.final_norm is not None:
            require_equal(tape.input(self.final_norm), x, "input of the final norm")
            x = self.final_norm.replay(tape)
        if self.projection is not None:
            require_equal(tape.input(self.projection), x, "input of the projection on top of the stack")
            x = tape.output(self.projection)
        return x

    def relprop(self, window: Window, relevance: Tensor, leak: Leak) -> Tensor:
        """From the stack's output [positions, steps, d] to the total of each input position: [positions, steps].

        A position's total is all that is asked for, and whatever works within a position keeps it. So the lowest
        projections and everything below them (norms, scales and sums of embeddings) need no propagation. What mixes
        positions, the front end's convolutions, does.
        """
        if self.projection is not None:
            relevance = self.projection.relprop(window, relevance)
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

    encoder: None in a model that is a decoder only.
    head_bias: [V] or None; head_scale: the output layer sees the decoder's output times this; logit_scale, logit_cap:
    what comes out is multiplied by the one, and softly capped at the other.
    """

    encoder: Stack | None
    decoder: Stack
    head: Any
    head_bias: Tensor | None
    head_scale: float
    counterparts: dict[nn.Module, type[Recorded]]
    logit_scale: float = 1.0
    logit_cap: float | None = None

    def check_decoder(self, tape: Tape, memory: Tensor | None, logits: Tensor) -> None:
        """Raise if a recorded forward pass is not the one relevance assumes, from the encoder's output on.

        memory: the encoder's replayed output, [source, d]; logits: those of the pass, [positions, V], which may leave
        out positions at the beginning.
        """
        output = self.decoder.replay(tape, memory)[-len(logits) :]
        require_equal(tape.input(self.head), output * self.head_scale, "input of the output layer")
        expected = tape.output(self.head)
        if self.head_bias is not None:
            expected = expected + self.head_bias
        if self.logit_scale != 1:
            expected = expected * self.logit_scale
        if self.logit_cap is not None:
            expected = self.logit_cap * torch.tanh(expected / self.logit_cap)
        require_equal(logits, expected, "output of the model")

    def logit_rows(self, ids: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Weights [n, d] and biases [n] of the logits ``ids`` [n], or of differences of two, [n, 2].

        logits: [n, V]. The derivative of a soft cap weighs the two of a difference; a single logit's drops out.
        """
        rows = self.head.weight[ids]
        biases = [bias[ids] for bias in (self.head.bias, self.head_bias) if bias is not None]
        total = sum(biases[1:], biases[0]) if biases else rows.new_zeros(ids.shape)
        if ids.dim() == 1:
            return rows, total
        if self.logit_cap is not None:
            slope = 1 - (logits.gather(1, ids) / self.logit_cap).square()
            rows, total = rows * slope.unsqueeze(-1), total * slope
        return rows[:, 0] - rows[:, 1], total[:, 0] - total[:, 1]


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
    head = find(model, family.head)
    encoder = None if family.encoder is None else _read_stack(model, find(model, family.encoder), family, False)
    decoder = _read_stack(model, find(model, family.decoder), family, True)
    counterparts: dict[nn.Module, type[Recorded]] = {head: RelevanceLinear}
    for stack in (encoder, decoder):
        counterparts |= {} if stack is None else _counterparts(stack, family)
    bias = None if family.head_bias is None else find(model, family.head_bias).flatten()
    scaled = family.scaled_head is not None and getattr(model.config, family.scaled_head)
    scale = model.config.d_model**-0.5 if scaled else 1.0
    logit_scale = 1.0 if family.logit_scale is None else find(model, family.logit_scale)
    logit_cap = None if family.logit_cap is None else find(model, family.logit_cap)
    return Network(encoder, decoder, head, bias, scale, counterparts, logit_scale, logit_cap)


def _read_stack(model: PreTrainedModel, stack: Any, family: Family, is_decoder: bool) -> Stack:
    modules = list(find(stack, family.layers))
    layers = tuple(read_layer(model, stack, layer, modules[0], family, is_decoder) for layer in modules)
    front = None
    if family.convolutions and not is_decoder:
        convolutions = tuple(find(stack, name) for name in family.convolutions)
        front = FrontEnd(convolutions, F.gelu, stack.embed_positions)
    final_norm = find(stack, family.final_norm) if family.norm_first else None
    projection = None
    if family.output_projection is not None and has(stack, family.output_projection):
        projection = find(stack, family.output_projection)
    return Stack(layers, final_norm, front, projection)


def _counterparts(stack: Stack, family: Family) -> dict[nn.Module, type[Recorded]]:
    norm = NORMS[family.norm]
    found: dict[nn.Module, type[Recorded]] = {}
    for layer in stack.layers:
        found[layer.module] = RelevanceLayer
        for residual in layer.residuals:
            norms = [residual.norm]
            for branch in residual.branches:
                norms += [branch.before, branch.after]
                found |= dict.fromkeys(branch.block.linears, LINEARS[family.linear])
            found |= dict.fromkeys((each for each in norms if each is not None), norm)
    if stack.final_norm is not None:
        found[stack.final_norm] = norm
    if stack.projection is not None:
        found[stack.projection] = RelevanceLinear
    if stack.front is not None:
        found |= dict.fromkeys(stack.front.convolutions, RelevanceConv1d)
    return found


def widths(network: Network) -> tuple[int, int]:
    """The widest input or output of linear layers in attention, and in all blocks."""
    stacks = [stack for stack in (network.encoder, network.decoder) if stack is not None]
    blocks = [b.block for stack in stacks for layer in stack.layers for r in layer.residuals for b in r.branches]
    widest = [max(max(linear.weight.shape) for linear in block.linears) for block in blocks]
    return max(w for w, block in zip(widest, blocks, strict=True) if isinstance(block, Attention)), max(widest)
