"""Source and target contributions to the predictions of translation models, by layer-wise relevance propagation."""

from typing import TYPE_CHECKING

from hf_lrp.lazy import lazy_names
from hf_lrp.version import __version__

if TYPE_CHECKING:
    from hf_lrp.explaining.explainer import Explainer, explain, explain_prefixes
    from hf_lrp.inputs.prompts import Prompt
    from hf_lrp.links.aligner import Aligner, align
    from hf_lrp.links.alignment import Alignment
    from hf_lrp.links.heads import LinkHeads
    from hf_lrp.links.texts import Text
    from hf_lrp.models.families import Family, register_family
    from hf_lrp.models.loading import load
    from hf_lrp.models.recording import UnknownStructure
    from hf_lrp.relevance.patching import patched
    from hf_lrp.relevance.propagation import propagate
    from hf_lrp.relevance.rules import AlphaBeta, Epsilon, Gamma, Part, Rule
    from hf_lrp.results.collection import ContributionsList
    from hf_lrp.results.comparison import Comparison
    from hf_lrp.results.contributions import Contributions
    from hf_lrp.results.spans import Span

__all__ = [
    "Aligner",
    "Alignment",
    "AlphaBeta",
    "Comparison",
    "Contributions",
    "ContributionsList",
    "Epsilon",
    "Explainer",
    "Family",
    "Gamma",
    "LinkHeads",
    "Part",
    "Prompt",
    "Rule",
    "Span",
    "Text",
    "UnknownStructure",
    "__version__",
    "align",
    "explain",
    "explain_prefixes",
    "load",
    "patched",
    "propagate",
    "register_family",
]

# Imported on first use, with torch and transformers: the command line answers --help without them.
_MODULES = {
    "Aligner": "links.aligner",
    "Alignment": "links.alignment",
    "AlphaBeta": "relevance.rules",
    "Comparison": "results.comparison",
    "Contributions": "results.contributions",
    "ContributionsList": "results.collection",
    "Epsilon": "relevance.rules",
    "Explainer": "explaining.explainer",
    "Family": "models.families",
    "Gamma": "relevance.rules",
    "LinkHeads": "links.heads",
    "Part": "relevance.rules",
    "Prompt": "inputs.prompts",
    "Rule": "relevance.rules",
    "Span": "results.spans",
    "Text": "links.texts",
    "UnknownStructure": "models.recording",
    "align": "links.aligner",
    "explain": "explaining.explainer",
    "explain_prefixes": "explaining.explainer",
    "load": "models.loading",
    "patched": "relevance.patching",
    "propagate": "relevance.propagation",
    "register_family": "models.families",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
