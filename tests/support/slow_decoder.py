"""Decoder-only models again, slowly: a forward pass of our own in float64, then relevance with `slow_rules`.

What is known of an architecture is written down here once more, independently of `hf_lrp.models.families`, and
proved by the logits: those of our own pass are those of the model.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import slow_rules
import torch
from decoder_layers import Layer, Linear, Norm, describe
from torch import Tensor
from torch.nn import functional as F

from hf_lrp.relevance.rules import Rule


@dataclass
class Seen:
    """What went into the parts of one layer, [length, d], and relevance on its way back, by name and step."""

    x: dict[str, Tensor] = field(default_factory=dict)
    passed: dict[str, Tensor] = field(default_factory=dict)

    def join(self, past: Tensor, through: dict[str, Tensor]) -> None:
        """Keep what goes past and through the blocks that a sum joins, [length, steps, d] each."""
        for name, part in through.items():
            self.passed |= {f"{name}.past": past.sum((0, 2)), f"{name}.through": part.sum((0, 2))}


def rotate(x: Tensor, angles: Tensor, neighbours: bool) -> Tensor:
    """[..., d], with complex numbers; features beyond the pairs stay."""
    pairs = len(angles)
    turned, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    shaped = turned.unflatten(-1, (pairs, 2)) if neighbours else turned.unflatten(-1, (2, pairs)).transpose(-1, -2)
    numbers = torch.view_as_complex(shaped.contiguous()) * torch.polar(torch.ones_like(angles), angles)
    back = torch.view_as_real(numbers)
    back = back.flatten(-2) if neighbours else back.transpose(-1, -2).flatten(-2)
    return torch.cat([back, rest], -1)


def slow_decoder(model: Any, rule: Rule, ids: Tensor, explained: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """The raw shares [steps, length] of logits `explained` (ids, or pairs) from position `first` on; our logits."""
    inside, logits = slow_decoder_inside(model, rule, ids, explained, first)
    return inside["positions"][0], logits


def slow_decoder_inside(
    model: Any, rule: Rule, ids: Tensor, explained: Tensor, first: int
) -> tuple[dict[str, Tensor], Tensor]:
    """What is at positions, goes through and past blocks, and through heads, by layer and step; our logits."""
    layers, final, projection, x = describe(model, ids)
    seen, streams = [], []
    for layer in layers:
        seen.append(Seen())
        streams.append(x)
        x = forward(layer, x, seen[-1])
    before_final = x
    x = x if final is None else final(x)
    before_head = x if projection is None else projection(x)
    head = model.get_output_embeddings().weight.detach().double()
    raw = F.linear(before_head, head) * getattr(model, "logit_scale", 1.0)
    cap = getattr(model.config, "final_logit_softcapping", None)
    logits = raw if cap is None else cap * torch.tanh(raw / cap)

    relevance = torch.zeros(len(ids), len(explained), before_head.shape[1]).double()
    for step, wanted in enumerate(explained):
        rows = head[wanted]
        if wanted.dim():
            slope = 1.0 if cap is None else 1 - torch.tanh(raw[first + step, wanted] / cap)[:, None] ** 2
            rows = slope * rows
            rows = rows[0] - rows[1]
        at = before_head[first + step][None]
        relevance[first + step, step] = slow_rules.logit(rule, at, rows[None], torch.zeros(1))[0, 0]
    if projection is not None:
        relevance = projection.back(rule, x, relevance)
    if final is not None:
        relevance = final.back(rule, before_final, relevance)
    positions = [relevance.sum(-1).T]
    for layer, stream, inside in zip(reversed(layers), reversed(streams), reversed(seen), strict=True):
        relevance = _back(layer, rule, stream, inside, relevance)
        positions.insert(0, relevance.sum(-1).T)
    passed = {name: torch.stack([one.passed[name] for one in seen]) for name in seen[0].passed}
    return passed | {"positions": torch.stack(positions)}, logits


def forward(layer: Layer, x: Tensor, seen: Seen) -> Tensor:
    """What a layer puts out, [length, d]."""
    if layer.after_sums:
        seen.x["sum"] = x + _attend(layer, x, seen)
        assert layer.norms[0] is not None and layer.norms[2] is not None
        seen.x["middle"] = middle = layer.norms[0](seen.x["sum"])
        seen.x["last sum"] = middle + _feed(layer, middle, seen)
        return layer.norms[2](seen.x["last sum"])
    before, after, before_feed, after_feed = (norm or _same for norm in layer.norms)
    seen.x["attended"] = _attend(layer, before(x), seen)
    added = after(seen.x["attended"])
    seen.x["middle"] = middle = x if layer.parallel else x + added
    seen.x["fed"] = _feed(layer, before_feed(middle), seen)
    seen.x["added"], seen.x["more"] = added, after_feed(seen.x["fed"])
    return (x + added if layer.parallel else middle) + seen.x["more"]


def _same(x: Tensor) -> Tensor:
    return x


def _attend(layer: Layer, x: Tensor, seen: Seen) -> Tensor:
    seen.x["attention"] = x
    for name, linear in (("q", layer.q), ("k", layer.k), ("v", layer.v)):
        seen.x[name] = linear(x)
    query, key, value = states(layer, seen)
    scores = slow_rules.capped(layer.scale * query @ key.transpose(1, 2), layer.cap) + mask_of(layer, len(x))
    seen.x["out"] = (scores.softmax(-1) @ value).transpose(0, 1).flatten(1)
    return layer.out(seen.x["out"])


def states(layer: Layer, seen: Seen) -> tuple[Tensor, Tensor, Tensor]:
    """For each head of the queries, [heads, length, d]."""
    states = []
    for number, heads in enumerate((layer.heads, layer.key_heads, layer.key_heads)):
        x = seen.x["qkv"[number]]
        if number < 2:
            x = torch.stack([_prepare(layer, number, heads, row, p) for p, row in enumerate(x)])
        states.append(x.unflatten(-1, (heads, -1)).movedim(1, 0).repeat_interleave(layer.heads // heads, 0))
    return states[0], states[1], states[2]


def _prepare(layer: Layer, number: int, heads: int, row: Tensor, position: int) -> Tensor:
    """From a query's or key's projection, [heads d], to what scores are made of: norm, then rotation."""
    split = row.unflatten(-1, (heads, -1))
    if layer.head_norms is not None:
        norm = layer.head_norms[number]
        if norm.gain.dim() == 1 and len(norm.gain) == len(row):
            split = norm(row).unflatten(-1, (heads, -1))
        else:
            gains = norm.gain.expand(heads, -1)
            split = torch.stack([Norm(g, None, norm.eps, norm.rms)(s) for g, s in zip(gains, split, strict=True)])
    if layer.angles is not None:
        split = rotate(split, layer.angles(position), layer.neighbours)
    return split.flatten(-2)


def mask_of(layer: Layer, length: int) -> Tensor:
    """What is added to scores, [heads, queries, keys]."""
    back = torch.arange(length)[:, None] - torch.arange(length)
    mask = torch.zeros(layer.heads, length, length).double()
    if layer.slopes is not None:
        mask = mask + layer.slopes[:, None, None] * torch.arange(length)
    return mask.masked_fill((back < 0) | (back >= layer.reach), -math.inf)


def _feed(layer: Layer, x: Tensor, seen: Seen) -> Tensor:
    seen.x["feed"] = x
    hidden = layer.activation(layer.first[0](x))
    seen.x["hidden"] = hidden if len(layer.first) == 1 else hidden * layer.first[1](x)
    return layer.last(seen.x["hidden"])


def _back(layer: Layer, rule: Rule, x: Tensor, seen: Seen, relevance: Tensor) -> Tensor:
    before, after, before_feed, after_feed = layer.norms
    if layer.after_sums:
        assert before is not None and before_feed is not None
        middle = seen.x["middle"]
        relevance = before_feed.back(rule, seen.x["last sum"], relevance)
        to_x, to_fed = slow_rules.residual(rule, middle, layer.last(seen.x["hidden"]), relevance)
        seen.join(to_x, {"feed_forward": to_fed})
        relevance = before.back(rule, seen.x["sum"], to_x + _feed_back(layer, rule, seen, to_fed))
        to_x, to_attended = slow_rules.residual(rule, x, layer.out(seen.x["out"]), relevance)
        seen.join(to_x, {"self": to_attended})
        return to_x + _attend_back(layer, rule, seen, to_attended)
    if layer.parallel:
        to_x, to_added, to_more = slow_rules.sum_of(rule, [x, seen.x["added"], seen.x["more"]], relevance)
        seen.join(to_x, {"self": to_added, "feed_forward": to_more})
        to_attention, to_feed = _attend_back(layer, rule, seen, to_added), _feed_back(layer, rule, seen, to_more)
        assert before is not None and before_feed is not None
        if before is before_feed:
            return to_x + before.back(rule, x, to_attention + to_feed)
        return to_x + before.back(rule, x, to_attention) + before_feed.back(rule, x, to_feed)
    to_middle, to_more = slow_rules.residual(rule, seen.x["middle"], seen.x["more"], relevance)
    seen.join(to_middle, {"feed_forward": to_more})
    to_fed = to_more if after_feed is None else after_feed.back(rule, seen.x["fed"], to_more)
    to_feed = _feed_back(layer, rule, seen, to_fed)
    relevance = to_middle + (to_feed if before_feed is None else before_feed.back(rule, seen.x["middle"], to_feed))
    to_x, to_added = slow_rules.residual(rule, x, seen.x["added"], relevance)
    seen.join(to_x, {"self": to_added})
    to_attended = to_added if after is None else after.back(rule, seen.x["attended"], to_added)
    to_input = _attend_back(layer, rule, seen, to_attended)
    return to_x + (to_input if before is None else before.back(rule, x, to_input))


def _feed_back(layer: Layer, rule: Rule, seen: Seen, relevance: Tensor) -> Tensor:
    to_each = layer.last.back(rule, seen.x["hidden"], relevance) / len(layer.first)
    return torch.stack([linear.back(rule, seen.x["feed"], to_each) for linear in layer.first]).sum(0)


def _attend_back(layer: Layer, rule: Rule, seen: Seen, relevance: Tensor) -> Tensor:
    routed = layer.out.back(rule, seen.x["out"], relevance).unflatten(-1, (layer.heads, -1)).movedim(-2, 0)
    query, key, value = states(layer, seen)
    mask = mask_of(layer, relevance.shape[0])
    received = slow_rules.attention(rule, layer.scale * query, key, value, routed, mask, layer.cap)
    seen.passed["self.heads"] = torch.stack([part.sum((1, 3)).T for part in received], -1)
    total = torch.zeros_like(seen.x["attention"])[:, None].expand(-1, relevance.shape[1], -1)
    for number, (linear, heads, part) in enumerate(
        zip((layer.q, layer.k, layer.v), (layer.heads, layer.key_heads, layer.key_heads), received, strict=True)
    ):
        grouped = part.unflatten(0, (heads, -1)).sum(1).movedim(0, 2).flatten(2)  # [length, steps, heads d]
        x, prepared = seen.x["attention"], number < 2 and (layer.head_norms or layer.angles)
        if not prepared:
            total = total + linear.back(rule, x, grouped)
            continue

        def prepare(row: Tensor, position: int, number: int = number, heads: int = heads) -> Tensor:
            return _prepare(layer, number, heads, row, position)

        if layer.head_norms is not None:
            u = seen.x["qk"[number]]
            grouped = _through_norm(layer, rule, number, heads, u, grouped)
            total = total + linear.back(rule, x, grouped)
        else:
            bias = torch.zeros(len(linear.weight)).double() if linear.bias is None else linear.bias
            turned = torch.stack([prepare(bias, p) for p in range(len(x))])

            def rotated(
                row: Tensor, p: int, linear: Linear = linear, prepare: Callable[[Tensor, int], Tensor] = prepare
            ) -> Tensor:
                return prepare(linear.weight @ row, p)

            total = total + slow_rules.mapped(rule, x, rotated, turned, grouped)
    return total


def _through_norm(layer: Layer, rule: Rule, number: int, heads: int, u: Tensor, relevance: Tensor) -> Tensor:
    """Through norm and rotation: of all heads together, or head by head, whose totals are kept one by one."""
    assert layer.head_norms is not None
    nothing = torch.zeros_like(u)

    def whole(row: Tensor, position: int) -> Tensor:
        return _prepare(layer, number, heads, row, position)

    if layer.head_norms[number].gain.numel() == u.shape[1] and layer.head_norms[number].gain.dim() == 1:
        return slow_rules.mapped(rule, u, whole, nothing, relevance)
    width = u.shape[1] // heads
    parts = []
    for head in range(heads):
        columns = slice(head * width, (head + 1) * width)

        def alone(row: Tensor, position: int, head: int = head, columns: slice = columns) -> Tensor:
            return whole(F.pad(row, (head * width, (heads - 1 - head) * width)), position)[columns]

        parts.append(slow_rules.mapped(rule, u[:, columns], alone, nothing[:, columns], relevance[..., columns]))
    return torch.cat(parts, -1)
