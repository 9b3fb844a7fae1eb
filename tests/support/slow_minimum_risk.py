"""Minimum Risk Training as literally as can be: one sequence at a time, and the source encoded for each candidate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def slow_sentence_bleu(candidate: Sequence[int], reference: Sequence[int]) -> float:
    """Smoothed sentence BLEU by counting with loops."""
    product = 1.0
    for n in (1, 2, 3, 4):
        grams = [tuple(candidate[i : i + n]) for i in range(len(candidate) - n + 1)]
        available = [tuple(reference[i : i + n]) for i in range(len(reference) - n + 1)]
        matches = 0
        for gram in grams:
            if gram in available:
                available.remove(gram)
                matches += 1
        if n == 1:
            product *= matches / len(grams) if grams else 0.0
        else:
            product *= (matches + 1) / (len(grams) + 1)
    if product == 0.0:
        return 0.0
    penalty = 1.0 if len(candidate) >= len(reference) else math.exp(1 - len(reference) / len(candidate))
    return penalty * product**0.25


def slow_log_probability(model: Any, source: Tensor, candidate: Tensor) -> Tensor:
    """log P(candidate | source), token by token, for a source [S] without padding, which is never predicted."""
    decoder_input = torch.cat([torch.tensor([model.config.decoder_start_token_id]), candidate[:-1]])
    logits = model(input_ids=source[None], decoder_input_ids=decoder_input[None], use_cache=False).logits[0]
    total = torch.zeros((), dtype=logits.dtype)
    allowed = torch.arange(logits.shape[-1]) != model.config.pad_token_id
    logits = logits.masked_fill(~allowed, -torch.inf)
    for step, token in enumerate(candidate.tolist()):
        total = total + torch.log(torch.softmax(logits[step], dim=-1)[token])
    return total


def slow_minimum_risk(
    model: Any, batch: dict[str, Tensor], candidates: list[list[Tensor]], risks: list[list[float]], alpha: float
) -> Tensor:
    """Σ over sources of Σ_y P(y|x)^α Δ(y) / Σ_y P(y|x)^α."""
    loss = torch.zeros((), dtype=model.dtype)
    for number, source in enumerate(batch["input_ids"]):
        source = source[batch["attention_mask"][number].bool()]
        weights = [torch.exp(alpha * slow_log_probability(model, source, ids)) for ids in candidates[number]]
        weighted = [weight * risk for weight, risk in zip(weights, risks[number], strict=True)]
        loss = loss + torch.stack(weighted).sum() / torch.stack(weights).sum()
    return loss
