"""Redistribution rules as such: which share of an output's relevance each of its inputs receives.

Let ``z_ij`` be what input i adds to output j. A rule sends

    R_i = sum_j R_j sum_parts share * phi(z_ij) / sum_i phi(z_ij)                                            (1)

with one or two *parts*. ``phi`` keeps positive contributions and scales negative ones by a slope, so that one formula
covers the αβ-rule (Bach et al. 2015; Binder et al. 2016; Voita et al. 2021, eq. 3), LRP-ε and LRP-γ
(Montavon et al. 2019); `docs/bibliography.md` has their titles. What ``z_ij`` is for each operation stands in
`hf_lrp.relevance.operations`.

An output whose contributions all have the wrong sign has nowhere to send its relevance. The total is kept by
`conserve`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

# Sums of contributions below this are no sums.
TINY = {dtype: math.sqrt(torch.finfo(dtype).tiny) for dtype in (torch.float32, torch.float64)}


class Part(NamedTuple):
    """One term of equation (1): ``phi(z) = leaky_relu(sign * z, slope)``, weighted with ``share``.

    ``of_sign``: the term takes part only for outputs ``sum_i z_ij`` of its own sign.
    """

    share: float
    sign: float = 1.0
    slope: float = 0.0
    eps: float = 0.0
    of_sign: bool = False

    def phi(self, z: Tensor) -> Tensor:
        """phi, elementwise, out of place."""
        oriented = z if self.sign > 0 else -z
        return F.leaky_relu(oriented, self.slope) if self.slope else oriented.clamp_min(0)

    def phi_(self, z: Tensor) -> None:
        """phi, elementwise, in place."""
        if self.sign < 0:
            z.neg_()
        if self.slope == 0:
            z.relu_()
        else:
            F.leaky_relu_(z, self.slope)

    def divide(
        self, relevance: Tensor, total: Tensor, output: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        """``share * relevance / total``; 0 for outputs without contributions (dead ones) or not of this sign.

        relevance: [..., steps, outputs]; total: [..., outputs], ``sum_i phi(z_ij)``, is overwritten; output: the same
        of ``z_ij``, needed if ``of_sign``; out: where the result may be written.
        """
        tiny = TINY[total.dtype]
        if self.slope == 0:  # contributions are not negative; a dead output's are 0, whatever they are divided by
            share = torch.div(relevance, total.clamp_min_(tiny).unsqueeze(-2), out=out)
            return share if self.share == 1 else share.mul_(self.share)
        total = total + torch.full_like(total, self.eps).copysign(total)
        dead = total.abs() <= tiny
        if self.of_sign:
            assert output is not None
            dead |= output < 0 if self.sign > 0 else output >= 0
        return relevance * (self.share / total).masked_fill_(dead, 0.0).unsqueeze(-2)


@dataclass(frozen=True)
class Rule(ABC):
    """A redistribution rule; subclasses say which parts it has."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """The terms of equation (1)."""

    @property
    def keeps_sign(self) -> bool:
        """True if non-negative relevance stays non-negative."""
        return all(part.share > 0 and part.slope == 0 for part in self.parts)

    @property
    def detaches(self) -> bool:
        """True if attention weights and the standard deviation in norms count as constants (Ali et al. 2022).

        Rules that divide by the sum of positive and negative contributions need contributions that add up to the
        output. Those of a full Jacobian do not (a layer norm's add up to its bias), and the quotients explode.
        """
        return any(part.slope != 0 for part in self.parts)


@dataclass(frozen=True)
class AlphaBeta(Rule):
    """The αβ-rule: positive contributions receive ``alpha``, negative ones ``beta``; ``alpha + beta = 1``.

    The paper uses ``AlphaBeta(1, 0)``, with which all contributions are non-negative and read as shares.
    """

    alpha: float = 1.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        if not math.isclose(self.alpha + self.beta, 1.0, abs_tol=1e-9):
            raise ValueError(f"alpha + beta must be 1, or relevance is not conserved; got {self.alpha} + {self.beta}.")

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(part for part in (Part(self.alpha), Part(self.beta, sign=-1.0)) if part.share != 0)


@dataclass(frozen=True)
class Epsilon(Rule):
    """LRP-ε: contributions of both signs, ``z_ij / (z_j + eps * sign(z_j))``. Contributions may be negative."""

    eps: float = 1e-6

    def __post_init__(self) -> None:
        _require_non_negative("eps", self.eps)

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part(1.0, slope=1.0, eps=self.eps),)


@dataclass(frozen=True)
class Gamma(Rule):
    """LRP-γ: contributions of the output's sign count ``1 + gamma`` times. Contributions may be negative.

    The generalised form, which is defined for outputs of either sign; between LRP-ε (0) and a rule that only looks at
    contributions of the output's sign (large gamma). Sums are stabilised with 1e-9.
    """

    gamma: float = 0.25

    def __post_init__(self) -> None:
        _require_non_negative("gamma", self.gamma)

    @property
    def parts(self) -> tuple[Part, ...]:
        slope = 1.0 / (1.0 + self.gamma)
        return tuple(Part(1.0, sign, slope, eps=1e-9, of_sign=True) for sign in (1.0, -1.0))


def _require_non_negative(name: str, value: float) -> None:
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a non-negative number; got {value}.")


def conserve(
    rule: Rule,
    relevance: Sequence[Tensor],
    total: Tensor,
    dims: tuple[int, ...] = (-1,),
    fallback: Callable[[], Sequence[Tensor]] | None = None,
) -> None:
    """Rescale ``relevance`` in place so that it sums to ``total`` over all its tensors and their ``dims``.

    What is missing is given out in proportion to the magnitude of what has arrived, which for rules that keep the sign
    is a plain rescaling; where nothing has arrived at all, in proportion to ``fallback()`` (non-negative; default:
    equally).

    total: as the tensors of relevance, with size 1 in ``dims``.
    """
    dead = rescale(rule, relevance, total, dims)
    if may_hold(dead):
        weights = [torch.ones_like(r) for r in relevance] if fallback is None else fallback()
        scale = torch.where(dead, total / _sum(weights, dims), 0.0)
        for r, w in zip(relevance, weights, strict=True):
            r.add_(w * scale)


def rescale(rule: Rule, relevance: Sequence[Tensor], total: Tensor, dims: tuple[int, ...]) -> Tensor:
    """As `conserve`, but what has nowhere to go is lost. Returns where that is the case, shaped as ``total``."""
    arrived = _sum(relevance, dims)
    if rule.keeps_sign:
        scale = total / arrived
    else:
        scale = (total - arrived) / _sum([r.abs() for r in relevance], dims)
    dead = ~torch.isfinite(scale)
    scale.masked_fill_(dead, 0.0)
    for r in relevance:
        r.mul_(scale if rule.keeps_sign else 1 + r.sign() * scale)
    return dead & (total != 0)


def may_hold(condition: Tensor) -> bool:
    """False if a condition is known to hold nowhere. On a GPU nobody knows without waiting for it."""
    return condition.device.type != "cpu" or bool(condition.any())


def _sum(tensors: Sequence[Tensor], dims: tuple[int, ...]) -> Tensor:
    result = tensors[0].sum(dims, keepdim=True)
    for tensor in tensors[1:]:
        result = result + tensor.sum(dims, keepdim=True)
    return result
