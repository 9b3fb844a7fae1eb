"""Whole words of a contrast: how probable all their pieces together are, beside the pieces at which they part."""

from __future__ import annotations

import torch
from torch import Tensor

from hf_lrp.explaining.call import Call, Case
from hf_lrp.results.contrasted import Contrasted


def contrasted_words(call: Call, source: dict[str, Tensor], case: Case) -> list[Contrasted]:
    """By step the words that are compared; a note says what of them is, and both words' probabilities.

    source: the encoder's input by name, without a batch dimension.
    """
    found = []
    for parting in case.partings:
        note = parting.note
        if note:
            prompt, step = case.prefix.prompt, parting.step
            ours, theirs = (_log_probability(call, source, prompt, ids, step) for ids in parting.ids)
            note += f" (probability of all pieces from there on: {_chance(ours)} against {_chance(theirs)})"
        found.append(Contrasted(*parting.words, note))
    return found


def _log_probability(call: Call, source: dict[str, Tensor], prompt: Tensor, ids: Tensor, first: int) -> float:
    """That the model writes ``ids[first:]`` after the prompt and ``ids[:first]``."""
    decoder = torch.cat([prompt, ids[:-1]]).to(call.model.device)[None]
    with torch.no_grad():
        if call.network is not None and call.network.encoder is None:
            output = call.model(input_ids=decoder, use_cache=False)
        else:
            inputs = {name: tensor[None] for name, tensor in source.items()}
            output = call.model(**inputs, decoder_input_ids=decoder, use_cache=False)
    logits = output.logits[0, len(prompt) - 1 + first :].cpu()
    return float(logits.double().log_softmax(-1).gather(1, ids[first:, None]).sum())


def _chance(log_probability: float) -> str:
    return f"{torch.tensor(log_probability, dtype=torch.float64).exp():.2g}"
