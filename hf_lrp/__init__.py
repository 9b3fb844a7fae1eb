"""Source and target contributions to the predictions of translation models, by layer-wise relevance propagation."""

from typing import TYPE_CHECKING

from hf_lrp.lazy import lazy_names
from hf_lrp.version import __version__

if TYPE_CHECKING:
    from hf_lrp.explaining.explain import explain, explain_prefixes
    from hf_lrp.explaining.loading import load
    from hf_lrp.explaining.prompts import Prompt
    from hf_lrp.relevance.families import Family, register_family
    from hf_lrp.relevance.modules import UnknownStructure
    from hf_lrp.relevance.patching import patched
    from hf_lrp.relevance.rules import AlphaBeta, Epsilon, Gamma
    from hf_lrp.result.collection import ContributionsList
    from hf_lrp.result.comparison import Comparison
    from hf_lrp.result.contributions import Contributions
    from hf_lrp.result.spans import Span

__all__ = [
    "AlphaBeta",
    "Comparison",
    "Contributions",
    "ContributionsList",
    "Epsilon",
    "Family",
    "Gamma",
    "Prompt",
    "Span",
    "UnknownStructure",
    "__version__",
    "explain",
    "explain_prefixes",
    "load",
    "patched",
    "register_family",
]

# Imported on first use, with torch and transformers: the command line answers --help without them.
_MODULES = {
    "AlphaBeta": "relevance.rules",
    "Comparison": "result.comparison",
    "Contributions": "result.contributions",
    "ContributionsList": "result.collection",
    "Epsilon": "relevance.rules",
    "Family": "relevance.families",
    "Gamma": "relevance.rules",
    "Prompt": "explaining.prompts",
    "Span": "result.spans",
    "UnknownStructure": "relevance.modules",
    "explain": "explaining.explain",
    "explain_prefixes": "explaining.explain",
    "load": "explaining.loading",
    "patched": "relevance.patching",
    "register_family": "relevance.families",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
