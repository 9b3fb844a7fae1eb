"""Attribution methods for `explain(..., method=...)`: one file each, behind one protocol (`method`)."""

from typing import TYPE_CHECKING

from hf_lrp.lazy import lazy_names

if TYPE_CHECKING:
    from hf_lrp.methods.alti import ALTI
    from hf_lrp.methods.attention import Attention
    from hf_lrp.methods.attn_lrp import AttnLRP
    from hf_lrp.methods.erasure import Erasure
    from hf_lrp.methods.gradients import GradientNorm, GradientTimesInput
    from hf_lrp.methods.lrp import LRP
    from hf_lrp.methods.method import Method, Question

__all__ = [
    "ALTI",
    "LRP",
    "NAMES",
    "Attention",
    "AttnLRP",
    "Erasure",
    "GradientNorm",
    "GradientTimesInput",
    "Method",
    "Question",
]

# On the command line; `hf_lrp.methods.table` has what each is.
NAMES = ("lrp", "alti", "attnlrp", "gradient-norm", "gradient-input", "attention", "erasure")

_MODULES = {
    "ALTI": "methods.alti",
    "Attention": "methods.attention",
    "AttnLRP": "methods.attn_lrp",
    "Erasure": "methods.erasure",
    "GradientNorm": "methods.gradients",
    "GradientTimesInput": "methods.gradients",
    "LRP": "methods.lrp",
    "Method": "methods.method",
    "Question": "methods.method",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
