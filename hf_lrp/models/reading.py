"""Reading a model with its family's description: stacks, layers, and which modules are recorded as what."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from hf_lrp.models.families import HOW_TO, Family, family_of
from hf_lrp.models.heads import HeadNorm, HeadStates, Projection, Rotary
from hf_lrp.models.modules import (
    RecordedConv1d,
    RecordedLayer,
    RecordedLayerNorm,
    RecordedLinear,
    RecordedOffsetRMSNorm,
    RecordedOwnLayerNorm,
    RecordedOwnLinear,
    RecordedRMSNorm,
    RecordedTransposedLinear,
)
from hf_lrp.models.recording import Recorded, UnknownStructure
from hf_lrp.models.structure import Attention, Branch, FeedForward, FrontEnd, Layer, Network, Residual, Stack

NORMS: dict[str, type[Recorded]] = {
    "layer": RecordedLayerNorm,
    "own layer": RecordedOwnLayerNorm,
    "rms": RecordedRMSNorm,
    "offset rms": RecordedOffsetRMSNorm,
}
LINEARS: dict[str, type[Recorded]] = {
    "plain": RecordedLinear,
    "own": RecordedOwnLinear,
    "transposed": RecordedTransposedLinear,
}


def find(root: Any, path: str) -> Any:
    """The module or value that an attribute path leads to; numbers index module lists."""
    for name in path.split("."):
        root = root[int(name)] if name.lstrip("-").isdigit() else getattr(root, name)
    return root


def has(root: Any, path: str) -> bool:
    """Whether an attribute path leads anywhere."""
    try:
        return find(root, path) is not None
    except (AttributeError, IndexError):
        return False


def _maybe(root: Any, path: str | None) -> Any | None:
    return None if path is None else find(root, path)


def read_network(model: PreTrainedModel) -> Network:
    """Describe ``model`` by its family; raises for architectures that are not supported."""
    family = family_of(model)
    try:
        return _read(model, family)
    except (AttributeError, IndexError) as error:
        raise UnknownStructure(
            f"{type(model).__name__} is not built as the description of {model.config.model_type!r} says: {error}. "
            f"Another task's class, custom modeling code or an unknown transformers version can cause this. {HOW_TO}"
        ) from error


def _read(model: PreTrainedModel, family: Family) -> Network:
    # GPT-NeoX's has another name in older releases of transformers
    head = find(model, family.head) if has(model, family.head) else model.get_output_embeddings()
    encoder = None if family.encoder is None else _read_stack(model, find(model, family.encoder), family, False)
    decoder = _read_stack(model, find(model, family.decoder), family, True)
    counterparts: dict[nn.Module, type[Recorded]] = {head: RecordedLinear}
    for stack in (encoder, decoder):
        counterparts |= {} if stack is None else _counterparts(stack, family)
    bias = None if family.head_bias is None else find(model, family.head_bias).flatten()
    scaled = family.scaled_head is not None and getattr(model.config, family.scaled_head)
    scale = model.config.d_model**-0.5 if scaled else 1.0
    logit_scale = 1.0 if family.logit_scale is None else find(model, family.logit_scale)
    logit_cap = None if family.logit_cap is None else find(model, family.logit_cap)
    return Network(encoder, decoder, head, bias, scale, counterparts, logit_scale, logit_cap, family.time_first)


def _read_stack(model: PreTrainedModel, stack: Any, family: Family, is_decoder: bool) -> Stack:
    modules = list(find(stack, family.layers))
    layers = tuple(_read_layer(model, stack, layer, modules[0], family, is_decoder) for layer in modules)
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
        found[layer.module] = RecordedLayer
        for residual in layer.residuals:
            norms = [residual.norm]
            for branch in residual.branches:
                norms += [branch.before, branch.after]
                found |= dict.fromkeys(branch.block.linears, LINEARS[family.linear])
            found |= dict.fromkeys((each for each in norms if each is not None), norm)
    if stack.final_norm is not None:
        found[stack.final_norm] = norm
    if stack.projection is not None:
        found[stack.projection] = RecordedLinear
    if stack.front is not None:
        found |= dict.fromkeys(stack.front.convolutions, RecordedConv1d)
    return found


def _read_layer(model: PreTrainedModel, stack: Any, layer: Any, first: Any, family: Family, is_decoder: bool) -> Layer:
    """One layer of a stack; first: the stack's first, which may hold a position bias for all."""
    own = find(layer, family.self_attention)
    attention = _self_attention(model, stack, own, find(first, family.self_attention), family, is_decoder)
    blocks: list[tuple[Attention | FeedForward, str | None, str | None]] = [
        (attention, family.self_attention_norm, family.self_attention_post_norm)
    ]
    if is_decoder and family.encoder is not None:
        cross = _cross_attention(find(layer, family.cross_attention), family)
        blocks.append((cross, family.cross_attention_norm, family.cross_attention_post_norm))
    blocks.append((_feed_forward(layer, family), family.feed_forward_norm, family.feed_forward_post_norm))
    if not family.norm_first:
        return Layer(layer, tuple(Residual((Branch(block),), _maybe(layer, norm)) for block, norm, _ in blocks))
    branches = [Branch(block, _maybe(layer, norm), _maybe(layer, post)) for block, norm, post in blocks]
    if family.parallel:
        return Layer(layer, (Residual(tuple(reversed(branches))),))
    return Layer(layer, tuple(Residual((branch,)) for branch in branches))


def _self_attention(
    model: PreTrainedModel, stack: Any, module: Any, first: Any, family: Family, is_decoder: bool
) -> Attention:
    rotary, bias = None, None
    query_norm, key_norm = None, None
    if family.rotary is not None and (family.rotary_if is None or find(module, family.rotary_if)):
        rotary = Rotary(find(stack, family.rotary), family.rotary_pairs, _maybe(module, family.rotary_by_layer))
    if family.query_key_norms is not None:
        query_norm, key_norm = (HeadNorm(find(module, name), family.norm) for name in family.query_key_norms)
    q, k, v = _projections(module, family)
    heads, key_heads = _heads(module, family)
    if family.position_bias is not None:
        bias = module if hasattr(module, family.position_bias) else first
    elif family.alibi is not None:
        bias = Alibi(model, heads, _scale(module, family) if family.alibi == "scaled" else 1.0)
    return Attention(
        HeadStates(q, heads, query_norm, rotary),
        HeadStates(k, key_heads, key_norm, rotary),
        HeadStates(v, key_heads),
        Projection(find(module, family.projections[3])),
        _scale(module, family),
        causal=is_decoder,
        bias=bias,
        reach=_maybe(module, family.sliding_window),
        cap=_score_cap(module, family),
    )


def _cross_attention(module: Any, family: Family) -> Attention:
    q, k, v = _projections(module, family)
    heads, key_heads = _heads(module, family)
    return Attention(
        HeadStates(q, heads),
        HeadStates(k, key_heads),
        HeadStates(v, key_heads),
        Projection(find(module, family.projections[3])),
        _scale(module, family),
        cross=True,
        cap=_score_cap(module, family),
    )


def _heads(module: Any, family: Family) -> tuple[int, int]:
    heads: int = find(module, family.heads)
    return heads, heads if family.key_heads is None else find(module, family.key_heads)


def _scale(module: Any, family: Family) -> float:
    if family.scaling is None:
        return 1.0
    # GPT-2's has no name in older releases of transformers; that it is this one is checked on each pass
    scale: float = find(module, family.scaling) if has(module, family.scaling) else module.head_dim**-0.5
    return scale


def _score_cap(module: Any, family: Family) -> float | None:
    cap: float | None = _maybe(module, family.score_cap)
    if cap is not None and module.config._attn_implementation == "sdpa":
        raise ValueError(
            f"{type(module).__name__} has soft caps, which attn_implementation='sdpa' leaves out; older releases of "
            "transformers choose it. Load the model with attn_implementation='eager', as it was trained."
        )
    return cap


def _projections(module: Any, family: Family) -> tuple[Projection, Projection, Projection]:
    """Those of queries, keys and values."""
    q, k, v = (find(module, name) for name in family.projections[:3])
    if family.fused is None:
        return Projection(q), Projection(k), Projection(v)
    heads, key_heads = _heads(module, family)
    outputs = _outputs(q, family)
    width = outputs // (heads + 2 * key_heads)
    if family.fused == "blocks":
        ends = heads * width, (heads + key_heads) * width
        return Projection(q, slice(0, ends[0])), Projection(q, slice(*ends)), Projection(q, slice(ends[1], outputs))
    group = heads // key_heads
    numbers = torch.arange(outputs, device=q.weight.device).view(key_heads, group + 2, width)
    rows = numbers[:, :group], numbers[:, group], numbers[:, group + 1]
    query, key, value = (Projection(q, part.flatten()) for part in rows)
    return query, key, value


def _outputs(linear: Any, family: Family) -> int:
    out: int = linear.weight.shape[1 if family.linear == "transposed" else 0]
    return out


def _feed_forward(layer: Any, family: Family) -> FeedForward:
    activation = find(layer, family.activation)
    if family.gated_feed_forward is None or not has(layer, family.gated_feed_forward[0]):
        fc1, fc2 = (Projection(find(layer, path)) for path in family.feed_forward)
        return FeedForward(fc1, fc2, activation)
    fc1, gate, fc2 = (Projection(find(layer, path)) for path in family.gated_feed_forward)
    if fc1.module is gate.module:
        half, module = _outputs(fc1.module, family) // 2, fc1.module
        fc1, gate = Projection(module, slice(0, half)), Projection(module, slice(half, 2 * half))
    return FeedForward(fc1, fc2, activation, gate)


@dataclass(frozen=True)
class Alibi:
    """A bias that grows with the key's position, by a slope of each head, from the model's own module of code."""

    model: PreTrainedModel
    heads: int
    scale: float

    def compute_bias(self, queries: int, keys: int) -> Tensor:
        """[1, heads, queries, keys]"""
        build = sys.modules[type(self.model).__module__].build_alibi_tensor
        mask = torch.ones(1, keys, dtype=torch.long, device=self.model.device)
        bias: Tensor = build(mask, self.heads, self.model.dtype)
        return self.scale * bias[None].expand(1, self.heads, queries, keys)
