"""The redistribution rules again, slowly: contributions z_ij are written out, in float64, and sent in loops.

Shapes are those of `hf_lrp.relevance.operations`. Only the settings of a rule (alpha, eps, ...) are read from it.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from hf_lrp.relevance.rules import AlphaBeta, Epsilon, Gamma, Rule

# What Gamma adds to denominators, in units of contributions of the sign that counts less.
GAMMA_STABILISER = 1e-9

# What an RMS norm adds to the mean square: the αβ-rule does not depend on it, other rules are defined without it.
RMS_EPS = 0.01


def linear(rule: Rule, x: Tensor, weight: Tensor, bias: Tensor | None, relevance: Tensor) -> Tensor:
    """Contributions w_ji x_i, and the bias."""
    bias = torch.zeros(len(weight)) if bias is None else bias
    return torch.stack([_send_token(rule, (weight * row).T, bias, r) for row, r in _tokens(x, relevance)])


def gated(
    rule: Rule,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gate: Tensor,
    gate_bias: Tensor | None,
    relevance: Tensor,
) -> Tensor:
    """``u v``: either layer gets half, for ``(dy/du) u = (dy/dv) v``."""
    to_u, to_v = relevance.double() * 0.5, relevance.double() * 0.5
    return linear(rule, x, weight, bias, to_u) + linear(rule, x, gate, gate_bias, to_v)


def convolution(
    rule: Rule, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int, relevance: Tensor
) -> Tensor:
    """Output frame by output frame, with the contributions of the frames in its window, and the bias."""
    bias = torch.zeros(len(weight)) if bias is None else bias
    received = torch.zeros(len(x), relevance.shape[1], x.shape[1]).double()
    for t, r in enumerate(relevance.double()):
        window = convolution_window(x, weight, stride, padding, t)
        pieces = _send_token(rule, torch.cat(list(window.values())), bias, r).split(x.shape[1], dim=1)
        for frame, piece in zip(window, pieces, strict=True):
            received[frame] += piece
    return received


def convolution_window(x: Tensor, weight: Tensor, stride: int, padding: int, t: int) -> dict[int, Tensor]:
    """What the frames in the window of output frame t add to it: w_jik x_fi, [in, out] for each frame f."""
    frames = [(k, t * stride + k - padding) for k in range(weight.shape[2])]
    return {f: (weight[:, :, k].double() * x[f].double()).T for k, f in frames if 0 <= f < len(x)}


def layer_norm(rule: Rule, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, relevance: Tensor) -> Tensor:
    """Contributions J_ji x_i, and the bias; J is what autograd finds."""
    bias = torch.zeros(len(weight)) if bias is None else bias
    received = []
    for row, r in _tokens(x, relevance):
        contributions = (jacobian(_norm(rule, row, weight.double(), eps), row) * row).T
        received.append(_send_token(rule, contributions, bias, r))
    return torch.stack(received)


def _norm(rule: Rule, row: Tensor, weight: Tensor, eps: float) -> Callable[[Tensor], Tensor]:
    sigma = torch.sqrt(row.var(correction=0) + eps)

    def full(x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape, weight, None, eps)

    def with_constant_sigma(x: Tensor) -> Tensor:
        return weight * (x - x.mean()) / sigma

    return full if isinstance(rule, AlphaBeta) else with_constant_sigma


def rms_norm(rule: Rule, x: Tensor, weight: Tensor, relevance: Tensor) -> Tensor:
    """Contributions w_j / r (delta_ij x_i - x_i^2 x_j / (d r^2)); if r is a constant, the first term."""
    received = []
    for row, r in _tokens(x, relevance):
        d = len(row)
        rms = math.sqrt(float(row @ row) / d + (RMS_EPS if isinstance(rule, AlphaBeta) else 0.0))
        gain = weight.double() / rms if rms else torch.zeros(d).double()
        contributions = torch.diag(gain * row)
        if isinstance(rule, AlphaBeta) and rms:
            contributions -= torch.outer(row**2, gain * row) / (d * rms**2)
        received.append(_send_token(rule, contributions, torch.zeros(d), r))
    return torch.stack(received)


def residual(rule: Rule, x: Tensor, update: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """Output j receives x_j and update_j; the token's total is kept over both."""
    to_x, to_update = sum_of(rule, [x, update], relevance)
    return to_x, to_update


def sum_of(rule: Rule, terms: list[Tensor], relevance: Tensor) -> list[Tensor]:
    """Output j receives the j-th feature of each term; the token's total is kept over all."""
    received = []
    for number, r in enumerate(relevance.double()):
        contributions = torch.cat([term[number].double().diag() for term in terms])
        received.append(_send_token(rule, contributions, torch.zeros(terms[0].shape[1]), r))
    return list(torch.stack(received).chunk(len(terms), -1))


def mapped(
    rule: Rule, x: Tensor, function: Callable[[Tensor, int], Tensor], bias: Tensor, relevance: Tensor
) -> Tensor:
    """Contributions J_ji x_i, with the Jacobian that autograd finds of a function of a row and its number, and a bias.

    bias: [tokens, outputs].
    """
    received = []
    for number, (row, r) in enumerate(_tokens(x, relevance)):

        def of_row(row: Tensor, number: int = number) -> Tensor:
            return function(row, number)

        slopes: Tensor = jacobian(of_row, row)
        received.append(_send_token(rule, (slopes * row).T, bias[number], r))
    return torch.stack(received)


def logit(rule: Rule, x: Tensor, row: Tensor, bias: Tensor) -> Tensor:
    """One output per token, whose relevance is 1."""
    one = torch.ones(1, 1).double()
    received = [
        _send_token(rule, (token * weight)[:, None], constant[None], one)
        for token, weight, constant in zip(x.double(), row.double(), bias.double(), strict=True)
    ]
    return torch.stack(received)


def attention(
    rule: Rule,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    relevance: Tensor,
    mask: Tensor,
    cap: float = math.inf,
) -> tuple[Tensor, Tensor, Tensor]:
    """Contributions are inputs times the Jacobian that autograd finds; mask: [q, k] or [heads, q, k], added.

    cap: what scores are softly capped at, before the mask is added.

    A step's total is kept within each head that sends anything, then over all heads together.
    """
    mask = mask.double().expand(len(query), -1, -1)
    inputs = [(q, k, v) for q, k, v in zip(query.double(), key.double(), value.double(), strict=True)]
    received, by_weight = [], []
    for tensors, r, added in zip(inputs, relevance.double(), mask, strict=True):
        received.append(_attention_head(rule, tensors, r, added, cap))
        by_weight.append(_values_by_weight(tensors, r, added, cap))
    together = torch.cat(received)
    _conserve(together, relevance.double().sum((0, 1, 3)), torch.cat(by_weight))
    pieces = together.split([tensor.numel() for tensors in inputs for tensor in tensors])
    shaped = [
        piece.reshape(*tensor.shape, -1).transpose(1, 2)
        for piece, tensor in zip(pieces, (tensor for tensors in inputs for tensor in tensors), strict=True)
    ]
    return torch.stack(shaped[0::3]), torch.stack(shaped[1::3]), torch.stack(shaped[2::3])


def attention_pairs(
    rule: Rule, query: Tensor, key: Tensor, value: Tensor, relevance: Tensor, mask: Tensor, received: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """What each query's output alone sends to queries [heads, steps, q], keys and values [heads, steps, q, k].

    A head's parts are scaled so that they sum to what `attention` gave, ``received``, of which this is a part.
    """
    mask = mask.double().expand(len(query), -1, -1)
    found: list[list[Tensor]] = []
    for head, (q, k, v) in enumerate(zip(query.double(), key.double(), value.double(), strict=True)):
        rows = []
        for number in range(len(q)):
            alone = torch.zeros_like(relevance[head]).double()
            alone[number] = relevance[head, number].double()
            parts = _send_head(rule, (q, k, v), alone, mask[head], math.inf)
            pieces = parts.split([q.numel(), k.numel(), v.numel()])
            rows.append([p.unflatten(0, (len(x), -1)).sum(1) for p, x in zip(pieces, (q, k, v), strict=True)])
        to_query = torch.stack([row[0] for row in rows]).sum(1)  # [q, steps]: a query's output reaches no other query
        to_keys, to_values = (torch.stack([row[kind] for row in rows]) for kind in (1, 2))  # [q, k, steps]
        sent = to_query.sum(0) + to_keys.sum((0, 1)) + to_values.sum((0, 1))
        total = torch.stack([r[head].double().sum((0, 2)) for r in received]).sum(0)
        scale = torch.where(sent == 0, 0.0, total / sent)
        found.append([(part * scale).movedim(-1, 0) for part in (to_query, to_keys, to_values)])
    to_queries, to_keys, to_values = (torch.stack(parts) for parts in zip(*found, strict=True))
    return to_queries, to_keys, to_values


def capped(scores: Tensor, cap: float) -> Tensor:
    """A soft cap, if it is finite."""
    return scores if math.isinf(cap) else cap * torch.tanh(scores / cap)


def _attention_head(
    rule: Rule, inputs: tuple[Tensor, Tensor, Tensor], relevance: Tensor, mask: Tensor, cap: float
) -> Tensor:
    """[queries, keys and values, steps], the head's total kept where it sends anything."""
    received = _send_head(rule, inputs, relevance, mask, cap)
    _conserve(received, relevance.sum((0, 2)), None)
    return received


def _send_head(
    rule: Rule, inputs: tuple[Tensor, Tensor, Tensor], relevance: Tensor, mask: Tensor, cap: float
) -> Tensor:
    """The same before the total is kept."""

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.softmax(capped(query @ key.T, cap) + mask, -1) @ value

    outputs = len(relevance) * relevance.shape[2]
    contributions = []
    for position, (tensor, slopes) in enumerate(zip(inputs, jacobian(attend, inputs), strict=True)):
        constant = position < 2 and not isinstance(rule, AlphaBeta)
        z = torch.zeros_like(slopes) if constant else slopes * tensor
        contributions.append(z.reshape(outputs, -1).T)
    wanted = relevance.transpose(1, 2).reshape(outputs, -1)
    return _send(rule, torch.cat(contributions), torch.zeros(outputs), wanted)


def _values_by_weight(inputs: tuple[Tensor, Tensor, Tensor], relevance: Tensor, mask: Tensor, cap: float) -> Tensor:
    """What a head's values receive by attention weight, its queries and keys nothing: shaped as the above."""
    query, key, _ = inputs
    weights = torch.softmax(capped(query @ key.T, cap) + mask, -1)
    nothing = torch.zeros(query.numel() + key.numel(), relevance.shape[1]).double()
    to_values = torch.einsum("qk,qsd->kds", weights, relevance.abs())
    return torch.cat([nothing, to_values.reshape(-1, relevance.shape[1])])


def _tokens(x: Tensor, relevance: Tensor) -> zip:
    return zip(x.double(), relevance.double(), strict=True)


def _send_token(rule: Rule, contributions: Tensor, bias: Tensor, relevance: Tensor) -> Tensor:
    """[steps, outputs] -> [steps, inputs], the token's total kept; contributions: [inputs, outputs]."""
    inputs = len(contributions)
    contributions, bias, wanted = contributions.double(), bias.double(), relevance.T
    if isinstance(rule, AlphaBeta):  # every input has an equal share of the bias
        contributions, bias = contributions + bias / inputs, torch.zeros_like(bias)
    received = _send(rule, contributions, bias, wanted)
    _conserve(received, wanted.sum(0), torch.ones_like(received))
    return received.T


def _send(rule: Rule, contributions: Tensor, bias: Tensor, relevance: Tensor) -> Tensor:
    """contributions: [inputs, outputs]; bias: [outputs]; relevance: [outputs, steps] -> [inputs, steps]."""
    columns = zip(contributions.T.tolist(), bias.tolist(), strict=True)
    shares = torch.tensor(
        [_shares(rule, z, constant) for z, constant in columns], dtype=torch.float64
    )  # [outputs, inputs]
    received = torch.zeros(len(contributions), relevance.shape[1]).double()
    for share, sent in zip(shares, relevance, strict=True):
        received += torch.outer(share, sent)
    return received


def _shares(rule: Rule, z: list[float], bias: float) -> list[float]:
    """Which part of one output's relevance each of its inputs receives; the bias is an input of its own."""
    if isinstance(rule, AlphaBeta):
        positive = sum(max(z_i, 0.0) for z_i in z)
        negative = sum(min(z_i, 0.0) for z_i in z)
        return [rule.alpha * _over(max(z_i, 0.0), positive) + rule.beta * _over(min(z_i, 0.0), negative) for z_i in z]
    output = sum(z) + bias
    sign = 1.0 if output >= 0 else -1.0
    if isinstance(rule, Epsilon):
        return [_over(z_i, output + rule.eps * sign) for z_i in z]
    assert isinstance(rule, Gamma)

    def weigh(z_i: float) -> float:
        return z_i * (1 + rule.gamma) if z_i * sign > 0 else z_i

    total = sum(weigh(z_i) for z_i in z) + weigh(bias)
    return [_over(weigh(z_i), total + GAMMA_STABILISER * (1 + rule.gamma) * sign) for z_i in z]


def _over(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _conserve(received: Tensor, total: Tensor, fallback: Tensor | None) -> None:
    """Give out what is missing in proportion to |received|, or to `fallback`, if any, where nothing has arrived."""
    for step in range(received.shape[1]):
        column = received[:, step]
        missing = total[step] - column.sum()
        if missing != 0 and (column.any() or fallback is not None):
            proportion = column.abs() if fallback is None or column.any() else fallback[:, step]
            column += missing * proportion / proportion.sum()
