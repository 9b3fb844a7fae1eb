"""One forward pass, then relevance from the chosen logits back to both embeddings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hf_lrp import rules
from hf_lrp.blocks import Leak
from hf_lrp.modules import Tape, Window
from hf_lrp.network import Network
from hf_lrp.patching import PatchedModel


@dataclass(frozen=True)
class Relevance:
    """Raw shares of one sentence: ``source`` [steps, source], ``decoder`` [steps, decoder inputs]; rows sum to 1."""

    source: Tensor
    decoder: Tensor
    logits: Tensor
    probability: Tensor
    explained: Tensor


def propagate(
    patch: PatchedModel,
    source: dict[str, Tensor],
    decoder_ids: Tensor,
    choose: Callable[[Tensor], Tensor],
    steps: slice,
    max_memory: int,
) -> Relevance:
    """Explain one sentence pair.

    Args:
        patch: the patched model and its rule.
        source: the encoder's inputs by name, without a batch dimension and without padding: ``input_ids`` [S], or
            ``input_features`` [bins, frames].
        decoder_ids: [D], the decoder's input from the start token on.
        choose: from logits [T, V] to the ids to explain, [T], or pairs of ids [T, 2] whose difference is explained.
        steps: the decoder positions whose predictions are explained.
        max_memory: bytes that the propagation may use; steps are taken in chunks that fit.
    """
    tape = Tape()
    inputs = {name: tensor[None] for name, tensor in (source | {"decoder_input_ids": decoder_ids}).items()}
    inputs["decoder_attention_mask"] = torch.ones_like(decoder_ids)[None]  # no token is padding here
    with torch.no_grad(), torch.autocast(decoder_ids.device.type, enabled=False):
        with tape.recording():
            output = patch.model(**inputs, use_cache=False)
        logits = output.logits[0, steps]
        _require_finite(patch, logits)
        explained = choose(logits)
        patch.network.check(tape, output.logits[0])
        with torch.inference_mode():  # cheaper than no_grad; the forward pass may not: modules keep tensors of it
            to_source, to_decoder = _back(patch, tape, explained, steps, max_memory)
    probability = logits.softmax(-1)
    if explained.dim() == 1:
        value = logits.gather(1, explained[:, None])[:, 0]
    else:
        value = logits.gather(1, explained).diff(dim=1).neg()[:, 0]
    first = explained if explained.dim() == 1 else explained[:, 0]
    return Relevance(to_source, to_decoder, value, probability.gather(1, first[:, None])[:, 0], explained)


def _back(patch: PatchedModel, tape: Tape, explained: Tensor, steps: slice, max_memory: int) -> tuple[Tensor, Tensor]:
    network = patch.network
    rows, biases = network.logit_rows(explained)
    length = len(tape.input(network.head))
    source_length = len(tape.input(network.encoder.layers[0].module))
    source = rows.new_zeros(len(rows), source_length)
    decoder = rows.new_zeros(len(rows), length)
    chunk = _steps_per_chunk(network, source_length, length, rows.element_size(), max_memory)
    for first in range(steps.start, steps.stop, chunk):
        positions = slice(first, min(first + chunk, steps.stop))
        part = slice(positions.start - steps.start, positions.stop - steps.start)
        window = Window(tape, patch.rule, positions, own_step=True)
        relevance = rules.logit(patch.rule, window.input(network.head), rows[part], biases[part])
        leaks: list[Tensor] = []
        decoder[part, : positions.stop] = network.decoder.relprop(window, relevance, _gather(leaks)).T
        source[part] = network.encoder.relprop(Window(tape, patch.rule, slice(None)), leaks[0], _gather([])).T
    return source, decoder


def _gather(leaks: list[Tensor]) -> Leak:
    """Sums what cross-attention sends to the encoder's output, over the layers of the decoder."""

    def leak(relevance: Tensor) -> None:
        leaks[:] = [leaks[0].add_(relevance) if leaks else relevance]

    return leak


def _steps_per_chunk(network: Network, source: int, target: int, item: int, max_memory: int) -> int:
    """How many steps may go back together within ``max_memory`` bytes."""
    return max(1, max_memory // bytes_per_step(network, source, target, item))


def bytes_per_step(network: Network, source: int, target: int, item: int) -> int:
    """An upper estimate of what one more step costs, for sentences of these lengths."""
    layers = network.encoder.layers + network.decoder.layers
    shapes = [linear.weight.shape for layer in layers for r in layer.residuals for linear in r.block.linears]
    attention = [linear.weight.shape for layer in layers for r in layer.residuals[:-1] for linear in r.block.linears]
    width, widest = max(map(max, attention)), max(map(max, shapes))
    longest = max(source, target)
    return item * longest * (10 * width + 4 * widest + 8 * longest)


def _require_finite(patch: PatchedModel, logits: Tensor) -> None:
    if torch.isfinite(logits).all():
        return
    broken = [name for name, p in patch.model.named_parameters() if not torch.isfinite(p).all()]
    where = f"the weights {', '.join(broken[:3])} contain NaN or infinity" if broken else "its weights are finite"
    raise ValueError(
        f"{type(patch.model).__name__} computes logits that are not finite ({where}). Load the checkpoint again, in "
        "float32; if it was trained in half precision, training has probably diverged."
    )
