"""Exchange a model's modules for their relevance-aware counterparts, and put them back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from transformers import PreTrainedModel

from hf_lrp.models.exchange import recorded
from hf_lrp.models.structure import Network
from hf_lrp.relevance.counterparts import RELEVANCE_AWARE
from hf_lrp.relevance.rules import AlphaBeta, Rule


@dataclass(frozen=True)
class PatchedModel:
    """A model whose modules are relevance-aware at the moment, and the rule to propagate with."""

    model: PreTrainedModel
    network: Network
    rule: Rule


@contextmanager
def patched(
    model: PreTrainedModel, rule: Rule | None = None, network: Network | None = None
) -> Iterator[PatchedModel]:
    """Make a model's modules relevance-aware, and put the model back as it was, whatever happens inside.

    While patched, the model computes, generates, trains and saves exactly as before: the counterparts are subclasses
    of its own classes. May be nested, also for the same model, and used from several threads; other models in the
    process are not touched.

    Args:
        model: a model of a supported family.
        rule: the rule that relevance is propagated with; default: the paper's, ``AlphaBeta(1, 0)``.
        network: how the model is built, if that has been read before (`hf_lrp.models.exchange.read_plain_network`).
    """
    with recorded(model, RELEVANCE_AWARE, network) as network:
        yield PatchedModel(model, network, AlphaBeta() if rule is None else rule)
