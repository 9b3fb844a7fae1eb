"""Source and target contributions to the predictions of translation models, by layer-wise relevance propagation."""

from hf_lrp.contributions import Contributions
from hf_lrp.explain import explain
from hf_lrp.patching import patched
from hf_lrp.rules import AlphaBeta, Epsilon, Gamma
from hf_lrp.version import __version__

__all__ = ["AlphaBeta", "Contributions", "Epsilon", "Gamma", "__version__", "explain", "patched"]
