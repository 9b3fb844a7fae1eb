"""Questions to attribution methods: tiny models of every family with a source and predictions to explain."""

from collections.abc import Callable
from typing import Any

import torch
from tiny_decoders import DECODERS, tiny_decoder
from tiny_models import VARIANTS, encoder_inputs, random_ids, tiny_variant
from tiny_t5gemma import tiny_t5gemma
from torch import Tensor
from transformers import PreTrainedModel

from hf_lrp.methods.method import Method, Question
from hf_lrp.models.exchange import read_plain_network
from hf_lrp.models.passes import DecoderInput, Relevance

# Every family by a readable name, with the variants that differ for methods.
MODELS = (
    *(name for name in VARIANTS if " " not in name),
    "bart uneven, untied",
    "t5 gated, unscaled, untied, uneven",
    "fsmt one vocabulary, tied",
    "t5gemma",
    *DECODERS,
)
PROMPT = 4  # of the ids of a model without an encoder


def model_of(name: str, dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    """The tiny model of MODELS with this name; XGLM of transformers cannot run in float64."""
    if name in DECODERS:
        return tiny_decoder(name, dtype=torch.float32 if name == "xglm" else dtype)
    if name == "t5gemma":
        return tiny_t5gemma(dtype)
    return tiny_variant(name, dtype=dtype)


def top1(logits: Tensor) -> Tensor:
    """The most probable token of each step."""
    return logits.argmax(-1)


def question_of(
    model: PreTrainedModel, choose: Callable[[Tensor], Tensor] = top1, max_memory: int = 2**40, length: int = 6
) -> Question:
    """Five source tokens and ``length`` decoder inputs; without an encoder, a prompt of four before the rest."""
    if model.config.is_encoder_decoder:
        source, start = encoder_inputs(model), getattr(model.config, "decoder_start_token_id", None)
        ids = torch.cat([torch.tensor([2 if start is None else start]), random_ids(length - 1, seed=4)])
        positions = len(source["input_ids"]) if "input_ids" in source else len(source["input_features"][0]) // 2
        given = [DecoderInput(ids, choose, slice(0, len(ids)))]
    else:
        source, positions, ids = {}, 2, random_ids(length + 1, seed=3)
        given = [DecoderInput(ids, choose, slice(PROMPT - 1, len(ids)))]
    return Question(model, read_plain_network(model), source, positions, given, max_memory)


def values_of(method: Method, model: PreTrainedModel, **options: Any) -> Relevance:
    """What a method finds for `question_of`."""
    (found,) = method.explain(question_of(model, **options))
    return found
