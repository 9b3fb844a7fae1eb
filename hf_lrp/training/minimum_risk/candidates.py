"""Candidates of Minimum Risk Training: translations sampled from the model, and the reference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel

from hf_lrp.models.configs import position_limit, require_end_tokens, require_start_token

_BELOW_ONE = 1 - 1e-12  # what is below 1 also after rounding
_ALIVE = 0.85  # of the rows in the cache; if fewer go on, the others are taken out


class Candidates(NamedTuple):
    """The distinct candidates of each source, the reference first, and how often each was drawn.

    ``ids``: for each source a list of token ids [T], on the CPU, with the end-of-sentence token unless cut.
    """

    ids: list[list[Tensor]]
    draws: list[list[int]]


class _Leaves(NamedTuple):
    """Finished samples of equal length: of which source [K], their ids [K, T], and how often drawn [K]."""

    source: Tensor
    ids: Tensor
    draws: Tensor


def sample_candidates(
    model: PreTrainedModel,
    encoder_states: Tensor,
    attention_mask: Tensor,
    references: Sequence[Tensor],
    candidates: int,
    *,
    seed: int,
    max_rows: int = 8192,
) -> Candidates:
    """Draw so many translations of each source from the model's distribution, and put the reference in front.

    ``encoder_states`` [sources, S, d] with ``attention_mask`` [sources, S]; ``references``: ids [T] with the
    end-of-sentence token. Plain sampling: no temperature, no truncation of the distribution, nothing from the
    generation config except a forced first token; padding is never drawn. A sample ends with its first
    end-of-sentence token; if it has none within ⌊1.4 · T⌋ + 3 tokens it is cut there and stays without one, so that
    it is scored as what was drawn. (T counts the end-of-sentence token, as in the code released with the paper.)

    The model runs in eval mode and gets its training flags back. The result is a function of the arguments only, and
    neither uses nor changes the global random state. At most ``max_rows`` (or ``candidates``, if larger) samples grow
    at a time; this does not change the result.
    """
    limits = [_limit(model, len(reference)) for reference in references]
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(max(limits), len(references), candidates, dtype=torch.float64, generator=generator)
    uniform = uniform.clamp(max=_BELOW_ONE)
    size = max(1, max_rows // candidates)
    leaves: list[_Leaves] = []
    with torch.no_grad(), evaluating(model):
        for start in range(0, len(references), size):
            part = slice(start, start + size)
            for found in _grow(model, encoder_states[part], attention_mask[part], limits[part], uniform[:, part]):
                leaves.append(found._replace(source=found.source + start))
    return _collect(leaves, references)


def _limit(model: PreTrainedModel, length: int) -> int:
    """How many tokens a candidate may have, the end included."""
    positions = position_limit(model)
    limit = 7 * length // 5 + 3
    return limit if positions is None else min(limit, positions)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards each module has its own mode again."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, flag in flags:
            module.training = flag


def _grow(
    model: PreTrainedModel, states: Tensor, mask: Tensor, limits: Sequence[int], uniform: Tensor
) -> Iterator[_Leaves]:
    """Samples as they end. Those of one source that are equal so far share a row, and so the model's work.

    ``uniform`` [steps, sources, number]: random numbers that choose each sample's tokens.
    """
    device = states.device
    sources, number = uniform.shape[1:]
    ends = torch.tensor(require_end_tokens(model), device=device)
    limit = torch.tensor(limits, device=device)
    uniform = uniform.flatten(1).to(device)
    cache = EncoderDecoderCache(DynamicCache(config=model.config), DynamicCache(config=model.config))
    source = torch.arange(sources, device=device)  # [rows]
    ids = torch.full((sources, 1), require_start_token(model), device=device)  # [rows, 1 + tokens so far]
    sample = torch.arange(sources * number, device=device)  # [samples that go on]
    row = sample // number  # of each sample that goes on
    for step in range(max(limits)):
        output = cast(Any, model)(
            # from the second step on, keys and values of the encoder are in the cache, and of its states only the
            # shape matters
            encoder_outputs=(states[source] if step == 0 else states[:1].expand(len(source), -1, -1),),
            attention_mask=mask[source],
            decoder_input_ids=ids[:, -1:],
            past_key_values=cache,
            use_cache=True,
        )
        drawn = _draw(_allowed(model, output.logits[:, -1], step), row, uniform[step, sample])
        vocabulary = output.logits.shape[-1]
        children, child, draws = torch.unique(row * vocabulary + drawn, return_inverse=True, return_counts=True)
        parent, token = children // vocabulary, children % vocabulary
        grown = torch.cat([ids[parent], token[:, None]], dim=1)
        ended = torch.isin(token, ends) | (limit[source[parent]] == step + 1)
        yield _Leaves(source[parent[ended]], grown[ended, 1:], draws[ended])
        going = ~ended
        if not going.any():
            return
        left = parent[going]
        if len(left.unique()) < len(left) or len(left) < _ALIVE * len(source):
            source, ids = source[left], grown[going]
            cache.batch_select_indices(left)
            row = (going.cumsum(0) - 1)[child[going[child]]]
        else:  # to move rows in the cache costs more than to carry on those that have ended
            ids = torch.cat([ids, ids[:, -1:]], dim=1).index_copy(0, left, grown[going])
            row = row[going[child]]
        sample = sample[going[child]]


def _allowed(model: PreTrainedModel, logits: Tensor, step: int) -> Tensor:
    """Logits [rows, vocabulary] without padding, or of nothing but the token that is forced at the first step."""
    forced = getattr(model.generation_config, "forced_bos_token_id", None)
    if step == 0 and forced is not None:
        return torch.full_like(logits, -torch.inf).index_fill_(1, torch.tensor(forced, device=logits.device), 0.0)
    padding = never_drawn(model)
    if padding is not None:
        logits[:, padding] = -torch.inf
    return logits


def never_drawn(model: PreTrainedModel) -> int | None:
    """The token that no candidate has: padding."""
    return model.config.pad_token_id


def _draw(logits: Tensor, row: Tensor, uniform: Tensor) -> Tensor:
    """A token for each sample by the distribution of its row, chosen by a number in [0, 1).

    First a block of tokens is chosen, then a token in it: so the cumulative sums stay short.
    """
    vocabulary = logits.shape[-1]
    size = math.isqrt(vocabulary - 1) + 1
    logits = F.pad(logits, (0, -vocabulary % size), value=-torch.inf)
    weights = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32)).unflatten(-1, (-1, size))
    block, rest = _choose(weights.sum(-1)[row], uniform)
    token, _ = _choose(weights[row, block], rest)
    return block * size + token


def _choose(weights: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Of each row [samples, n] an index, by its weight, and a number in [0, 1) that is uniform given the index."""
    cumulative = weights.cumsum(-1, dtype=torch.float64)
    threshold = uniform * cumulative[:, -1]
    index = (cumulative <= threshold[:, None]).sum(-1)
    upper, weight = cumulative.gather(1, index[:, None])[:, 0], weights.gather(1, index[:, None])[:, 0]
    return index, (1 - (upper - threshold) / weight).clamp(0, _BELOW_ONE)


def _collect(leaves: list[_Leaves], references: Sequence[Tensor]) -> Candidates:
    """Sort the samples by source; those that equal the reference count as draws of the reference."""
    ids = [[reference.cpu()] for reference in references]
    known = [reference.tolist() for reference in references]
    draws = [[0] for _ in references]
    for found in leaves:
        rows = found.ids.cpu()
        for source, row, tokens, count in zip(
            found.source.tolist(), rows, rows.tolist(), found.draws.tolist(), strict=True
        ):
            if tokens == known[source]:
                draws[source][0] += count
            else:
                ids[source].append(row)
                draws[source].append(count)
    return Candidates(ids, draws)
