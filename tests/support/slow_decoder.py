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
from torch import Tensor
from torch.nn import functional as F

from hf_lrp.relevance.rules import Rule


@dataclass(frozen=True)
class Norm:
    """`rms`: without mean."""

    gain: Tensor
    bias: Tensor | None
    eps: float
    rms: bool

    def __call__(self, x: Tensor) -> Tensor:
        if not self.rms:
            return F.layer_norm(x, x.shape[-1:], self.gain, self.bias, self.eps)
        return self.gain * x / torch.sqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def part_of(self, vector: Tensor, x: Tensor) -> Tensor:
        """What a vector [d] that x [d] is a sum of becomes in the norm of x, without the bias."""
        if self.rms:
            return self.gain * vector / torch.sqrt((x * x).mean() + self.eps)
        return self.gain * (vector - vector.mean()) / torch.sqrt(((x - x.mean()) ** 2).mean() + self.eps)

    def back(self, rule: Rule, x: Tensor, relevance: Tensor) -> Tensor:
        if self.rms:
            return slow_rules.rms_norm(rule, x, self.gain, relevance)
        return slow_rules.layer_norm(rule, x, self.gain, self.bias, self.eps, relevance)


@dataclass(frozen=True)
class Linear:
    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def back(self, rule: Rule, x: Tensor, relevance: Tensor) -> Tensor:
        return slow_rules.linear(rule, x, self.weight, self.bias, relevance)


@dataclass(frozen=True)
class Layer:
    """Norms: before attention, of its output, before the feed-forward block, of its output; or after the sums."""

    q: Linear
    k: Linear
    v: Linear
    out: Linear
    first: tuple[Linear, ...]
    last: Linear
    activation: Callable[[Tensor], Tensor]
    norms: tuple[Norm | None, Norm | None, Norm | None, Norm | None]
    heads: int
    key_heads: int
    scale: float
    parallel: bool = False
    after_sums: bool = False
    head_norms: tuple[Norm, Norm] | None = None
    angles: Callable[[int], Tensor] | None = None  # of a position, [pairs]
    neighbours: bool = False
    reach: float = math.inf
    cap: float = math.inf
    slopes: Tensor | None = None  # ALiBi, [heads]


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
    head = model.lm_head.weight.detach().double()
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


Described = tuple[list[Layer], Norm | None, Linear | None, Tensor]


def describe(model: Any, ids: Tensor) -> Described:
    """Layers, the norm and the projection on top, and what enters the first layer, [length, d]."""
    kind, config = model.config.model_type, model.config
    readers = {"gpt2": _gpt2, "bloom": _bloom, "falcon": _falcon, "gpt_neox": _neox, "opt": _bart, "xglm": _bart}
    layers, final, projection = readers.get(kind, _llama)(model, config)
    entered: list[Tensor] = []
    stack = next(m for m in model.modules() if type(m).__name__ == "ModuleList")
    hook = stack[0].register_forward_pre_hook(
        lambda _, args, kwargs: entered.append((args[0] if args else kwargs["hidden_states"])[0].detach().double()),
        with_kwargs=True,
    )
    model(input_ids=ids[None])
    hook.remove()
    return layers, final, projection, entered[0]


def _norm(module: Any, offset: bool = False) -> Norm | None:
    if module is None:
        return None
    weight, bias = module.weight.detach().double(), getattr(module, "bias", None)
    eps = module.variance_epsilon if hasattr(module, "variance_epsilon") else module.eps
    rms = "RMS" in type(module).__name__
    return Norm(weight + offset, None if bias is None else bias.detach().double(), eps, rms)


def _linear(module: Any, rows: Any = slice(None)) -> Linear:
    weight = module.weight.detach().double()
    weight = weight.T if type(module).__name__ == "Conv1D" else weight
    return Linear(weight[rows], None if module.bias is None else module.bias.detach().double()[rows])


def _frequencies(dims: int, theta: float) -> Callable[[int], Tensor]:
    return lambda position: position / theta ** (torch.arange(0, dims, 2).double() / dims)


def _llama(model: Any, config: Any) -> tuple[list[Layer], Norm | None, Linear | None]:
    kind = config.model_type
    offset, gemma = kind.startswith("gemma"), kind in ("gemma2", "gemma3_text")
    layers = []
    for number, layer in enumerate(model.model.layers):
        own, mlp = layer.self_attn, layer.mlp
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        sliding = getattr(config, "layer_types", None) and config.layer_types[number] == "sliding_attention"
        if kind in ("mistral", "phi3"):
            sliding = True
        rope = config.rope_parameters
        theta = (rope[config.layer_types[number]] if kind == "gemma3_text" else rope)["rope_theta"]
        turned = {"smollm3": number == 0, "cohere2": bool(sliding)}.get(kind, True)
        names = ["input_layernorm", None, "post_attention_layernorm", None]
        if gemma:
            names = [names[0], names[2], "pre_feedforward_layernorm", "post_feedforward_layernorm"]
        if kind == "olmo2":
            names = [None, "post_attention_layernorm", None, "post_feedforward_layernorm"]
        norms = [None if name is None else _norm(getattr(layer, name, None), offset) for name in names]
        if kind.startswith("cohere"):
            norms[2] = norms[0]
        if kind == "phi3":
            q, k, v = (_linear(own.qkv_proj, slice(a * width, b * width)) for a, b in ((0, 4), (4, 6), (6, 8)))
            half = config.intermediate_size
            first = _linear(mlp.gate_up_proj, slice(0, half)), _linear(mlp.gate_up_proj, slice(half, 2 * half))
        else:
            q, k, v = _linear(own.q_proj), _linear(own.k_proj), _linear(own.v_proj)
            first = _linear(mlp.gate_proj), _linear(mlp.up_proj)
        has_norms = hasattr(own, "q_norm")
        head_norms = (_norm(own.q_norm, offset), _norm(own.k_norm, offset)) if has_norms else None
        pre_scale = getattr(config, "query_pre_attn_scalar", None) or width
        layers.append(
            Layer(
                *(q, k, v, _linear(own.o_proj), first, _linear(mlp.down_proj)),
                activation=mlp.activation_fn if kind == "phi3" else mlp.act_fn,
                norms=(norms[0], norms[1], norms[2], norms[3]),
                heads=4,
                key_heads=2,
                scale=(pre_scale if gemma else width) ** -0.5,
                parallel=kind.startswith("cohere"),
                head_norms=head_norms,  # type: ignore[arg-type]
                angles=_frequencies(width, theta) if turned else None,
                neighbours=kind.startswith("cohere"),
                reach=3 if sliding else math.inf,
                cap=config.attn_logit_softcapping if kind == "gemma2" else math.inf,
            )
        )
    return layers, _norm(model.model.norm, offset), None


def _fused(module: Any, heads: int, key_heads: int) -> tuple[Linear, Linear, Linear]:
    """For each head of keys: its queries, its key, its value."""
    group, rows = heads // key_heads, module.weight.shape[0]
    kinds = torch.arange(rows) // (rows // (heads + 2 * key_heads)) % (group + 2)
    wanted = (kinds < group, kinds == group, kinds == group + 1)
    q, k, v = (_linear(module, rows.nonzero()[:, 0]) for rows in wanted)
    return q, k, v


def _neox(model: Any, config: Any) -> tuple[list[Layer], Norm | None, Linear | None]:
    layers = []
    for layer in model.gpt_neox.layers:
        own, mlp = layer.attention, layer.mlp
        layers.append(
            Layer(
                *(*_fused(own.query_key_value, 4, 4), _linear(own.dense)),
                first=(_linear(mlp.dense_h_to_4h),),
                last=_linear(mlp.dense_4h_to_h),
                activation=mlp.act,
                norms=(_norm(layer.input_layernorm), None, _norm(layer.post_attention_layernorm), None),
                heads=4,
                key_heads=4,
                scale=0.5,
                parallel=config.use_parallel_residual,
                angles=_frequencies(own.rotary_ndims, config.rope_parameters["rope_theta"]),
            )
        )
    return layers, _norm(model.gpt_neox.final_layer_norm), None


def _bloom(model: Any, config: Any) -> tuple[list[Layer], Norm | None, Linear | None]:
    layers = []
    for layer in model.transformer.h:
        own, mlp = layer.self_attention, layer.mlp
        layers.append(
            Layer(
                *(*_fused(own.query_key_value, 4, 4), _linear(own.dense)),
                first=(_linear(mlp.dense_h_to_4h),),
                last=_linear(mlp.dense_4h_to_h),
                activation=mlp.gelu_impl,
                norms=(_norm(layer.input_layernorm), None, _norm(layer.post_attention_layernorm), None),
                heads=4,
                key_heads=4,
                scale=0.5,
                slopes=torch.tensor([0.25, 0.0625, 0.015625, 0.00390625]).double(),
            )
        )
    return layers, _norm(model.transformer.ln_f), None


def _falcon(model: Any, config: Any) -> tuple[list[Layer], Norm | None, Linear | None]:
    key_heads = 2 if config.new_decoder_architecture else 1 if config.multi_query else 4
    layers = []
    for layer in model.transformer.h:
        own, mlp = layer.self_attention, layer.mlp
        if config.new_decoder_architecture:
            before, before_feed = _norm(layer.ln_attn), _norm(layer.ln_mlp)
        elif config.parallel_attn:
            before = before_feed = _norm(layer.input_layernorm)
        else:
            before, before_feed = _norm(layer.input_layernorm), _norm(layer.post_attention_layernorm)
        slopes = torch.tensor([0.25, 0.0625, 0.015625, 0.00390625]).double() / 2
        layers.append(
            Layer(
                *(*_fused(own.query_key_value, 4, key_heads), _linear(own.dense)),
                first=(_linear(mlp.dense_h_to_4h),),
                last=_linear(mlp.dense_4h_to_h),
                activation=mlp.act,
                norms=(before, None, before_feed, None),
                heads=4,
                key_heads=key_heads,
                scale=0.5,
                parallel=config.new_decoder_architecture or config.parallel_attn,
                angles=None if config.alibi else _frequencies(4, config.rope_parameters["rope_theta"]),
                slopes=slopes if config.alibi else None,
            )
        )
    return layers, _norm(model.transformer.ln_f), None


def _gpt2(model: Any, config: Any) -> tuple[list[Layer], Norm | None, Linear | None]:
    layers = []
    for layer in model.transformer.h:
        q, k, v = (_linear(layer.attn.c_attn, slice(16 * n, 16 * n + 16)) for n in range(3))
        layers.append(
            Layer(
                *(q, k, v, _linear(layer.attn.c_proj)),
                first=(_linear(layer.mlp.c_fc),),
                last=_linear(layer.mlp.c_proj),
                activation=layer.mlp.act,
                norms=(_norm(layer.ln_1), None, _norm(layer.ln_2), None),
                heads=4,
                key_heads=4,
                scale=0.5,
            )
        )
    return layers, _norm(model.transformer.ln_f), None


def _bart(model: Any, config: Any) -> tuple[list[Layer], Norm | None, Linear | None]:
    stack = model.model if config.model_type == "xglm" else model.model.decoder
    layers = []
    for layer in stack.layers:
        own = layer.self_attn
        layers.append(
            Layer(
                *(_linear(own.q_proj), _linear(own.k_proj), _linear(own.v_proj), _linear(own.out_proj)),
                first=(_linear(layer.fc1),),
                last=_linear(layer.fc2),
                activation=layer.activation_fn,
                norms=(_norm(layer.self_attn_layer_norm), None, _norm(layer.final_layer_norm), None),
                heads=4,
                key_heads=4,
                scale=0.5,
                after_sums=not getattr(config, "do_layer_norm_before", True),
            )
        )
    final = _norm(stack.layer_norm if config.model_type == "xglm" else stack.final_layer_norm)
    projection = getattr(stack, "project_out", None)
    return layers, final, None if projection is None else _linear(projection)
