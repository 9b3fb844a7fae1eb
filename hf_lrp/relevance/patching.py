"""Exchange a model's modules for their relevance-aware counterparts, and put them back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from hf_lrp.models.weights import REMEDY, require_plain_weights
from hf_lrp.relevance.modules import (
    Recorded,
    RelevanceConv1d,
    RelevanceLayerNorm,
    RelevanceLinear,
    RelevanceTransposedLinear,
    counterpart,
)
from hf_lrp.relevance.network import Network, read_network
from hf_lrp.relevance.rules import AlphaBeta, Rule

_lock = threading.RLock()
_holders: WeakKeyDictionary[nn.Module, set[object]] = WeakKeyDictionary()


@dataclass(frozen=True)
class PatchedModel:
    """A model whose modules are relevance-aware at the moment, and the rule to propagate with."""

    model: PreTrainedModel
    network: Network
    rule: Rule


@contextmanager
def patched(model: PreTrainedModel, rule: Rule | None = None) -> Iterator[PatchedModel]:
    """Make a model's modules relevance-aware, and put the model back as it was, whatever happens inside.

    While patched, the model computes, generates, trains and saves exactly as before: the counterparts are subclasses
    of its own classes. May be nested, also for the same model, and used from several threads; other models in the
    process are not touched.

    Args:
        model: a model of a supported family.
        rule: the rule that relevance is propagated with; default: the paper's, ``AlphaBeta(1, 0)``.
    """
    network = read_network(model)
    require_plain_weights(model)
    _require_plain_modules(network)
    holder = object()
    try:
        for module, behaviour in network.counterparts.items():
            _acquire(module, behaviour, holder)
        yield PatchedModel(model, network, AlphaBeta() if rule is None else rule)
    finally:
        _release_all(network, holder)


def _acquire(module: nn.Module, behaviour: type[Recorded], holder: object) -> None:
    with _lock:
        _holders.setdefault(module, set()).add(holder)
        if not isinstance(module, Recorded):
            module.__class__ = counterpart(type(module), behaviour)


def _release_all(network: Network, holder: object) -> None:
    """Give up all modules, to the end even if interrupted again; releasing one twice does no harm."""
    interrupt: BaseException | None = None
    pending = list(network.counterparts)
    while pending:
        try:
            _release(pending[-1], holder)
            pending.pop()
        except BaseException as again:
            interrupt = again
    if interrupt is not None:
        raise interrupt


def _release(module: nn.Module, holder: object) -> None:
    with _lock:
        holders = _holders.get(module, set())
        holders.discard(holder)
        if not holders and isinstance(module, Recorded):
            module.__class__ = module.original  # type: ignore[assignment]
            _holders.pop(module, None)


# What a counterpart stands in for, where it has one class; others are known by what they compute.
_PLAIN: dict[type[Recorded], type[nn.Module]] = {
    RelevanceLinear: nn.Linear,
    RelevanceTransposedLinear: Conv1D,
    RelevanceLayerNorm: nn.LayerNorm,
    RelevanceConv1d: nn.Conv1d,
}


def _require_plain_modules(network: Network) -> None:
    """Raise for modules whose counterpart would not be what runs, or whose weights are not plain numbers."""
    for module, behaviour in network.counterparts.items():
        name = type(module).__name__
        plain = _PLAIN.get(behaviour, nn.Module)
        if not isinstance(module, plain):
            raise TypeError(f"Expected a plain {plain.__name__}, found {name}. {REMEDY}")
        original = module.original if isinstance(module, Recorded) else type(module)
        if plain is not nn.Module and original.forward is not plain.forward:
            raise TypeError(f"{name} has a forward method of its own, but relevance assumes that of {plain.__name__}.")
        if isinstance(module, nn.Conv1d) and (module.groups, module.dilation, module.padding_mode) != (
            1,
            (1,),
            "zeros",
        ):
            raise TypeError(f"{name} has groups, dilation or padding other than zeros, for which there is no rule.")
        weight = getattr(module, "weight", None)
        if isinstance(weight, torch.Tensor) and not weight.is_floating_point():
            raise TypeError(f"A {name} has {weight.dtype} weights: the model is quantised. {REMEDY}")
        if "forward" in vars(module):
            raise TypeError(
                f"The forward method of a {name} has been replaced on the module itself, as device_map and offloading "
                "do. Load the model without device_map, or remove the hooks."
            )
