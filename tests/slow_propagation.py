"""Relevance through a whole model with `slow_rules`: all positions and steps at once, no use of causality."""

import math
from collections.abc import Callable
from typing import Any

import slow_rules
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_lrp.rules import Rule

Seen = dict[nn.Module, tuple[Tensor, Tensor]]


def slow_propagate(
    model: PreTrainedModel, rule: Rule, source_ids: Tensor, decoder_ids: Tensor, explained: Tensor
) -> tuple[Tensor, Tensor]:
    """The raw shares [T, S] and [T, T] of the logits `explained` ([T], or pairs [T, 2]) of all steps.

    Source and decoder input must differ in length: that tells cross-attention from self-attention.
    """
    assert len(source_ids) != len(decoder_ids)
    seen = _run(model, source_ids, decoder_ids)
    decoder, encoder = model.model.decoder, model.model.encoder
    weight, bias = model.lm_head.weight[explained], model.get_buffer("final_logits_bias")[0][explained]
    if explained.dim() == 2:
        weight, bias = weight[:, 0] - weight[:, 1], bias[:, 0] - bias[:, 1]
    on_top = slow_rules.logit(rule, seen[model.lm_head][0], weight, bias)[:, 0]
    relevance = torch.diag_embed(on_top.T).permute(1, 2, 0)  # [positions, steps, d]
    leaks: list[Tensor] = []
    relevance = _through_stack(decoder, rule, seen, relevance, leaks)
    to_source = _through_stack(encoder, rule, seen, torch.stack(leaks).sum(0), [])
    return to_source.sum(-1).T, relevance.sum(-1).T


def _run(model: PreTrainedModel, source_ids: Tensor, decoder_ids: Tensor) -> Seen:
    seen: Seen = {}

    def note(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        seen[module] = (args[0][0].double(), output[0].double())

    leaves = [module for module in model.modules() if isinstance(module, nn.Linear | nn.LayerNorm)]
    hooks = [module.register_forward_hook(note) for module in leaves]
    model(input_ids=source_ids[None], decoder_input_ids=decoder_ids[None])
    for hook in hooks:
        hook.remove()
    return seen


def _through_stack(stack: Any, rule: Rule, seen: Seen, relevance: Tensor, leaks: list[Tensor]) -> Tensor:
    norm_first = hasattr(stack, "layer_norm")
    if norm_first:
        relevance = _norm(stack.layer_norm, rule, seen, relevance)
    for layer in reversed(stack.layers):
        for module, norm in reversed(_blocks(layer)):
            back = _feed_forward if module is layer else _attention
            relevance = _residual(module, norm, back, norm_first, rule, seen, relevance, leaks)
    return relevance


def _blocks(layer: Any) -> list[tuple[Any, nn.LayerNorm]]:
    blocks = [(layer.self_attn, layer.self_attn_layer_norm)]
    if hasattr(layer, "encoder_attn"):
        blocks.append((layer.encoder_attn, layer.encoder_attn_layer_norm))
    return [*blocks, (layer, layer.final_layer_norm)]


def _residual(
    module: Any,
    norm: nn.LayerNorm,
    back: Callable[..., Tensor],
    norm_first: bool,
    rule: Rule,
    seen: Seen,
    relevance: Tensor,
    leaks: list[Tensor],
) -> Tensor:
    first, last = (module.fc1, module.fc2) if back is _feed_forward else (module.q_proj, module.out_proj)
    if not norm_first:
        relevance = _norm(norm, rule, seen, relevance)
    x = seen[norm if norm_first else first][0]
    to_x, to_update = slow_rules.residual(rule, x, seen[last][1], relevance)
    to_input = back(module, rule, seen, to_update, leaks)
    return to_x + (_norm(norm, rule, seen, to_input) if norm_first else to_input)


def _feed_forward(layer: Any, rule: Rule, seen: Seen, relevance: Tensor, leaks: list[Tensor]) -> Tensor:
    return _linear(layer.fc1, rule, seen, _linear(layer.fc2, rule, seen, relevance))


def _attention(module: Any, rule: Rule, seen: Seen, relevance: Tensor, leaks: list[Tensor]) -> Tensor:
    def split(x: Tensor) -> Tensor:
        return torch.stack(x.chunk(module.num_heads, -1))

    def join(x: Tensor) -> Tensor:
        return torch.cat(list(x), -1)

    query, key, value = (split(seen[linear][1]) for linear in (module.q_proj, module.k_proj, module.v_proj))
    mask = torch.zeros(query.shape[1], key.shape[1])
    is_cross = seen[module.q_proj][0].shape != seen[module.k_proj][0].shape
    if module.is_decoder and not is_cross:
        mask = mask.masked_fill(torch.ones_like(mask).triu(1).bool(), -math.inf)
    routed = split(_linear(module.out_proj, rule, seen, relevance))
    scaled = query / math.sqrt(query.shape[-1])
    to_query, to_key, to_value = map(join, slow_rules.attention(rule, scaled, key, value, routed, mask))
    to_keys = _linear(module.k_proj, rule, seen, to_key) + _linear(module.v_proj, rule, seen, to_value)
    to_query = _linear(module.q_proj, rule, seen, to_query)
    if is_cross:
        leaks.append(to_keys)
        return to_query
    return to_query + to_keys


def _linear(module: nn.Linear, rule: Rule, seen: Seen, relevance: Tensor) -> Tensor:
    return slow_rules.linear(rule, seen[module][0], module.weight.detach(), module.bias.detach(), relevance)


def _norm(module: nn.LayerNorm, rule: Rule, seen: Seen, relevance: Tensor) -> Tensor:
    x, weight, bias = seen[module][0], module.weight.detach(), module.bias.detach()
    return slow_rules.layer_norm(rule, x, weight, bias, module.eps, relevance)
