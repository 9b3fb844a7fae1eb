"""Source and target contributions to the predictions of translation models, by layer-wise relevance propagation."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hf_lrp.version import __version__

if TYPE_CHECKING:
    from hf_lrp.contributions import Contributions
    from hf_lrp.explaining import explain, explain_prefixes
    from hf_lrp.families import Family, register_family
    from hf_lrp.modules import UnknownStructure
    from hf_lrp.patching import patched
    from hf_lrp.rules import AlphaBeta, Epsilon, Gamma

__all__ = [
    "AlphaBeta",
    "Contributions",
    "Epsilon",
    "Family",
    "Gamma",
    "UnknownStructure",
    "__version__",
    "explain",
    "explain_prefixes",
    "patched",
    "register_family",
]

# Imported on first use, with torch and transformers: the command line answers --help without them.
_MODULES = {
    "AlphaBeta": "rules",
    "Contributions": "contributions",
    "Epsilon": "rules",
    "Family": "families",
    "Gamma": "rules",
    "UnknownStructure": "modules",
    "explain": "explaining",
    "explain_prefixes": "explaining",
    "patched": "patching",
    "register_family": "families",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"hf_lrp.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
