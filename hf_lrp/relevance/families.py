"""What is known of each model family, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from transformers import PreTrainedModel

HOW_TO = "docs/adding_a_family.md tells how to describe another family."


@dataclass(frozen=True)
class Family:
    """Where the parts of an encoder-decoder architecture are, and how they are joined.

    Names are attribute paths, from the model for `encoder`, `decoder`, `head` and `head_bias`, from a stack for
    `layers`, `final_norm` and `convolutions`, from a layer or an attention module for the rest; a number indexes a
    module list. The defaults are BART's names.

    Args:
        norm_first: norms inside the residuals (pre-norm), with one more on top of each stack; else after each sum.
        norm: the kind of all norms: ``"layer"`` (mean and variance) or ``"rms"`` (no mean, no bias).
        gated_feed_forward: the activated, the gating and the output projection, in layers that have them.
        position_bias: the embedding in a self-attention that is added to its scores; layers without one use that of
            the first layer.
        head_bias: a buffer that is added to the logits; None: there is none.
        scaled_head: a flag of the config; if it is set, the output layer sees the decoder's output times
            ``d_model ** -0.5``.
        source: what the encoder reads.
        convolutions: what turns features into the encoder's positions, in order, a GELU after each.
        positions, embedding_norm, forced: for the reader (docs/supported_models.md): how positions are told, whether
            embeddings are normed, and which target tokens are given rather than predicted. Relevance does not depend
            on them: whatever happens within a position keeps its total.
    """

    norm_first: bool
    norm: Literal["layer", "rms"] = "layer"
    encoder: str = "model.encoder"
    decoder: str = "model.decoder"
    layers: str = "layers"
    final_norm: str = "layer_norm"
    self_attention: str = "self_attn"
    self_attention_norm: str = "self_attn_layer_norm"
    cross_attention: str = "encoder_attn"
    cross_attention_norm: str = "encoder_attn_layer_norm"
    projections: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "out_proj")
    heads: str = "num_heads"
    scaling: str = "scaling"
    position_bias: str | None = None
    feed_forward: tuple[str, str] = ("fc1", "fc2")
    gated_feed_forward: tuple[str, str, str] | None = None
    activation: str = "activation_fn"
    feed_forward_norm: str = "final_layer_norm"
    head: str = "lm_head"
    head_bias: str | None = "final_logits_bias"
    scaled_head: str | None = None
    source: Literal["input_ids", "input_features"] = "input_ids"
    convolutions: tuple[str, ...] = ()
    positions: Literal["sinusoidal", "learned", "relative"] = "sinusoidal"
    embedding_norm: bool = False
    forced: str = "none"


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

# Keyed by `config.model_type`.
FAMILIES: dict[str, Family] = {
    "marian": _POST_NORM,
    "bart": replace(_POST_NORM, positions="learned", embedding_norm=True, forced="<s>, where the checkpoint says so"),
    "plbart": replace(_POST_NORM, positions="learned", embedding_norm=True, forced="language"),
    "blenderbot-small": replace(_POST_NORM, positions="learned", embedding_norm=True),
    "fsmt": replace(_POST_NORM, head="model.decoder.output_projection", head_bias=None),
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
}


def register_family(model_type: str, family: Family) -> None:
    """Describe one more model family to hf_lrp, for this process.

    Args:
        model_type: what `config.model_type` says in its checkpoints.
        family: its description. Whether it is right is found out on every forward pass: each step is recomputed
            from the description and compared, and :class:`hf_lrp.UnknownStructure` raised if it differs.
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
    if not model.config.is_encoder_decoder:
        raise TypeError(
            f"{name} is not an encoder-decoder model: it has no source side to compare with the target prefix. "
            f"Supported model types: {supported}."
        )
    if model.config.model_type not in FAMILIES:
        raise TypeError(
            f"{name} (model type {model.config.model_type!r}) is not supported. Supported: {supported}. {HOW_TO}"
        )
    if model.get_output_embeddings() is None:
        raise TypeError(
            f"{name} has no output layer: load the checkpoint with AutoModelForSeq2SeqLM.from_pretrained, or with "
            "AutoModelForSpeechSeq2Seq for speech."
        )
    return FAMILIES[model.config.model_type]


def supported_model_types() -> str:
    """All model types, for messages."""
    return ", ".join(sorted(FAMILIES))
