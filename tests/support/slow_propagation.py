"""Relevance through a whole model with `slow_rules`: all positions and steps at once, no use of causality.

What is known of an architecture is written down here once more, independently of `hf_lrp.models.families`. Masks
and position biases are read off the attention weights that the model itself returns.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import slow_rules
import torch
from tiny_models import require_attention_weights
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_lrp.relevance.rules import Rule

Norm = Any  # a layer norm, or an RMS norm, which has no bias


@dataclass(frozen=True)
class Attention:
    """`scale`: of the queries; `cross`: to the encoder's output."""

    q: nn.Linear
    k: nn.Linear
    v: nn.Linear
    last: nn.Linear
    heads: int
    scale: float
    cross: bool


@dataclass(frozen=True)
class FeedForward:
    """`first`: one linear layer, or two whose outputs are multiplied, one of them activated."""

    first: tuple[nn.Linear, ...]
    last: nn.Linear


Block = tuple[Attention | FeedForward, Norm]


@dataclass(frozen=True)
class Stack:
    """Layers of blocks, each with its norm; `final_norm` only where norms come before blocks."""

    layers: list[list[Block]]
    final_norm: Norm | None
    convolutions: tuple[nn.Conv1d, ...] = ()


@dataclass(frozen=True)
class Description:
    """Where the parts of a model are."""

    encoder: Stack
    decoder: Stack
    head: nn.Linear
    head_bias: Tensor | None


@dataclass
class Seen:
    """What went into and came out of modules [length, d], and attention weights [heads, queries, keys]."""

    inputs: dict[nn.Module, Tensor] = field(default_factory=dict)
    outputs: dict[nn.Module, Tensor] = field(default_factory=dict)
    weights: dict[nn.Linear, Tensor] = field(default_factory=dict)  # by the attention's last linear layer
    side: str = ""
    pairs: bool = False
    inside: dict[str, list[Tensor]] = field(default_factory=dict)  # relevance on its way, from the top layer down

    def note(self, name: str, relevance: Tensor) -> None:
        """Keep relevance of the present stack by name."""
        self.inside.setdefault(f"{self.side}.{name}", []).insert(0, relevance)


def slow_propagate(
    model: PreTrainedModel, rule: Rule, source: Tensor | Mapping[str, Tensor], decoder_ids: Tensor, explained: Tensor
) -> tuple[Tensor, Tensor]:
    """The raw shares [T, S] and [T, T] of the logits `explained` ([T], or pairs [T, 2]) of all steps.

    source: ids [S], or the encoder's inputs by name, without a batch dimension.
    """
    return slow_inside(model, rule, source, decoder_ids, explained)[:2]


def slow_inside(
    model: PreTrainedModel,
    rule: Rule,
    source: Tensor | Mapping[str, Tensor],
    decoder_ids: Tensor,
    explained: Tensor,
    pairs: bool = False,
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """The same, and what is at positions, goes through blocks, heads, and pairs of positions, by layer and step."""
    description = describe(model)
    inputs = {"input_ids": source} if isinstance(source, Tensor) else source
    seen = see(model, description, inputs, decoder_ids)
    weight, bias = description.head.weight.detach()[explained], torch.zeros(explained.shape)
    if description.head_bias is not None:
        bias = description.head_bias[explained]
    if explained.dim() == 2:
        weight, bias = weight[:, 0] - weight[:, 1], bias[:, 0] - bias[:, 1]
    on_top = slow_rules.logit(rule, seen.inputs[description.head], weight, bias)[:, 0]
    relevance = torch.diag_embed(on_top.T).permute(1, 2, 0)  # [positions, steps, d]
    leaks: list[Tensor] = []
    seen.pairs = pairs
    seen.side = "decoder"
    relevance = _through_stack(description.decoder, rule, seen, relevance, leaks)
    seen.side = "encoder"
    to_source = _through_stack(description.encoder, rule, seen, torch.stack(leaks).sum(0), [])
    inside = {name: torch.stack(layers) for name, layers in seen.inside.items()}
    return to_source.sum(-1).T, relevance.sum(-1).T, inside


def describe(model: Any) -> Description:
    """What is known of a model's architecture."""
    if hasattr(model, "text_encoder"):  # SeamlessM4T
        encoder, decoder = (_bart_stack(stack, _seamless_blocks) for stack in (model.text_encoder, model.text_decoder))
        return Description(encoder, decoder, model.lm_head, None)
    if hasattr(model, "shared"):  # T5
        encoder, decoder = (
            Stack([_t5_blocks(block) for block in stack.block], stack.final_layer_norm)
            for stack in (model.encoder, model.decoder)
        )
        return Description(encoder, decoder, model.lm_head, None)
    encoder, decoder = (_bart_stack(stack, _bart_blocks) for stack in (model.model.encoder, model.model.decoder))
    if hasattr(model, "proj_out"):  # Whisper
        return Description(encoder, decoder, model.proj_out, None)
    if hasattr(model.model.decoder, "output_projection"):  # FSMT
        return Description(encoder, decoder, model.model.decoder.output_projection, None)
    bias = getattr(model, "final_logits_bias", None)  # M2M100 has none
    return Description(encoder, decoder, model.lm_head, None if bias is None else bias[0])


def _bart_stack(stack: Any, blocks: Any) -> Stack:
    convolutions = (stack.conv1, stack.conv2) if hasattr(stack, "conv1") else ()
    layers = [blocks(layer) for layer in stack.layers]
    return Stack(layers, getattr(stack, "layer_norm", None), convolutions)


def _bart_blocks(layer: Any) -> list[Block]:
    blocks: list[Block] = [(_bart_attention(layer.self_attn), layer.self_attn_layer_norm)]
    if hasattr(layer, "encoder_attn"):
        blocks.append((_bart_attention(layer.encoder_attn, cross=True), layer.encoder_attn_layer_norm))
    return [*blocks, (FeedForward((layer.fc1,), layer.fc2), layer.final_layer_norm)]


def _seamless_blocks(layer: Any) -> list[Block]:
    blocks: list[Block] = [(_bart_attention(layer.self_attn), layer.self_attn_layer_norm)]
    if hasattr(layer, "cross_attention"):
        blocks.append((_bart_attention(layer.cross_attention, cross=True), layer.cross_attention_layer_norm))
    return [*blocks, (FeedForward((layer.ffn.fc1,), layer.ffn.fc2), layer.ffn_layer_norm)]


def _bart_attention(module: Any, cross: bool = False) -> Attention:
    scale = (module.embed_dim / module.num_heads) ** -0.5
    return Attention(module.q_proj, module.k_proj, module.v_proj, module.out_proj, module.num_heads, scale, cross)


def _t5_blocks(block: Any) -> list[Block]:
    own, *cross, last = block.layer
    blocks: list[Block] = [(_t5_attention(own.SelfAttention), own.layer_norm)]
    blocks += [(_t5_attention(part.EncDecAttention, cross=True), part.layer_norm) for part in cross]
    dense = last.DenseReluDense
    first = (dense.wi_0, dense.wi_1) if hasattr(dense, "wi_0") else (dense.wi,)
    return [*blocks, (FeedForward(first, dense.wo), last.layer_norm)]


def _t5_attention(module: Any, cross: bool = False) -> Attention:
    return Attention(module.q, module.k, module.v, module.o, module.n_heads, 1.0, cross)


def see(model: Any, description: Description, inputs: Mapping[str, Tensor], decoder_ids: Tensor) -> Seen:
    """One forward pass, with what went through modules."""
    seen = Seen()

    def note(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        is_convolution = isinstance(module, nn.Conv1d)
        x, y = (t[0].T if is_convolution else t.flatten(0, -2) for t in (args[0], output))
        seen.inputs[module], seen.outputs[module] = x.detach().double(), y.detach().double()

    modules = {module for stack in (description.encoder, description.decoder) for module in modules_of(stack)}
    hooks = [module.register_forward_hook(note) for module in (*modules, description.head)]
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    batch = {name: tensor[None] for name, tensor in inputs.items()}
    output = model(**batch, decoder_input_ids=decoder_ids[None], use_cache=False, output_attentions=True)
    model.set_attn_implementation(implementation)
    for hook in hooks:
        hook.remove()
    require_attention_weights(output)
    attentions = {
        False: [*output.encoder_attentions, *output.decoder_attentions],
        True: [*output.cross_attentions],
    }
    for layer in (*description.encoder.layers, *description.decoder.layers):
        for block, _ in layer:
            if isinstance(block, Attention):
                seen.weights[block.last] = attentions[block.cross].pop(0)[0].detach().double()
    return seen


def modules_of(stack: Stack) -> Iterable[nn.Module]:
    """All modules that relevance passes."""
    for block, norm in (pair for layer in stack.layers for pair in layer):
        yield from (block.q, block.k, block.v) if isinstance(block, Attention) else block.first
        yield from (block.last, norm)
    yield from stack.convolutions
    if stack.final_norm is not None:
        yield stack.final_norm


def _through_stack(stack: Stack, rule: Rule, seen: Seen, relevance: Tensor, leaks: list[Tensor]) -> Tensor:
    norm_first = stack.final_norm is not None
    if norm_first:
        relevance = _norm(stack.final_norm, rule, seen, relevance)
    for layer in reversed(stack.layers):
        seen.note("positions", relevance.sum(-1).T)
        for block, norm in reversed(layer):
            relevance = _residual(block, norm, norm_first, rule, seen, relevance, leaks)
    seen.note("positions", relevance.sum(-1).T)
    for convolution in reversed(stack.convolutions):  # activations and positions are passed unchanged
        relevance = _convolution(convolution, rule, seen, relevance)
    if stack.convolutions:  # two frames are one source position
        relevance = relevance[0::2] + relevance[1::2]
    return relevance


def _residual(
    block: Attention | FeedForward,
    norm: Norm,
    norm_first: bool,
    rule: Rule,
    seen: Seen,
    relevance: Tensor,
    leaks: list[Tensor],
) -> Tensor:
    first = block.q if isinstance(block, Attention) else block.first[0]
    if not norm_first:
        relevance = _norm(norm, rule, seen, relevance)
    x = seen.inputs[norm if norm_first else first]
    to_x, to_update = slow_rules.residual(rule, x, seen.outputs[block.last], relevance)
    seen.note(f"{_name(block)}.past", to_x.sum((0, 2)))
    seen.note(f"{_name(block)}.through", to_update.sum((0, 2)))
    if isinstance(block, Attention):
        to_input = _attention(block, rule, seen, to_update, leaks)
    else:
        to_input = _feed_forward(block, rule, seen, to_update)
    return to_x + (_norm(norm, rule, seen, to_input) if norm_first else to_input)


def _name(block: Attention | FeedForward) -> str:
    return "feed_forward" if isinstance(block, FeedForward) else "cross" if block.cross else "self"


def _feed_forward(block: FeedForward, rule: Rule, seen: Seen, relevance: Tensor) -> Tensor:
    """The factors of a product receive half of its relevance each; activations pass it unchanged."""
    to_each = _linear(block.last, rule, seen, relevance) / len(block.first)
    return torch.stack([_linear(linear, rule, seen, to_each) for linear in block.first]).sum(0)


def _attention(block: Attention, rule: Rule, seen: Seen, relevance: Tensor, leaks: list[Tensor]) -> Tensor:
    def split(x: Tensor) -> Tensor:
        return torch.stack(x.chunk(block.heads, -1))

    def join(x: Iterable[Tensor]) -> Tensor:
        return torch.cat(list(x), -1)

    query, key, value = (split(seen.outputs[linear]) for linear in (block.q, block.k, block.v))
    query = block.scale * query
    routed = split(_linear(block.last, rule, seen, relevance))
    # what is added to the scores, up to a constant per query
    constants = seen.weights[block.last].log() - query @ key.transpose(1, 2)
    received = slow_rules.attention(rule, query, key, value, routed, constants)
    seen.note(f"{_name(block)}.heads", torch.stack([part.sum((1, 3)).T for part in received], -1))
    if seen.pairs:
        found = slow_rules.attention_pairs(rule, query, key, value, routed, constants, list(received))
        for kind, part in zip(("to_queries", "to_keys", "to_values"), found, strict=True):
            seen.note(f"{_name(block)}.{kind}", part.transpose(0, 1))
    to_query, to_key, to_value = map(join, received)
    to_keys = _linear(block.k, rule, seen, to_key) + _linear(block.v, rule, seen, to_value)
    to_query = _linear(block.q, rule, seen, to_query)
    if block.cross:
        leaks.append(to_keys)
        seen.note("sent", to_keys.sum(-1).T)
        return to_query
    return to_query + to_keys


def _linear(module: nn.Linear, rule: Rule, seen: Seen, relevance: Tensor) -> Tensor:
    bias = None if module.bias is None else module.bias.detach()
    return slow_rules.linear(rule, seen.inputs[module], module.weight.detach(), bias, relevance)


def _norm(module: Norm, rule: Rule, seen: Seen, relevance: Tensor) -> Tensor:
    x, weight = seen.inputs[module], module.weight.detach()
    if isinstance(module, nn.LayerNorm):
        return slow_rules.layer_norm(rule, x, weight, module.bias.detach(), module.eps, relevance)
    return slow_rules.rms_norm(rule, x, weight, relevance)


def _convolution(module: Any, rule: Rule, seen: Seen, relevance: Tensor) -> Tensor:
    x, weight, bias = seen.inputs[module], module.weight.detach(), module.bias.detach()
    return slow_rules.convolution(rule, x, weight, bias, module.stride[0], module.padding[0], relevance)
