"""ALTI+ again, slowly, in float64 and loops over positions: the papers' formulas, on other descriptions of models.

For each block of attention, all vectors ``T_i(x_j)`` are made one by one; its output is their sum with constants.
"""

from dataclasses import dataclass
from typing import Any

import slow_decoder
import slow_propagation
import slow_t5gemma
import torch
from decoder_layers import Norm, describe
from torch import Tensor

from hf_lrp.methods.method import Question


@dataclass(frozen=True)
class Block:
    """Attention with what stands around it.

    weights: [heads, q, k]; values: [heads, k, d]; x: [q, d], the residual; out: [d, heads d] and its bias;
    beside: [q, d], what else is added; inner: a norm of what attention adds; outer: one of the sum.
    """

    weights: Tensor
    values: Tensor
    x: Tensor
    out: Tensor
    out_bias: Tensor
    beside: Tensor
    cross: bool
    inner: Norm | None = None
    outer: Norm | None = None


def contributions(block: Block) -> tuple[Tensor, Tensor]:
    """[q, k] of keys, and [q] of the residual, which in attention to itself counts as the own key."""
    heads, queries, keys = block.weights.shape
    to_keys, own = torch.zeros(queries, keys).double(), torch.zeros(queries).double()
    for i in range(queries):
        vectors = []
        for j in range(keys):
            mixed = torch.cat([block.weights[head, i, j] * block.values[head, j] for head in range(heads)])
            vectors.append(block.out @ mixed)
        added = sum(vectors, block.out_bias)
        if block.inner is not None:
            vectors = [block.inner.part_of(vector, added) for vector in vectors]
            added = block.inner(added)
        residual = block.x[i] + block.beside[i]
        output = residual + added
        if block.cross:
            vectors.append(residual)
        else:
            vectors[i] = vectors[i] + residual
        if block.outer is not None:
            vectors, output = [block.outer.part_of(vector, output) for vector in vectors], block.outer(output)
        near = [max(0.0, float(output.abs().sum() - (output - vector).abs().sum())) for vector in vectors]
        to_keys[i] = torch.tensor(near[:keys]) / sum(near)
        own[i] = sum(near[keys:]) / sum(near)
    return to_keys, own


def roll_out(layers: list[list[Block]], length: int, encoder: Tensor | None) -> tuple[Tensor, Tensor]:
    """[length, S] of the encoder's inputs and [length, length] of the stack's own."""
    decoder = torch.eye(length).double()
    source = torch.zeros(length, 0 if encoder is None else len(encoder)).double()
    for layer in layers:
        for block in layer:
            to_keys, own = contributions(block)
            if block.cross:
                assert encoder is not None
                source = to_keys @ encoder + own[:, None] * source
                decoder = own[:, None] * decoder
            else:
                source, decoder = to_keys @ source, to_keys @ decoder
    return source, decoder


def slow_alti(question: Question, layer: int | None = None) -> tuple[Tensor, Tensor]:
    """Contributions [T, S] and [T, D]; layer: of one alone, from the encoder's outputs and from its own inputs."""
    model, given = question.model, question.given[0]
    if model.config.model_type == "t5gemma":
        stacks = _t5gemma(model, question.source["input_ids"], given.ids)
    elif question.source:
        stacks = _encoder_decoder(model, question)
    else:
        source, decoder = roll_out(_chosen(_decoder(model, given.ids), layer), len(given.ids), None)
        return source[given.steps], decoder[given.steps]
    encoder = roll_out(stacks[0] if layer is None else [], question.positions, None)[1]
    source, decoder = roll_out(_chosen(stacks[1], layer), len(given.ids), encoder)
    return source[given.steps], decoder[given.steps]


def _chosen(layers: list[list[Block]], layer: int | None) -> list[list[Block]]:
    return layers if layer is None else [layers[layer]]


def _encoder_decoder(model: Any, question: Question) -> list[list[list[Block]]]:
    description = slow_propagation.describe(model)
    with torch.no_grad():
        seen = slow_propagation.see(model, description, question.source, question.given[0].ids)
    stacks = []
    for stack in (description.encoder, description.decoder):
        layers = []
        for layer in stack.layers:
            blocks = []
            for block, norm in layer:
                if isinstance(block, slow_propagation.FeedForward):
                    continue
                first = stack.final_norm is not None
                x = seen.inputs[norm if first else block.q]
                bias = block.last.bias
                blocks.append(
                    Block(
                        seen.weights[block.last],
                        torch.stack(seen.outputs[block.v].chunk(block.heads, -1)),
                        x,
                        block.last.weight.detach().double(),
                        torch.zeros(x.shape[1]).double() if bias is None else bias.detach().double(),
                        torch.zeros_like(x),
                        block.cross,
                        outer=None if first else _layer_norm(norm),
                    )
                )
            layers.append(blocks)
        stacks.append(layers)
    return stacks


def _decoder(model: Any, ids: Tensor) -> list[list[Block]]:
    layers, _, _, x = describe(model, ids)
    blocks = []
    for layer in layers:
        seen = slow_decoder.Seen()
        after = slow_decoder.forward(layer, x, seen)
        query, key, value = slow_decoder.states(layer, seen)
        scores = slow_decoder.slow_rules.capped(layer.scale * query @ key.transpose(1, 2), layer.cap)
        weights = (scores + slow_decoder.mask_of(layer, len(x))).softmax(-1)
        bias = torch.zeros(x.shape[1]).double() if layer.out.bias is None else layer.out.bias
        beside = seen.x["more"] if layer.parallel else torch.zeros_like(x)
        inner, outer = (None, layer.norms[0]) if layer.after_sums else (layer.norms[1], None)
        blocks.append([Block(weights, value, x, layer.out.weight, bias, beside, False, inner, outer)])
        x = after
    return blocks


def _layer_norm(module: Any) -> Norm:
    return Norm(module.weight.detach().double(), module.bias.detach().double(), module.eps, rms=False)


def _t5gemma(model: Any, source: Tensor, decoder_ids: Tensor) -> list[list[list[Block]]]:
    stacks = []
    for own in slow_t5gemma.run(model, source, decoder_ids)[0]:
        blocks = []
        for block in own:
            if block.is_attention:
                seen, out = block.seen, block.linears[3].weight
                x, bias = seen["x"], torch.zeros(len(out)).double()
                nothing = torch.zeros_like(x)
                blocks.append(
                    Block(seen["weights"], seen["value"], x, out, bias, nothing, block.cross, inner=block.after)
                )
        per_layer = len(blocks) // model.config.encoder.num_hidden_layers
        stacks.append([blocks[i : i + per_layer] for i in range(0, len(blocks), per_layer)])
    return stacks
