"""From the input of a stack's lowest layer down to token embeddings or features, with the derivatives between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from hf_lrp.methods.method import Question
from hf_lrp.models.passes import DecoderInput, decoder_arguments
from hf_lrp.models.structure import Stack


class Embedded(NamedTuple):
    """``inputs``: embeddings [n, d], or features [bins, frames] of sound; ``x``: what they become, [positions, d]."""

    inputs: Tensor
    x: Tensor

    def derivatives(self, of_x: Tensor) -> Tensor:
        """From derivatives by x, [steps, positions, d], to those by the inputs, [steps, positions, features]."""
        rows = [torch.autograd.grad(self.x, self.inputs, row.view_as(self.x), retain_graph=True)[0] for row in of_x]
        return torch.stack([by_position(row, len(self.x)) for row in rows])


def by_position(inputs: Tensor, positions: int) -> Tensor:
    """Inputs as [positions, features]; of sound, two frames with all their bins are one position."""
    if inputs.dim() == 2 and len(inputs) == positions:
        return inputs
    bins, frames = inputs.shape[-2:]
    return inputs.view(bins, positions, frames // positions).transpose(0, 1).flatten(1)


class _Complete(Exception):
    """The lowest layer's input has been seen."""


def embed_source(question: Question) -> Embedded:
    """The encoder's inputs."""
    stack = question.network.encoder
    assert stack is not None
    inputs = {name: tensor[None] for name, tensor in question.source.items()}
    given = decoder_arguments(question.model, question.network, question.given[0])
    if "input_features" in inputs:
        features = inputs["input_features"].detach().clone().requires_grad_()
        return Embedded(features, _run(question.model, stack, {**inputs, **given, "input_features": features}))
    with _leaf(question.model, question.source["input_ids"]) as leaves:
        x = _run(question.model, stack, inputs | given)
    return Embedded(leaves[0], x)


def embed_target(question: Question, given: DecoderInput, memory: Tensor | None) -> Embedded:
    """The decoder's inputs; memory: the encoder's output."""
    inputs: dict[str, Any] = dict(decoder_arguments(question.model, question.network, given))
    if memory is not None:
        inputs |= {name: tensor[None] for name, tensor in question.source.items()}
        inputs["encoder_outputs"] = BaseModelOutput(memory[None])
    with _leaf(question.model, given.ids) as leaves:
        x = _run(question.model, question.network.decoder, inputs)
    return Embedded(leaves[0], x)


def _run(model: PreTrainedModel, stack: Stack, inputs: Mapping[str, Any]) -> Tensor:
    """Input of a stack's lowest layer, [positions, d], with its graph; the pass ends there."""
    seen: list[Tensor] = []

    def stop(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        seen.append(args[0] if args else options["hidden_states"])
        raise _Complete

    hook = stack.layers[0].module.register_forward_pre_hook(stop, with_kwargs=True)
    try:
        with torch.enable_grad(), torch.autocast(model.device.type, enabled=False):
            model(**inputs)
    except _Complete:
        pass
    finally:
        hook.remove()
    return seen[0].flatten(0, -2)


@contextmanager
def _leaf(model: PreTrainedModel, ids: Tensor) -> Iterator[list[Tensor]]:
    """The first embedding that is asked for these ids gives a leaf, which is handed out, [n, d]."""
    found: list[Tensor] = []

    def replace(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        given = args[0] if isinstance(args[0], Tensor) else ids[:0]  # some embeddings of positions are given a shape
        if found or given.numel() != ids.numel() or not torch.equal(given.flatten(), ids):
            return None
        found.append(output.detach().flatten(0, -2).clone().requires_grad_())
        return found[0].view_as(output)

    hooks = [m.register_forward_hook(replace) for m in model.modules() if isinstance(m, nn.Embedding)]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
