"""One forward pass, then relevance from the chosen logits back to both embeddings."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from hf_lrp.models.passes import DecoderInput, Relevance, require_finite
from hf_lrp.models.recording import Tape, checked_together
from hf_lrp.models.structure import Network, Stack, widths
from hf_lrp.relevance import compiled, operations
from hf_lrp.relevance.backward import Backward
from hf_lrp.relevance.patching import PatchedModel
from hf_lrp.relevance.reused_memory import recycled
from hf_lrp.relevance.trace import Extent, Inside, Kept, Trace, split
from hf_lrp.relevance.window import WHOLE, Window

MEMORY = 2**30  # bytes that steps may use where nothing else is said


def most_probable(logits: Tensor) -> Tensor:
    """The ids with the largest logits, [T] of [T, V]."""
    return logits.argmax(-1)


def propagate(
    patch: PatchedModel,
    source: dict[str, Tensor],
    decoder_ids: Tensor,
    choose: Callable[[Tensor], Tensor] = most_probable,
    steps: slice = slice(0, None),
    max_memory: int = MEMORY,
    inside: Inside = False,
) -> Relevance:
    """Relevance of one sentence pair, by hand: raw shares of source tokens and of decoder inputs.

    Args:
        patch: the patched model and its rule.
        source: the encoder's inputs by name, without a batch dimension and without padding: ``input_ids`` [S], or
            ``input_features`` [bins, frames]. Empty for a model that is a decoder only.
        decoder_ids: [D], the decoder's input from the start token, or the beginning of the prompt, on.
        choose: from logits [T, V] to the ids to explain, [T], or pairs of ids [T, 2] whose difference is explained;
            by default the most probable ones.
        steps: the decoder positions whose predictions are explained; by default all.
        max_memory: bytes that steps may use, besides what a pass needs; they are taken in chunks that fit.
        inside: whether to keep what goes through the layers; ``"pairs"``: also from each query to each key.
    """
    whole = slice(*steps.indices(len(decoder_ids)))
    return propagate_all(patch, source, [DecoderInput(decoder_ids, choose, whole)], max_memory, inside=inside)[0]


def propagate_all(
    patch: PatchedModel,
    source: dict[str, Tensor],
    given: Sequence[DecoderInput],
    max_memory: int,
    source_tokens: bool = True,
    inside: Inside = False,
) -> list[Relevance]:
    """Explain several decoder inputs of one source, which share the encoder's passes; else as `propagate`.

    source_tokens: False leaves the relevance of the source as one: the encoder, through which nothing is lost, is not
    gone back through.
    """
    kept = [Kept(inside == "pairs") if inside else None for _ in given]
    with torch.no_grad(), torch.autocast(given[0].ids.device.type, enabled=False):
        if patch.network.encoder is None:
            found = [_propagate_alone(patch, *each, max_memory) for each in zip(given, kept, strict=True)]
        else:
            found = _propagate_pairs(patch, patch.network.encoder, source, given, kept, max_memory, source_tokens)
    if not inside:
        return found
    return [replace(one, inside=k.joined()) for one, k in zip(found, kept, strict=True) if k is not None]


def _propagate_pairs(
    patch: PatchedModel,
    stack: Stack,
    source: dict[str, Tensor],
    given: Sequence[DecoderInput],
    kept: Sequence[Kept | None],
    max_memory: int,
    source_tokens: bool,
) -> list[Relevance]:
    inputs: dict[str, Any] = {name: tensor[None] for name, tensor in source.items()}
    longest = max(len(each.ids) for each in given)
    encoder: _Encoder | None = None
    results = []
    for each, keeping in zip(given, kept, strict=True):
        tape = Tape()
        mask = torch.ones_like(each.ids)[None]  # no token is padding here
        with tape.recording():
            output = patch.model(
                **inputs, decoder_input_ids=each.ids[None], decoder_attention_mask=mask, use_cache=False
            )
        require_finite(patch.model, output.logits[0, each.steps])
        if encoder is None:
            encoder = _Encoder(patch, stack, tape, longest, max_memory)
            # the source stays: FSMT's decoder is causal only where it is given
            inputs["encoder_outputs"] = BaseModelOutput(output.encoder_last_hidden_state)
        with checked_together():
            patch.network.check_decoder(tape, encoder.output, output.logits[0])
        chosen = _choose(patch, tape, output.logits[0], each)
        del output  # logits are as large as much that comes
        # cheaper than no_grad; forward passes may not: modules keep tensors of them
        with torch.inference_mode(), recycled(), compiled.own_threads(patch.rule, chosen.rows):
            results.append(_back(patch, tape, chosen, each, keeping, encoder.capacity, encoder, source_tokens))
    assert encoder is not None
    with torch.inference_mode(), recycled(), compiled.own_threads(patch.rule, encoder.output):
        encoder.send_back()
    return results


def _propagate_alone(patch: PatchedModel, given: DecoderInput, kept: Kept | None, max_memory: int) -> Relevance:
    """Explain one input of a model that is a decoder only."""
    tape, length = Tape(), len(given.ids)
    options: dict[str, Any] = {"attention_mask": torch.ones_like(given.ids)[None], "use_cache": False}
    if "logits_to_keep" in inspect.signature(type(patch.model).forward).parameters:
        options["logits_to_keep"] = length - given.steps.start  # a long prompt's logits would fill the memory
    with tape.recording():
        logits = patch.model(input_ids=given.ids[None], **options).logits[0]
    require_finite(patch.model, logits[given.steps.start - length :])
    with checked_together():
        patch.network.check_decoder(tape, None, logits)
    capacity = steps_per_chunk(patch.network, 0, length, logits.element_size(), max_memory)
    chosen = _choose(patch, tape, logits, given)
    del logits
    with torch.inference_mode(), recycled(), compiled.own_threads(patch.rule, chosen.rows):
        return _back(patch, tape, chosen, given, kept, capacity)


class _Encoder:
    """The encoder's one forward pass, and relevance of its output that waits to go back through it together.

    Going back costs less per step the more steps go together: contributions are built once for all of them.
    """

    def __init__(self, patch: PatchedModel, stack: Stack, tape: Tape, longest: int, max_memory: int) -> None:
        with checked_together():
            self.output = stack.replay(tape)
        item = self.output.element_size()
        self.capacity = steps_per_chunk(patch.network, len(self.output), longest, item, max_memory)
        self._stack, self._tape, self._rule = stack, tape, patch.rule
        self._leaks: list[Tensor] = []
        self._rows: list[Tensor] = []
        self._kept: list[Kept | None] = []

    def make_room(self, steps: int) -> None:
        """Send back what waits, if ``steps`` more would be too many."""
        if sum(map(len, self._rows)) + steps > self.capacity:
            self.send_back()

    def add(self, leak: Tensor, rows: Tensor, kept: Kept | None) -> None:
        """Let relevance [positions, steps, d] wait; its totals will be written to ``rows`` [steps, positions].

        kept: where what goes through the encoder's layers will be added.
        """
        self._leaks.append(leak)
        self._rows.append(rows)
        self._kept.append(kept)

    def send_back(self) -> None:
        """Propagate all that waits."""
        if not self._leaks:
            return
        together = self._leaks[0] if len(self._leaks) == 1 else torch.cat(self._leaks, 1)
        self._leaks.clear()
        trace = None
        if self._kept[0] is not None:
            extent = Extent(together.shape[1], 0, len(together))
            trace = Trace(self._stack, extent, together, self._kept[0].pairs)
        totals = Backward(self._tape, self._rule, trace=trace).stack(self._stack, together, WHOLE).T
        steps = [len(rows) for rows in self._rows]
        for rows, part in zip(self._rows, totals.split(steps), strict=True):
            rows.copy_(part)
        if trace is not None:
            for kept, flow in zip(self._kept, split(trace.flow, steps), strict=True):
                assert kept is not None
                kept.encoder.append(flow)
        self._rows.clear()
        self._kept.clear()


class _Chosen(NamedTuple):
    """The logits that are explained, one for each step: their ids, values and log-probabilities, and what they come
    from.

    inputs: [T, d], the output layer's input; rows: [T, d] and biases: [T], the weights.
    """

    ids: Tensor
    value: Tensor
    log_probability: Tensor
    inputs: Tensor
    rows: Tensor
    biases: Tensor


def _choose(patch: PatchedModel, tape: Tape, logits: Tensor, given: DecoderInput) -> _Chosen:
    """Logits that are explained, of those of the last or all positions, [positions, V]; the tape forgets the rest."""
    left_out = len(given.ids) - len(logits)
    steps = slice(given.steps.start - left_out, given.steps.stop - left_out)
    logits = logits[steps]
    ids = given.choose(logits)
    pairs = ids.reshape(len(ids), -1)
    values = logits.gather(1, pairs)
    log_probability = logits.log_softmax(-1).gather(1, pairs[:, :1])[:, 0]
    value = values[:, 0] if ids.dim() == 1 else values[:, 0] - values[:, 1]
    inputs = tape.input(patch.network.head)[steps]
    tape.forget(patch.network.head)
    return _Chosen(ids, value, log_probability, inputs, *patch.network.logit_rows(ids, logits))


def _back(
    patch: PatchedModel,
    tape: Tape,
    chosen: _Chosen,
    given: DecoderInput,
    kept: Kept | None,
    capacity: int,
    encoder: _Encoder | None = None,
    source_tokens: bool = True,
) -> Relevance:
    """Relevance of one decoder input, whose ``source`` is complete once the encoder has sent back all that waits."""
    network, steps, rows = patch.network, given.steps, chosen.rows
    source = rows.new_zeros(len(rows), 0 if encoder is None else len(encoder.output) if source_tokens else 1)
    decoder = rows.new_zeros(len(rows), len(given.ids))
    for first in range(steps.start, steps.stop, capacity):
        positions = slice(first, min(first + capacity, steps.stop))
        part = slice(positions.start - steps.start, positions.stop - steps.start)
        if encoder is not None:
            encoder.make_room(part.stop - part.start)
        relevance = operations.logit(patch.rule, chosen.inputs[part], rows[part], chosen.biases[part])
        trace = None
        if kept is not None:
            memory = 0 if encoder is None else len(encoder.output)
            extent = Extent(part.stop - part.start, positions.start, len(given.ids), memory)
            trace = Trace(network.decoder, extent, relevance, kept.pairs)
            kept.decoder.append(trace.flow)
        back = Backward(tape, patch.rule, leak_totals=not source_tokens, trace=trace)
        decoder[part, : positions.stop] = back.stack(network.decoder, relevance, Window(positions, own_step=True)).T
        if encoder is not None and back.leak is not None:
            if source_tokens:
                encoder.add(back.leak, source[part], kept)
            else:
                source[part] = back.leak.sum(0)
    return Relevance(source, decoder, chosen.value, chosen.log_probability, chosen.ids)


def steps_per_chunk(network: Network, source: int, target: int, item: int, max_memory: int) -> int:
    """How many steps may go back together within ``max_memory`` bytes."""
    return max(1, max_memory // bytes_per_step(network, source, target, item))


def memory_for_steps(network: Network, source: int, target: int, item: int, max_memory: int, kept: int = 0) -> int:
    """Memory for steps that a pass over a sentence of these lengths leaves of ``max_memory``; raises if too little.

    kept: bytes of what is kept of all steps on their way.
    """
    fixed, step = kept + bytes_of_pass(network, source, target, item), bytes_per_step(network, source, target, item)
    if max_memory < fixed + step:
        raise ValueError(
            f"max_memory (by default half of what is free) is {max_memory / 1e6:.3g} MB, but to explain one step of a "
            f"sentence of {source} source and {target} target tokens this model needs about "
            f"{(fixed + step) / 1e6:.3g} MB. Give at least max_memory='{math.ceil((fixed + step) / 1e6)}MB', or "
            "shorter sentences."
        )
    return max_memory - fixed


# What the allocator keeps beyond what is asked for, as a factor; what code, threads and loops take, in bytes.
OVERHEAD, WORKSPACE = 1.35, 14 * 10**6


def bytes_of_pass(network: Network, source: int, target: int, item: int) -> int:
    """An upper estimate of what is needed however few steps go back: what a pass records and a layer contributes."""
    width, widest = widths(network)
    stacks = ((network.encoder, source), (network.decoder, target))
    recorded = sum(len(stack.layers) * length for stack, length in stacks if stack is not None)
    logits = 3 * target * len(network.head.weight)  # as computed, as recorded, and as checked
    return int(OVERHEAD * item * (recorded * (8 * width + 2 * widest) + logits + 2 * width * widest)) + WORKSPACE


def bytes_per_step(network: Network, source: int, target: int, item: int) -> int:
    """An upper estimate of what one more step costs, for sentences of these lengths."""
    width, widest = widths(network)
    longest = max(source, target)
    return item * longest * (10 * width + 4 * widest + 8 * longest)
