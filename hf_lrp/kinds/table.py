"""The kinds of models: the first that includes a model's family is its kind."""

from __future__ import annotations

from transformers import PreTrainedModel

from hf_lrp.kinds.decoder_only import DecoderOnly
from hf_lrp.kinds.encoder_decoder import EncoderDecoder
from hf_lrp.kinds.kind import Kind
from hf_lrp.kinds.speech import Speech
from hf_lrp.models.families import family_of

KINDS: list[Kind] = [Speech(), DecoderOnly(), EncoderDecoder()]


def kind_of(model: PreTrainedModel) -> Kind:
    """The kind of a model; raises for architectures that are not supported."""
    family = family_of(model)
    return next(kind for kind in KINDS if kind.includes(family))
