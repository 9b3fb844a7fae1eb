"""Erasure again, slowly: one plain call of the model for each token that is taken out, with its encoder."""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_lrp.methods.method import Question


def slow_erasure(question: Question, explained: Tensor, by: str = "mask") -> tuple[Tensor, Tensor]:
    """Falls of log-probability [T, S] and [T, D] of ids [T], token by token."""
    model, given = question.model, question.given[0]
    source = question.source.get("input_ids", torch.zeros(0, dtype=torch.long))
    steps = range(given.steps.start, given.steps.stop)
    before = _log_probability(model, source, given.ids, None, None)
    falls = torch.zeros(len(steps), len(source) + len(given.ids), dtype=model.dtype)
    for place in range(falls.shape[1]):
        ids, decoder = source.clone(), given.ids.clone()
        masks = torch.ones_like(source), torch.ones_like(given.ids)
        at = place - len(source)
        if at < 0:
            masks[0][place] = int(by == "replace")
            if by == "replace":
                ids[place] = question.unknown[0]
        else:
            decoder[at] = question.unknown[1]
            masks[1][at] = int(by == "replace" or at == 0)
        after = _log_probability(model, ids, decoder, *masks)
        for step, position in enumerate(steps):
            if at <= position:
                token = explained[step]
                falls[step, place] = before[position, token] - after[position, token]
    return falls[:, : len(source)], falls[:, len(source) :]


def _log_probability(
    model: PreTrainedModel, source: Tensor, ids: Tensor, mask: Tensor | None, decoder_mask: Tensor | None
) -> Tensor:
    """[D, V]"""
    row: dict[str, Any] = {"use_cache": False}
    if not model.config.is_encoder_decoder:
        row |= {"input_ids": ids[None], "attention_mask": None if decoder_mask is None else decoder_mask[None]}
        if model.config.model_type == "opt":  # it counts positions by the mask
            row["position_ids"] = torch.arange(len(ids))[None]
    else:
        row |= {"input_ids": source[None], "decoder_input_ids": ids[None]}
        if mask is not None and decoder_mask is not None:
            row |= {"attention_mask": mask[None], "decoder_attention_mask": decoder_mask[None]}
    with torch.no_grad():
        found: Tensor = model(**row).logits[0].log_softmax(-1)
    return found
