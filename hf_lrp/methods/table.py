"""The table of methods: by the name that they have on the command line, which kinds of models each explains."""

from __future__ import annotations

from typing import NamedTuple

from hf_lrp.methods.alti import ALTI
from hf_lrp.methods.attention import Attention
from hf_lrp.methods.attn_lrp import AttnLRP
from hf_lrp.methods.erasure import Erasure
from hf_lrp.methods.gradients import GradientNorm, GradientTimesInput
from hf_lrp.methods.lrp import LRP
from hf_lrp.methods.method import Method

TEXT, SPEECH, DECODER = "encoder-decoder", "speech", "decoder-only"
ALL = (TEXT, SPEECH, DECODER)


class Row(NamedTuple):
    """A method with its default settings, and the kinds of models that it explains; others are refused."""

    method: Method
    kinds: tuple[str, ...] = ALL


METHODS: dict[str, Row] = {
    "lrp": Row(LRP()),
    "alti": Row(ALTI()),
    "attnlrp": Row(AttnLRP()),
    "gradient-norm": Row(GradientNorm()),
    "gradient-input": Row(GradientTimesInput()),
    "attention": Row(Attention()),
    "erasure": Row(Erasure(), (TEXT, DECODER)),
}
