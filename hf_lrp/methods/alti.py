"""ALTI+: contributions of vectors by their distance to an attention block's output, rolled out through the layers.

Each attention block with its residual (and the norm after their sum) is a sum of vectors, ``y_i = sum_j T_i(x_j) +
b``: what attention takes from position j, position i's own residual, constants. The contribution of j to i is

    c_ij = max(0, |y_i| - |y_i - T_i(x_j)|) / sum_k max(0, |y_i| - |y_i - T_i(x_k)|),   |.| the sum of absolute values.

Feed-forward blocks mix no positions: they pass contributions on. (Ferrando, Gállego and Costa-jussà 2022; Ferrando,
Gállego, Alastruey, Escolano and Costa-jussà 2022, whose decoder this is.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from hf_lrp.methods.method import Question, memory_beyond_pass
from hf_lrp.models.exchange import recorded
from hf_lrp.models.passes import Pass, Relevance, forward_passes
from hf_lrp.models.recording import Tape
from hf_lrp.models.structure import Attention, Branch, Residual, Stack, widths


@dataclass(frozen=True)
class ALTI:
    """Aggregation of layer-wise token-to-token interactions, over the whole model: ALTI+.

    All steps come from one forward pass; rows sum to 1, and no contribution is negative. What is explained of a step
    makes no difference: contributions are to the state that all its predictions are made from.

    Args:
        layer: one layer of the decoder alone, counted from 0: contributions of the encoder's outputs and of this
            layer's inputs to what it puts out, [T, S] and [T, D]; stacked, those of all layers are [layers, T, S].
            None: from the model's inputs through all layers.
    """

    layer: int | None = None
    sums_to_one: ClassVar[bool] = True
    conserves: ClassVar[bool] = True

    def explain(self, question: Question) -> list[Relevance]:
        """Contributions of the encoder's and the decoder's input positions to the states that predict."""
        depth = len(question.network.decoder.layers)
        if self.layer is not None and not 0 <= self.layer < depth:
            raise ValueError(f"There is no layer {self.layer}: the decoder has {depth}, counted from 0.")
        longest = max(question.positions, *(len(each.ids) for each in question.given))
        width, _ = widths(question.network)
        row = 4 * longest * width * question.model.dtype.itemsize  # one query's vectors from all positions
        rows = max(1, memory_beyond_pass(question, row) // row)
        results = []
        with recorded(question.model, network=question.network), torch.no_grad():
            encoder: Tensor | None = None
            for found in forward_passes(question.model, question.network, question.source, question.given):
                if question.network.encoder is not None and encoder is None:
                    assert found.encoder is not None
                    layers = _layers(question.network.encoder, found.encoder, question.positions, 0, rows)
                    encoder = _roll_out(layers, None).decoder
                results.append(_explain_one(question, found, encoder, rows, self.layer))
        return results


def _explain_one(question: Question, found: Pass, encoder: Tensor | None, rows: int, layer: int | None) -> Relevance:
    """encoder: contributions [S, S] of the encoder's inputs to its outputs; layer: one that alone is wanted."""
    steps, outputs = found.given.steps, 0 if encoder is None else len(encoder)
    layers = _layers(question.network.decoder, found.tape, len(found.given.ids), outputs, rows)
    total = _roll_out(layers, encoder) if layer is None else layers[layer]
    return found.chosen.relevance(total.source[steps], total.decoder[steps])


class Mixing(NamedTuple):
    """Contributions to positions of a stack: of the encoder's outputs, ``source`` [n, S], and of its inputs [n, n].

    Rows of both together sum to 1.
    """

    source: Tensor
    decoder: Tensor


def _layers(stack: Stack, tape: Tape, positions: int, outputs: int, rows: int) -> list[Mixing]:
    """Mixing of each layer alone; outputs: how many positions of the encoder are attended to."""
    found = []
    for layer in stack.layers:
        like = tape.input(layer.module)
        mixed = Mixing(like.new_zeros(positions, outputs), torch.eye(positions, dtype=like.dtype, device=like.device))
        for residual in layer.residuals:
            branch = next((b for b in residual.branches if b.block.mixes_positions), None)
            if branch is not None:
                taken, own = _contributions(residual, branch, tape, rows)
                mixed = _after(mixed, branch, taken, own)
        found.append(mixed)
    return found


def _after(mixed: Mixing, branch: Branch, taken: Tensor, own: Tensor) -> Mixing:
    """Mixing after one more block, which takes so much of each key [n, keys] and of its own position [n, 1]."""
    assert isinstance(branch.block, Attention)
    if branch.block.cross:
        return Mixing(taken + own * mixed.source, own * mixed.decoder)
    return Mixing(taken @ mixed.source, taken @ mixed.decoder)


def _roll_out(layers: list[Mixing], encoder: Tensor | None) -> Mixing:
    """All layers one after the other; with encoder [S, S], down to the encoder's inputs."""
    first, *others = layers
    source, decoder = first
    for layer in others:
        source, decoder = layer.source + layer.decoder @ source, layer.decoder @ decoder
    return Mixing(source if encoder is None else source @ encoder, decoder)


def _contributions(residual: Residual, branch: Branch, tape: Tape, rows: int) -> tuple[Tensor, Tensor]:
    """Contributions of keys [n, keys] and of the own position [n, 1] to what a residual puts out.

    In self-attention the own position is one vector with its residual, among the keys; [n, 1] is 0.
    """
    block = branch.block
    assert isinstance(block, Attention)
    query, key, value = block.states(tape, slice(None), slice(None))
    weights, _ = block.weights(query, key, 0)
    out, _ = block.out.module.weights(block.out.rows)
    values = torch.einsum("hkd,ohd->hko", value, out.unflatten(1, (len(value), -1)))  # what each head would take
    others = [each.exit(tape) for each in residual.branches if each is not branch]
    own = sum(others, residual.terms(tape)[0])  # parallel blocks work within positions
    joined = sum(residual.terms(tape)[1:], residual.terms(tape)[0])
    output = joined if residual.norm is None else tape.output(residual.norm)
    taken, kept = weights.new_empty(weights.shape[1:]), weights.new_empty(len(output), 1)
    for start in range(0, len(output), rows):
        some = slice(start, start + rows)
        vectors = torch.einsum("hqk,hko->qko", weights[:, some], values)
        if branch.after is not None:
            vectors = branch.after.linear_part(tape.input(branch.after)[some], vectors)
        vectors = torch.cat([vectors, own[some, None]], 1)
        if not block.cross:  # one vector of each position
            numbers = torch.arange(len(vectors), device=vectors.device)
            vectors[numbers, numbers + start] += vectors[:, -1]
            vectors[:, -1] = 0
        if residual.norm is not None:
            vectors = residual.norm.linear_part(joined[some], vectors)
        taken[some], kept[some] = _shares(vectors, output[some]).split([taken.shape[1], 1], 1)
    return taken, kept


def _shares(vectors: Tensor, output: Tensor) -> Tensor:
    """[n, vectors] of vectors [n, vectors, d] that add up to the output [n, d] with its constants."""
    distance = (output[:, None] - vectors).abs_().sum(-1)
    nearness = (output.abs().sum(-1, keepdim=True) - distance).clamp_min(0)
    return nearness / nearness.sum(1, keepdim=True)
