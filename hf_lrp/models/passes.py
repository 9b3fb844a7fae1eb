"""Forward passes over one source with one or several decoder inputs, recorded and checked, the encoder run once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from hf_lrp.models.recording import Tape, checked_together
from hf_lrp.models.structure import Network
from hf_lrp.models.weights import not_finite


class DecoderInput(NamedTuple):
    """Input of the decoder, and what of its predictions is explained.

    ids: [D], from the start token on; for a model that is a decoder only, from the beginning of the prompt on.
    choose: from logits [T, V] to the ids to explain, [T], or pairs of ids [T, 2] whose difference is explained.
    steps: the decoder positions whose predictions are explained.
    """

    ids: Tensor
    choose: Callable[[Tensor], Tensor]
    steps: slice


@dataclass(frozen=True)
class Relevance:
    """A method's own values for one sentence: ``source`` [steps, source], ``decoder`` [steps, decoder inputs].

    Without source tokens, ``source`` is [steps, 1]. A model that is a decoder only has no source of its own: the
    prompt is a part of the decoder's input. Those of LRP are raw shares, whose rows sum to 1. ``inside``: what was
    kept of the layers by name, steps on the second axis, where that is asked for (`hf_lrp.relevance.trace`).
    """

    source: Tensor
    decoder: Tensor
    logits: Tensor
    log_probability: Tensor
    explained: Tensor
    inside: Mapping[str, Tensor] | None = None


def join_steps(parts: Sequence[Relevance]) -> Relevance:
    """The steps of several parts one below the other."""
    if len(parts) == 1:
        return parts[0]
    names = [field.name for field in fields(Relevance) if field.name != "inside"]
    joined = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
    kept = [part.inside for part in parts if part.inside is not None]
    inside = {name: torch.cat([each[name] for each in kept], 1) for name in kept[0]} if kept else None
    return Relevance(**joined, inside=inside)


class Chosen(NamedTuple):
    """The explained logits, one for each step.

    ids: [T] or pairs [T, 2]; value: [T], the logit or the difference of two; log_probability: [T], of the (first)
    token; logits: [T] or [T, 2], of the ids.
    """

    ids: Tensor
    value: Tensor
    log_probability: Tensor
    logits: Tensor

    def relevance(self, source: Tensor, decoder: Tensor) -> Relevance:
        """A method's values for these logits."""
        return Relevance(source, decoder, self.value, self.log_probability, self.ids)


class Pass(NamedTuple):
    """Record of one forward pass.

    tape: of the decoder; encoder: the tape with the encoder's pass, and memory: its output [S, d]; None without one.
    """

    given: DecoderInput
    chosen: Chosen
    tape: Tape
    encoder: Tape | None
    memory: Tensor | None


def forward_passes(
    model: PreTrainedModel, network: Network, source: Mapping[str, Tensor], given: Sequence[DecoderInput]
) -> Iterator[Pass]:
    """One pass per decoder input, each checked against the structure before it is handed out.

    Args:
        model: one whose modules record (within `hf_lrp.models.exchange.recorded`).
        network: its structure.
        source: the encoder's inputs by name, without a batch dimension and without padding: ``input_ids`` [S], or
            ``input_features`` [bins, frames]. Empty for a model that is a decoder only.
        given: what the decoder is given.
    """
    inputs: dict[str, Any] = {name: tensor[None] for name, tensor in source.items()}
    encoder: Tape | None = None
    memory: Tensor | None = None
    for each in given:
        tape = Tape()
        with torch.no_grad(), torch.autocast(each.ids.device.type, enabled=False):
            with tape.recording():
                output = model(**inputs, **decoder_arguments(model, network, each))
            logits = output.logits[0]
            first = each.steps.start - (len(each.ids) - len(logits))
            require_finite(model, logits[first:])
            with checked_together():
                if network.encoder is not None and encoder is None:
                    encoder, memory = tape, network.encoder.replay(tape)
                    # the source stays: FSMT's decoder is causal only where it is given
                    inputs["encoder_outputs"] = BaseModelOutput(output.encoder_last_hidden_state)
                network.check_decoder(tape, memory, logits)
            del output
            chosen = choose_logits(logits[first : first + each.steps.stop - each.steps.start], each)
            tape.forget(network.head)  # logits are as large as much that comes
        del logits
        yield Pass(each, chosen, tape, encoder, memory)


def decoder_arguments(model: PreTrainedModel, network: Network, given: DecoderInput) -> dict[str, Any]:
    """Arguments of the model's forward method besides the source, a batch of one; no token is padding."""
    ids = given.ids[None]
    if network.encoder is not None:
        return {"decoder_input_ids": ids, "decoder_attention_mask": torch.ones_like(ids), "use_cache": False}
    options: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
    if takes(model, "logits_to_keep"):
        options["logits_to_keep"] = ids.shape[1] - given.steps.start  # a long prompt's logits would fill the memory
    return options


def takes(model: PreTrainedModel, argument: str) -> bool:
    """Whether the model's forward method has an argument of this name."""
    return argument in inspect.signature(type(model).forward).parameters


def choose_logits(logits: Tensor, given: DecoderInput) -> Chosen:
    """Logits that are explained, of the steps' logits [T, V]."""
    ids = given.choose(logits)
    pairs = ids.reshape(len(ids), -1)
    values = logits.gather(1, pairs)
    log_probability = logits.log_softmax(-1).gather(1, pairs[:, :1])[:, 0]
    value = values[:, 0] if ids.dim() == 1 else values[:, 0] - values[:, 1]
    return Chosen(ids, value, log_probability, values.view(ids.shape))


def require_finite(model: PreTrainedModel, logits: Tensor) -> None:
    """Raise for logits that are not finite, and say which weights are to blame."""
    if torch.isfinite(logits).all():
        return
    broken = not_finite(model)
    where = f"the weights {', '.join(broken[:3])} contain NaN or infinity" if broken else "its weights are finite"
    raise ValueError(
        f"{type(model).__name__} computes logits that are not finite ({where}). Load the checkpoint again, in "
        "float32; if it was trained in half precision, training has probably diverged."
    )
