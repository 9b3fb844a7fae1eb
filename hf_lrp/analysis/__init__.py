"""A corpus instead of a sentence: evaluation of a model on many pairs, and what is measured on the results."""

from hf_lrp.analysis.store import Run, RunError, Sentence

__all__ = ["Run", "RunError", "Sentence"]
