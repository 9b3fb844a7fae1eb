"""Families of models: what is known of each, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from transformers import PreTrainedConfig, PreTrainedModel

HOW_TO = "docs/adding_a_family.md tells how to describe another family."

# Norms that have a class of their own are known by what they compute. "own layer": a layer norm without bias;
# "offset rms": an RMS norm whose gain is 1 + weight.
NormKind = Literal["layer", "own layer", "rms", "offset rms"]
# Linear layers: nn.Linear, a class of its own that computes the same, or one with weights [in, out].
LinearKind = Literal["plain", "own", "transposed"]
# Which features of a head rotary positions turn together.
Pairs = Literal["halves", "neighbours"]


@dataclass(frozen=True)
class Variant:
    """Fields of a family that differ where a flag of the config has this value."""

    flag: str
    value: Any
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """Where the parts of an architecture are, and how they are joined.

    Names are attribute paths, from the model for `encoder`, `decoder`, `head`, `head_bias`, `logit_scale` and
    `logit_cap`, from a stack for `layers`, `final_norm`, `output_projection`, `rotary` and `convolutions`, from a
    layer or an attention module for the rest; a number indexes a module list. The defaults are BART's names.

    Args:
        norm_first: norms inside the residuals, with one more on top of each stack; else after each sum.
        norm: the kind of all norms.
        linear: the kind of all linear layers below the output layer.
        encoder: None for a model that is a decoder only, without cross-attention.
        output_projection: a linear layer on top of the final norm, in checkpoints that have one.
        self_attention_norm, cross_attention_norm, feed_forward_norm: norms before the blocks, or after the sums
            (`norm_first`); None: there is none. In parallel blocks the same name twice is one norm for both.
        self_attention_post_norm, cross_attention_post_norm, feed_forward_post_norm: norms of what a block adds.
        parallel: attention and feed-forward block read the same input, and one sum adds both.
        projections: queries, keys, values and output. If the first three are one name, they are one fused layer.
        fused: how a fused layer's outputs are ordered: all queries, all keys, all values ("blocks"); or for each head
            of keys the queries of its group, its key, its value ("groups").
        heads, key_heads: numbers of heads of queries, and of keys and values (None: the same).
        query_key_norms: norms on queries and keys, of each head or of all together.
        scaling: what products of queries and keys are multiplied by; None: they are not.
        position_bias: the embedding in a self-attention that is added to its scores; layers without one use that of
            the first layer.
        alibi: a bias that grows with the key's position is added to the scores; "scaled": before these are scaled.
        rotary: the module that gives the angles of rotary positions in self-attention; None: there are none.
        rotary_if: an attribute of an attention module; where it is None or False, there is no rotation.
        rotary_by_layer: the attribute that names the layer's type, which the angles depend on.
        sliding_window: how many positions a query of self-attention sees.
        score_cap: what scores are softly capped at.
        gated_feed_forward: the activated, the gating and the output projection, in layers that have them. If the
            first two are one name, they are the halves of one fused layer.
        head_bias: a buffer that is added to the logits; None: there is none.
        scaled_head: a flag of the config; if it is set, the output layer sees the decoder's output times
            ``d_model ** -0.5``.
        logit_scale, logit_cap: what logits are multiplied by, and softly capped at.
        variants: what differs in checkpoints whose config says so; later ones win.
        source: what the encoder reads.
        time_first: layers see batches as [length, batch, d].
        convolutions: what turns features into the encoder's positions, in order, a GELU after each.
        positions, embedding_norm, forced: for the reader (docs/supported_models.md): how positions are told, whether
            embeddings are normed, and which target tokens are given rather than predicted. Relevance does not depend
            on them: whatever happens within a position keeps its total.
    """

    norm_first: bool
    norm: NormKind = "layer"
    linear: LinearKind = "plain"
    encoder: str | None = "model.encoder"
    decoder: str = "model.decoder"
    layers: str = "layers"
    final_norm: str = "layer_norm"
    output_projection: str | None = None
    self_attention: str = "self_attn"
    self_attention_norm: str | None = "self_attn_layer_norm"
    self_attention_post_norm: str | None = None
    cross_attention: str = "encoder_attn"
    cross_attention_norm: str | None = "encoder_attn_layer_norm"
    cross_attention_post_norm: str | None = None
    parallel: bool = False
    projections: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "out_proj")
    fused: Literal["blocks", "groups"] | None = None
    heads: str = "num_heads"
    key_heads: str | None = None
    query_key_norms: tuple[str, str] | None = None
    scaling: str | None = "scaling"
    position_bias: str | None = None
    alibi: Literal["added", "scaled"] | None = None
    rotary: str | None = None
    rotary_pairs: Pairs = "halves"
    rotary_if: str | None = None
    rotary_by_layer: str | None = None
    sliding_window: str | None = None
    score_cap: str | None = None
    feed_forward: tuple[str, str] = ("fc1", "fc2")
    gated_feed_forward: tuple[str, str, str] | None = None
    activation: str = "activation_fn"
    feed_forward_norm: str | None = "final_layer_norm"
    feed_forward_post_norm: str | None = None
    head: str = "lm_head"
    head_bias: str | None = "final_logits_bias"
    scaled_head: str | None = None
    logit_scale: str | None = None
    logit_cap: str | None = None
    variants: tuple[Variant, ...] = ()
    source: Literal["input_ids", "input_features"] = "input_ids"
    time_first: bool = False
    convolutions: tuple[str, ...] = ()
    positions: Literal["sinusoidal", "learned", "relative", "rotary", "ALiBi"] = "sinusoidal"
    embedding_norm: bool = False
    forced: str = "none"

    def of(self, config: Any) -> Family:
        """The family as it is in checkpoints with this config."""
        family = self
        for variant in self.variants:
            if getattr(config, variant.flag, None) == variant.value:
                family = replace(family, **variant.changes)
        return family


_POST_NORM = Family(norm_first=False)
_PRE_NORM = Family(norm_first=True)
_T5 = Family(
    norm_first=True,
    norm="rms",
    encoder="encoder",
    decoder="decoder",
    layers="block",
    final_norm="final_layer_norm",
    self_attention="layer.0.SelfAttention",
    self_attention_norm="layer.0.layer_norm",
    cross_attention="layer.1.EncDecAttention",
    cross_attention_norm="layer.1.layer_norm",
    projections=("q", "k", "v", "o"),
    heads="n_heads",
    scaling=None,
    position_bias="relative_attention_bias",
    feed_forward=("layer.-1.DenseReluDense.wi", "layer.-1.DenseReluDense.wo"),
    gated_feed_forward=(
        "layer.-1.DenseReluDense.wi_0",
        "layer.-1.DenseReluDense.wi_1",
        "layer.-1.DenseReluDense.wo",
    ),
    activation="layer.-1.DenseReluDense.act",
    feed_forward_norm="layer.-1.layer_norm",
    head_bias=None,
    positions="relative",
)

_LLAMA = Family(
    norm_first=True,
    norm="rms",
    encoder=None,
    decoder="model",
    final_norm="norm",
    self_attention_norm="input_layernorm",
    projections=("q_proj", "k_proj", "v_proj", "o_proj"),
    heads="config.num_attention_heads",
    key_heads="config.num_key_value_heads",
    rotary="rotary_emb",
    gated_feed_forward=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    activation="mlp.act_fn",
    feed_forward_norm="post_attention_layernorm",
    head_bias=None,
    positions="rotary",
)
_GEMMA_2 = replace(
    _LLAMA,
    norm="offset rms",
    self_attention_post_norm="post_attention_layernorm",
    feed_forward_norm="pre_feedforward_layernorm",
    feed_forward_post_norm="post_feedforward_layernorm",
    sliding_window="sliding_window",
    score_cap="attn_logit_softcapping",
    logit_cap="config.final_logit_softcapping",
)
_COHERE = replace(
    _LLAMA,
    norm="own layer",
    parallel=True,
    feed_forward_norm="input_layernorm",
    rotary_pairs="neighbours",
    logit_scale="logit_scale",
)
_NEOX = Family(
    norm_first=True,
    encoder=None,
    decoder="gpt_neox",
    final_norm="final_layer_norm",
    self_attention="attention",
    self_attention_norm="input_layernorm",
    parallel=True,
    projections=("query_key_value", "query_key_value", "query_key_value", "dense"),
    fused="groups",
    heads="config.num_attention_heads",
    rotary="rotary_emb",
    feed_forward=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    activation="mlp.act",
    feed_forward_norm="post_attention_layernorm",
    head_bias=None,
    variants=(Variant("use_parallel_residual", False, {"parallel": False}),),
    positions="rotary",
)
_BLOOM = replace(
    _NEOX,
    decoder="transformer",
    layers="h",
    final_norm="ln_f",
    self_attention="self_attention",
    parallel=False,
    heads="num_heads",
    scaling="inv_norm_factor",
    alibi="added",
    rotary=None,
    activation="mlp.gelu_impl",
    variants=(),
    positions="ALiBi",
    embedding_norm=True,
)
_OPT = Family(
    norm_first=True,
    encoder=None,
    final_norm="final_layer_norm",
    output_projection="project_out",
    head_bias=None,
    variants=(Variant("do_layer_norm_before", False, {"norm_first": False}),),
    positions="learned",
)

# Keyed by `config.model_type`.
FAMILIES: dict[str, Family] = {
    "marian": _POST_NORM,
    "bart": replace(_POST_NORM, positions="learned", embedding_norm=True, forced="<s>, where the checkpoint says so"),
    "plbart": replace(_POST_NORM, positions="learned", embedding_norm=True, forced="language"),
    "blenderbot-small": replace(_POST_NORM, positions="learned", embedding_norm=True),
    "fsmt": replace(_POST_NORM, head="model.decoder.output_projection", head_bias=None, time_first=True),
    "pegasus": _PRE_NORM,
    "mbart": replace(_PRE_NORM, positions="learned", embedding_norm=True, forced="language"),
    "m2m_100": replace(_PRE_NORM, head_bias=None, forced="language"),
    "blenderbot": replace(_PRE_NORM, positions="learned"),
    "seamless_m4t": replace(
        _PRE_NORM,
        encoder="text_encoder",
        decoder="text_decoder",
        cross_attention="cross_attention",
        cross_attention_norm="cross_attention_layer_norm",
        feed_forward=("ffn.fc1", "ffn.fc2"),
        activation="ffn.act",
        feed_forward_norm="ffn_layer_norm",
        head_bias=None,
        forced="language",
    ),
    "whisper": replace(
        _PRE_NORM,
        head="proj_out",
        head_bias=None,
        source="input_features",
        convolutions=("conv1", "conv2"),
        positions="learned",
        forced="language, task, timestamps",
    ),
    "t5": replace(_T5, scaled_head="scale_decoder_outputs"),
    "mt5": _T5,
    "umt5": replace(_T5, scaled_head="tie_word_embeddings"),
    "t5gemma": replace(
        _GEMMA_2,
        encoder="model.encoder",
        decoder="model.decoder",
        self_attention_norm="pre_self_attn_layernorm",
        self_attention_post_norm="post_self_attn_layernorm",
        cross_attention="cross_attn",
        cross_attention_norm="pre_cross_attn_layernorm",
        cross_attention_post_norm="post_cross_attn_layernorm",
        head="lm_head.out_proj",
        logit_cap="config.decoder.final_logit_softcapping",
    ),
    "llama": _LLAMA,
    "mistral": replace(_LLAMA, sliding_window="config.sliding_window"),
    "qwen2": replace(_LLAMA, sliding_window="sliding_window"),
    "qwen3": replace(_LLAMA, sliding_window="sliding_window", query_key_norms=("q_norm", "k_norm")),
    "smollm3": replace(_LLAMA, sliding_window="sliding_window", rotary_if="use_rope"),
    "olmo2": replace(
        _LLAMA,
        self_attention_norm=None,
        self_attention_post_norm="post_attention_layernorm",
        query_key_norms=("q_norm", "k_norm"),
        feed_forward_norm=None,
        feed_forward_post_norm="post_feedforward_layernorm",
    ),
    "phi3": replace(
        _LLAMA,
        projections=("qkv_proj", "qkv_proj", "qkv_proj", "o_proj"),
        fused="blocks",
        sliding_window="config.sliding_window",
        gated_feed_forward=("mlp.gate_up_proj", "mlp.gate_up_proj", "mlp.down_proj"),
        activation="mlp.activation_fn",
    ),
    "gemma": replace(_LLAMA, norm="offset rms"),
    "gemma2": _GEMMA_2,
    "gemma3_text": replace(
        _GEMMA_2, query_key_norms=("q_norm", "k_norm"), rotary_by_layer="layer_type", score_cap=None
    ),
    "cohere": replace(_COHERE, variants=(Variant("use_qk_norm", True, {"query_key_norms": ("q_norm", "k_norm")}),)),
    "cohere2": replace(_COHERE, sliding_window="sliding_window", rotary_if="sliding_window"),
    "gpt_neox": _NEOX,
    "falcon": replace(
        _BLOOM,
        linear="own",
        parallel=True,
        key_heads="num_kv_heads",
        alibi=None,
        rotary="rotary_emb",
        activation="mlp.act",
        feed_forward_norm="input_layernorm",
        variants=(
            Variant("num_ln_in_parallel_attn", 2, {"self_attention_norm": "ln_attn", "feed_forward_norm": "ln_mlp"}),
            Variant("parallel_attn", False, {"parallel": False, "feed_forward_norm": "post_attention_layernorm"}),
            Variant("alibi", True, {"alibi": "scaled", "rotary": None}),
        ),
        positions="rotary",
        embedding_norm=False,
    ),
    "bloom": _BLOOM,
    "gpt2": Family(
        norm_first=True,
        linear="transposed",
        encoder=None,
        decoder="transformer",
        layers="h",
        final_norm="ln_f",
        self_attention="attn",
        self_attention_norm="ln_1",
        projections=("c_attn", "c_attn", "c_attn", "c_proj"),
        fused="blocks",
        feed_forward=("mlp.c_fc", "mlp.c_proj"),
        activation="mlp.act",
        feed_forward_norm="ln_2",
        head_bias=None,
        positions="learned",
    ),
    "opt": _OPT,
    "xglm": replace(_OPT, decoder="model", final_norm="layer_norm", output_projection=None, positions="sinusoidal"),
}

# What configs of architectures have that cannot be propagated exactly, and why.
_WITHOUT_RULE: dict[str, tuple[str, ...]] = {
    "it is a mixture of experts, and no rule tells how relevance passes the choice of experts": (
        "num_local_experts",
        "num_experts",
        "n_routed_experts",
        "moe_num_experts",
    ),
    "it is a state space model, whose recurrence has no rule": ("state_size", "mamba_d_state", "ssm_state_size"),
}


def register_family(model_type: str, family: Family) -> None:
    """Describe one more model family to hf_lrp, for this process.

    Args:
        model_type: what `config.model_type` says in its checkpoints.
        family: its description. Whether it is right is found out on every forward pass: each step is recomputed
            from the description and compared, and `hf_lrp.UnknownStructure` raised if it differs.
    """
    if not isinstance(family, Family):
        raise TypeError(f"family must be a Family, got {type(family).__name__}.")
    if FAMILIES.get(model_type, family) != family:
        raise ValueError(f"The model type {model_type!r} already has a description, and a different one.")
    FAMILIES[model_type] = family


def family_of(model: PreTrainedModel) -> Family:
    """The description of a model's family; raises a TypeError that says what is supported."""
    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            f"Expected a transformers PreTrainedModel, got {type(model).__name__}. If it wraps one (DataParallel, "
            "torch.compile, Accelerate, PEFT), pass the model inside, with adapters merged."
        )
    name, supported = type(model).__name__, supported_model_types()
    kind = model.config.model_type
    if kind not in FAMILIES:
        reason = why_unsupported(model.config)
        raise TypeError(f"{name} (model type {kind!r}) is not supported{reason}. Supported: {supported}. {HOW_TO}")
    family = FAMILIES[kind].of(model.config)
    if family.encoder is not None and not model.config.is_encoder_decoder:
        raise TypeError(
            f"{name} is one stack of an encoder-decoder model, which is supported only as a whole: load the "
            "checkpoint with AutoModelForSeq2SeqLM.from_pretrained."
        )
    if model.get_output_embeddings() is None:
        classes = "AutoModelForSeq2SeqLM.from_pretrained, or with AutoModelForSpeechSeq2Seq for speech"
        if family.encoder is None:
            classes = "AutoModelForCausalLM.from_pretrained"
        raise TypeError(f"{name} has no output layer: load the checkpoint with {classes}.")
    return family


def why_unsupported(config: PreTrainedConfig) -> str:
    """For messages, after a colon, why a model that has no description cannot have one; empty if nothing is known."""
    reasons = (r for r, marks in _WITHOUT_RULE.items() if any(getattr(config, mark, None) for mark in marks))
    return next((f": {reason}" for reason in reasons), "")


def supported_model_types() -> str:
    """All model types, for messages."""
    return ", ".join(sorted(FAMILIES))
