"""Exchange a model's modules for counterparts that record what they compute, and put them back."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from hf_lrp.models.modules import RecordedConv1d, RecordedLayerNorm, RecordedLinear, RecordedTransposedLinear
from hf_lrp.models.reading import read_network
from hf_lrp.models.recording import Recorded, UnknownStructure, counterpart
from hf_lrp.models.structure import Network
from hf_lrp.models.weights import REMEDY, require_plain_weights

Behaviour = type[Recorded]

_lock = threading.RLock()
_holders: WeakKeyDictionary[nn.Module, dict[object, Behaviour]] = WeakKeyDictionary()


@contextmanager
def recorded(
    model: PreTrainedModel,
    behaviours: Mapping[Behaviour, Behaviour] | None = None,
    network: Network | None = None,
) -> Iterator[Network]:
    """Let a `Tape` record a model's modules, and put the model back as it was, whatever happens inside.

    The model computes, generates, trains and saves exactly as before: counterparts are subclasses of its own classes.
    May be nested, also for the same model, and used from several threads; other models are not touched.

    Args:
        model: a model of a supported family.
        behaviours: what counterparts can do beyond recording: subclasses of the kinds in `hf_lrp.models.modules`,
            by the kind that each stands for.
        network: what `read_plain_network` gave for the model, if nothing has changed since.
    """
    network = read_plain_network(model) if network is None else network
    holder = object()
    try:
        for module, kind in network.counterparts.items():
            _acquire(module, kind if behaviours is None else behaviours[kind], holder)
        yield network
    finally:
        _release_all(network, holder)


def read_plain_network(model: PreTrainedModel) -> Network:
    """Describe a model by its family; raises for one whose modules or weights are not what relevance is made for."""
    network = read_network(model)
    require_plain_weights(model)
    _require_plain_modules(network)
    return network


def _acquire(module: nn.Module, behaviour: Behaviour, holder: object) -> None:
    with _lock:
        holders = _holders.setdefault(module, {})
        holders[holder] = behaviour
        _settle(module, holders)


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
        holders = _holders.get(module, {})
        holders.pop(holder, None)
        _settle(module, holders)
        if not holders:
            _holders.pop(module, None)


def _settle(module: nn.Module, holders: Mapping[object, Behaviour]) -> None:
    """The class that a module has: its own, or a counterpart that can do what all holders want."""
    original: type[nn.Module] = module.original if isinstance(module, Recorded) else type(module)
    if not holders:
        wanted = original
    else:
        most = max(holders.values(), key=lambda behaviour: len(behaviour.__mro__))
        wanted = counterpart(original, most)
    if type(module) is not wanted:
        module.__class__ = wanted


# What a counterpart stands in for, where it has one class; others are known by what they compute.
_PLAIN: dict[Behaviour, type[nn.Module]] = {
    RecordedLinear: nn.Linear,
    RecordedTransposedLinear: Conv1D,
    RecordedLayerNorm: nn.LayerNorm,
    RecordedConv1d: nn.Conv1d,
}


def _require_plain_modules(network: Network) -> None:
    """Raise for modules whose counterpart would not be what runs, or whose weights are not plain numbers."""
    for module, behaviour in network.counterparts.items():
        name = type(module).__name__
        plain = _PLAIN.get(behaviour, nn.Module)
        if not isinstance(module, plain):
            raise UnknownStructure(f"Expected a plain {plain.__name__}, found {name}. {REMEDY}")
        original = module.original if isinstance(module, Recorded) else type(module)
        if plain is not nn.Module and original.forward is not plain.forward:
            raise UnknownStructure(
                f"{name} has a forward method of its own, but relevance assumes that of {plain.__name__}."
            )
        if isinstance(module, nn.Conv1d) and (module.groups, module.dilation, module.padding_mode) != (
            1,
            (1,),
            "zeros",
        ):
            raise UnknownStructure(
                f"{name} has groups, dilation or padding other than zeros, for which there is no rule."
            )
        weight = getattr(module, "weight", None)
        if isinstance(weight, torch.Tensor) and not weight.is_floating_point():
            raise TypeError(f"A {name} has {weight.dtype} weights: the model is quantised. {REMEDY}")
        if "forward" in vars(module):
            raise UnknownStructure(
                f"The forward method of a {name} has been replaced on the module itself, as device_map and offloading "
                "do. Load the model without device_map, or remove the hooks."
            )
