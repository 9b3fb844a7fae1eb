"""Log-probabilities of targets where a token of the source is hidden, from batched forward passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from hf_lrp.links.weights import LOGIT_TOKENS, HeadReader, PairsRead, batches, target_log_probability
from hf_lrp.models.passes import takes


def log_probabilities(
    reader: HeadReader, pairs: PairsRead, wanted: Sequence[tuple[int, int | None]]
) -> Iterator[tuple[int, Tensor]]:
    """The place in ``wanted`` and the log-probabilities [T] of a pair's target tokens; pairs of like length together.

    Args:
        wanted: the number of a pair and the source token, from 0, that no attention sees; None: it sees all.
    """
    model, _ = reader.network()
    sizes = pairs.sizes
    for places in batches([sizes[number] for number, _ in wanted], LOGIT_TOKENS):
        chosen = [wanted[place] for place in places]
        prefixes = [pairs.prefixes[number] for number, _ in chosen]
        batch = pairs.reading.forward_batch(model, [number for number, _ in chosen], prefixes)
        inputs = {name: tensor.to(model.device) for name, tensor in batch.inputs.items()}
        for row, (_, hidden) in enumerate(chosen):
            if hidden is not None:
                inputs["attention_mask"][row, batch.places[row][hidden]] = 0
        if "input_ids" in inputs and "decoder_input_ids" not in inputs and takes(model, "position_ids"):
            shape = inputs["input_ids"].shape  # some models count positions by the mask
            inputs["position_ids"] = torch.arange(shape[1], device=model.device).expand(shape)
        with torch.inference_mode():
            logits = model(**inputs, use_cache=False).logits
        for row, place in enumerate(places):
            yield place, target_log_probability(logits[row], batch, row, prefixes[row])


def erasure(reader: HeadReader, pairs: PairsRead) -> list[Tensor]:
    """By pair and source token: how much the target's log-probability falls where the token is hidden, [S]."""
    wanted: list[tuple[int, int | None]] = []
    for number, item in enumerate(pairs.reading.sources.items):
        wanted += [(number, hidden) for hidden in (None, *range(len(item)))]
    total = torch.zeros(len(wanted))
    for place, found in log_probabilities(reader, pairs, wanted):
        total[place] = found.double().sum()
    falls, first = [], 0
    for item in pairs.reading.sources.items:
        falls.append(total[first] - total[first + 1 : first + 1 + len(item)])
        first += 1 + len(item)
    return falls
