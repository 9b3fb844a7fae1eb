"""Layers of decoder-only models as parts in float64, read independently of `hf_lrp.models.families`."""

import math
from collections.abc import Callable
from dataclasses import dataclass
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
