"""From the explained logits to the lowest layers' inputs: derivatives, or what a law has in their place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hf_lrp.methods.method import Question, memory_beyond_pass
from hf_lrp.methods.slopes import Law, Rows, Slopes
from hf_lrp.models.exchange import recorded
from hf_lrp.models.passes import Chosen, DecoderInput, Pass, forward_passes
from hf_lrp.models.structure import Network, widths


class Returned(NamedTuple):
    """Values that came back for one decoder input.

    of_decoder: [steps, D, d], at the input x_decoder [D, d] of the decoder's lowest layer; of_encoder: [steps, S, d],
    at x_encoder [S, d]; None without an encoder. memory: the encoder's output, [S, d].
    """

    given: DecoderInput
    chosen: Chosen
    of_decoder: Tensor
    x_decoder: Tensor
    of_encoder: Tensor | None
    x_encoder: Tensor | None
    memory: Tensor | None


def go_back(question: Question, law: Law) -> list[Returned]:
    """For each decoder input, all steps together, or as many at a time as fit."""
    network, model = question.network, question.model
    width, widest = widths(network)
    positions = max(question.positions, *(len(each.ids) for each in question.given))
    heads = max(block.q.heads for block in _attentions(network))
    step = model.dtype.itemsize * positions * (16 * width + 4 * widest + 8 * heads * positions)
    capacity = max(1, memory_beyond_pass(question, step) // step)
    results = []
    with recorded(model, network=network), torch.no_grad():
        for found in forward_passes(model, network, question.source, question.given):
            rows = _logit_slopes(network, found.chosen, law)
            steps = found.given.steps
            parts = [
                _part(network, found, law, rows[first : first + capacity], steps.start + first)
                for first in range(0, len(rows), capacity)
            ]
            encoded = found.encoder is not None and network.encoder is not None
            results.append(
                Returned(
                    found.given,
                    found.chosen,
                    torch.cat([decoder for decoder, _ in parts]),
                    found.tape.input(network.decoder.layers[0].module),
                    torch.cat([encoder for _, encoder in parts if encoder is not None]) if encoded else None,
                    found.encoder.input(network.encoder.layers[0].module) if encoded else None,  # type: ignore[union-attr]
                    found.memory,
                )
            )
    return results


def _part(network: Network, found: Pass, law: Law, rows: Tensor, first: int) -> tuple[Tensor, Tensor | None]:
    """At both stacks' inputs, of some steps: [steps, D, d] and [steps, S, d]; rows: [steps, d] of the head's input."""
    back = Slopes(found.tape, law)
    own = Rows.own(first, len(rows), len(found.given.ids), rows.device)
    decoder = back.stack(network.decoder, rows, own)
    if network.encoder is None or found.encoder is None:
        return decoder, None
    assert back.memory is not None
    whole = Rows.whole(back.memory.shape[1], len(rows), rows.device)
    encoder = Slopes(found.encoder, law).stack(network.encoder, whole.gather(back.memory), whole)
    return decoder, encoder


def _logit_slopes(network: Network, chosen: Chosen, law: Law) -> Tensor:
    """Of the explained logits by the decoder's outputs at their positions, [steps, d]."""
    weights = network.head.weight[chosen.ids] * network.head_scale * network.logit_scale
    if network.logit_cap is not None:
        cap = network.logit_cap
        raw = cap * torch.atanh((chosen.logits / cap).clamp(-1 + 1e-6, 1 - 1e-6))
        weights = weights * law.slope(lambda u: cap * torch.tanh(u / cap), raw).unsqueeze(-1)
    return weights if chosen.ids.dim() == 1 else weights[:, 0] - weights[:, 1]


def _attentions(network: Network) -> Iterator[Any]:
    for layer in network.decoder.layers:
        for residual in layer.residuals:
            yield from (branch.block for branch in residual.branches if branch.block.mixes_positions)
