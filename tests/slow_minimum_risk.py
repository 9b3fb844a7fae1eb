"""Minimum Risk Training as literally as can be: one sequence at a time, and the source encoded for each candidate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from hf_lrp.training.risks import negative_sentence_bleu


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
    """log P(candidate | source), token by token, for a source [S] without padding."""
    decoder_input = torch.cat([torch.tensor([model.config.decoder_start_token_id]), candidate[:-1]])
    logits = model(input_ids=source[None], decoder_input_ids=decoder_input[None]).logits[0]
    total = torch.zeros((), dtype=logits.dtype)
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


def naive_minimum_risk_step(model: Any, batch: dict[str, Tensor], number: int, alpha: float, seed: int) -> Tensor:
    """What one writes first: `generate` and the model on each source repeated for each candidate, all at once.

    Not deduplicated, so that its loss is another one; it serves to compare times.
    """
    config = model.config
    sources = batch["input_ids"].repeat_interleave(number, dim=0)
    mask = batch["attention_mask"].repeat_interleave(number, dim=0)
    references = [row[row != -100] for row in batch["labels"]]
    torch.manual_seed(seed)
    model.eval()
    sampled = model.generate(
        input_ids=sources,
        attention_mask=mask,
        do_sample=True,
        top_k=0,
        top_p=1.0,
        num_beams=1,
        use_cache=True,
        suppress_tokens=[config.pad_token_id],
        max_length=max(7 * len(row) // 5 + 4 for row in references),  # with the start token
    )
    model.train()
    rows: list[Tensor] = []
    for row, reference in zip(sampled[:, 1:].split(number), references, strict=True):
        rows += [_cut(ids, 7 * len(reference) // 5 + 3, config.eos_token_id) for ids in row] + [reference]
    labels = pad_sequence(rows, batch_first=True, padding_value=-100)
    logits = model(
        input_ids=batch["input_ids"].repeat_interleave(number + 1, dim=0),
        attention_mask=batch["attention_mask"].repeat_interleave(number + 1, dim=0),
        decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels),
    ).logits
    chosen = logits.log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    log_probabilities = (chosen * (labels != -100)).sum(-1).view(len(references), number + 1)
    risks = []
    for group in torch.arange(len(rows)).split(number + 1):
        ids = [[i for i in rows[k].tolist() if i != config.eos_token_id] for k in group.tolist()]
        risks.append([negative_sentence_bleu([candidate], ids[-1])[0] for candidate in ids])
    return ((alpha * log_probabilities).softmax(-1) * torch.tensor(risks)).sum()


def _cut(ids: Tensor, limit: int, end: int) -> Tensor:
    """Up to the first end, which is kept, or the limit."""
    ids = ids[:limit]
    found = (ids == end).nonzero()
    return ids[: int(found[0]) + 1] if len(found) else ids
