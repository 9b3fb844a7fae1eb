"""A corpus instead of a sentence: evaluation of a model on many pairs, and what is measured on the results."""

from typing import TYPE_CHECKING, Any

from hf_lrp.corpus.manifest import RunError
from hf_lrp.corpus.run import Run

if TYPE_CHECKING:
    from hf_lrp.corpus.evaluating import evaluate

__all__ = ["Run", "RunError", "evaluate"]


def __getattr__(name: str) -> Any:
    if name != "evaluate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hf_lrp.corpus.evaluating import evaluate  # with torch and transformers: finished runs are read without

    globals()[name] = evaluate
    return evaluate
