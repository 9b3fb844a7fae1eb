"""T5Gemma again, slowly: a forward pass of our own in float64, then relevance with `slow_rules`.

As in `slow_decoder`, the architecture is written down here once more, and proved by the logits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import slow_rules
import torch
from slow_decoder import Linear, Norm, rotate
from torch import Tensor
from torch.nn import functional as F

from hf_lrp.relevance.rules import Rule


@dataclass
class Block:
    """Attention within a stack or to the encoder's output, or a gated feed-forward block, with a norm on each side.

    `seen`: what the latest pass computed.
    """

    before: Norm
    after: Norm
    linears: tuple[Linear, ...]  # queries, keys, values, output; or gate, up, down
    config: Any
    cross: bool = False
    mask: Tensor | None = None  # of attention within a stack
    seen: dict[str, Tensor] = field(default_factory=dict)

    @property
    def is_attention(self) -> bool:
        return len(self.linears) == 4

    def forward(self, x: Tensor, memory: Tensor | None) -> Tensor:
        inside = self.before(x)
        self.seen = {"x": x, "inside": inside}
        inner = self._attend(inside, memory) if self.is_attention else self._feed(inside)
        self.seen |= {"inner": inner, "added": self.after(inner)}
        return x + self.seen["added"]

    def back(self, rule: Rule, relevance: Tensor) -> tuple[Tensor, Tensor | None]:
        """Relevance of the block's input, and of the encoder's output where it is read."""
        to_x, to_added = slow_rules.residual(rule, self.seen["x"], self.seen["added"], relevance)
        to_inner = self.after.back(rule, self.seen["inner"], to_added)
        to_inside, to_memory = (
            self._attend_back(rule, to_inner) if self.is_attention else self._feed_back(rule, to_inner)
        )
        return to_x + self.before.back(rule, self.seen["x"], to_inside), to_memory

    def _feed(self, x: Tensor) -> Tensor:
        gate, up, down = self.linears
        self.seen["hidden"] = F.gelu(gate(x), approximate="tanh") * up(x)
        return down(self.seen["hidden"])

    def _feed_back(self, rule: Rule, relevance: Tensor) -> tuple[Tensor, None]:
        gate, up, down = self.linears
        half = down.back(rule, self.seen["hidden"], relevance) / 2
        return sum(linear.back(rule, self.seen["inside"], half) for linear in (gate, up)), None  # type: ignore[return-value]

    def _turn(self, row: Tensor, position: int) -> Tensor:
        """A query or key [heads d] as it is scored: turned by its position, within a stack."""
        if self.cross:
            return row
        width, theta = self.config.head_dim, self.config.rope_parameters["rope_theta"]
        angles = position / theta ** (torch.arange(0, width, 2).double() / width)
        return rotate(row.unflatten(-1, (-1, width)), angles, False).flatten(-2)

    def _heads(self, states: Tensor) -> Tensor:
        """[length, heads d] as [heads of queries, length, d]."""
        split = states.unflatten(-1, (-1, self.config.head_dim)).movedim(1, 0)
        return split.repeat_interleave(self.config.num_attention_heads // len(split), 0)

    def _attend(self, x: Tensor, memory: Tensor | None) -> Tensor:
        read = x if memory is None or not self.cross else memory
        self.seen["read"] = read
        q, k, v, out = self.linears
        query, key = (
            self._heads(torch.stack([self._turn(linear(row), p) for p, row in enumerate(rows)]))
            for linear, rows in ((q, x), (k, read))
        )
        self.seen |= {"query": query, "key": key, "value": self._heads(v(read))}
        scores = slow_rules.capped(self._scale * query @ key.transpose(1, 2), self.config.attn_logit_softcapping)
        self.seen["weights"] = (scores + self._mask()).softmax(-1)
        mixed = self.seen["weights"] @ self.seen["value"]
        self.seen["mixed"] = mixed.transpose(0, 1).flatten(1)
        return out(self.seen["mixed"])

    @property
    def _scale(self) -> float:
        return self.config.query_pre_attn_scalar**-0.5

    def _mask(self) -> Tensor:
        shape = len(self.seen["inside"]), len(self.seen["read"])
        return torch.zeros(shape).double() if self.mask is None else self.mask

    def _attend_back(self, rule: Rule, relevance: Tensor) -> tuple[Tensor, Tensor | None]:
        q, k, v, out = self.linears
        routed = out.back(rule, self.seen["mixed"], relevance)
        routed = routed.unflatten(-1, (self.config.num_attention_heads, -1)).movedim(-2, 0)
        query, key, value = (self.seen[name] for name in ("query", "key", "value"))
        cap = self.config.attn_logit_softcapping
        received = slow_rules.attention(rule, self._scale * query, key, value, routed, self._mask(), cap)
        to_query, to_key, to_value = (
            self._merged(part, linear) for part, linear in zip(received, (q, k, v), strict=True)
        )
        to_inside = self._turned_back(rule, q, self.seen["inside"], to_query)
        to_read = self._turned_back(rule, k, self.seen["read"], to_key) + v.back(rule, self.seen["read"], to_value)
        return (to_inside, to_read) if self.cross else (to_inside + to_read, None)

    def _merged(self, part: Tensor, linear: Linear) -> Tensor:
        """From heads of queries to what the linear layer gives: [length, steps, heads d]."""
        heads = len(linear.weight) // self.config.head_dim
        return part.unflatten(0, (heads, -1)).sum(1).movedim(0, 2).flatten(2)

    def _turned_back(self, rule: Rule, linear: Linear, x: Tensor, relevance: Tensor) -> Tensor:
        """The rotation is a part of the linear map before it."""
        nothing = torch.zeros(len(x), len(linear.weight)).double()
        return slow_rules.mapped(rule, x, lambda row, p: self._turn(linear.weight @ row, p), nothing, relevance)


def run(model: Any, source: Tensor, decoder_ids: Tensor) -> tuple[list[list[Block]], list[Tensor], Tensor]:
    """The blocks of encoder and decoder after a pass, what enters the norms on top, and the decoder's output."""
    stacks = model.model.encoder, model.model.decoder
    blocks = [_blocks(stack, len(ids)) for stack, ids in zip(stacks, (source, decoder_ids), strict=True)]
    memory: Tensor | None = None
    tops = []
    for stack, own, ids in zip(stacks, blocks, (source, decoder_ids), strict=True):
        x = stack.embed_tokens.weight.detach().double()[ids] * math.sqrt(stack.config.hidden_size)
        for block in own:
            x = block.forward(x, memory)
        tops.append(x)
        memory = _norm(stack.norm)(x)
    assert memory is not None
    return blocks, tops, memory


def slow_t5gemma(
    model: Any, rule: Rule, source: Tensor, decoder_ids: Tensor, explained: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The raw shares [T, S] and [T, T] of the logits `explained` of all steps, and all logits of our own pass."""
    blocks, tops, memory = run(model, source, decoder_ids)
    stacks = model.model.encoder, model.model.decoder
    head = model.lm_head.out_proj.weight.detach().double()
    cap = stacks[1].config.final_logit_softcapping
    on_top = slow_rules.logit(rule, memory, head[explained], torch.zeros(len(explained)))[:, 0]
    relevance = _norm(stacks[1].norm).back(rule, tops[1], torch.diag_embed(on_top.T).permute(1, 2, 0))
    relevance, leaks = _back(blocks[1], rule, relevance)
    to_source, _ = _back(blocks[0], rule, _norm(stacks[0].norm).back(rule, tops[0], torch.stack(leaks).sum(0)))
    return to_source.sum(-1).T, relevance.sum(-1).T, slow_rules.capped(F.linear(memory, head), cap)


def _back(blocks: Sequence[Block], rule: Rule, relevance: Tensor) -> tuple[Tensor, list[Tensor]]:
    leaks = []
    for block in reversed(blocks):
        relevance, leak = block.back(rule, relevance)
        leaks += [] if leak is None else [leak]
    return relevance, leaks


def _blocks(stack: Any, length: int) -> list[Block]:
    config, blocks = stack.config, []
    for kind, layer in zip(config.layer_types, stack.layers, strict=True):
        distance = torch.arange(length)[:, None] - torch.arange(length)
        is_decoder = hasattr(layer, "cross_attn")
        hidden = distance < 0 if is_decoder else torch.zeros_like(distance, dtype=torch.bool)
        if kind == "sliding_attention":
            hidden |= distance >= config.sliding_window if is_decoder else distance.abs() > config.sliding_window
        mask = torch.zeros(length, length).double().masked_fill(hidden, -math.inf)
        blocks.append(_block(layer, "self_attn", "self_attn", config, mask=mask))
        if is_decoder:
            blocks.append(_block(layer, "cross_attn", "cross_attn", config, cross=True))
        blocks.append(_block(layer, "mlp", "feedforward", config))
    return blocks


def _block(layer: Any, name: str, norms: str, config: Any, **options: Any) -> Block:
    module = getattr(layer, name)
    linears = ("gate_proj", "up_proj", "down_proj") if name == "mlp" else ("q_proj", "k_proj", "v_proj", "o_proj")
    before, after = (_norm(getattr(layer, f"{side}_{norms}_layernorm")) for side in ("pre", "post"))
    found = tuple(Linear(getattr(module, linear).weight.detach().double(), None) for linear in linears)
    return Block(before, after, found, config, **options)


def _norm(module: Any) -> Norm:
    return Norm(1 + module.weight.detach().double(), None, module.eps, rms=True)
