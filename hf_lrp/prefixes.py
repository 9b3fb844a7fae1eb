"""Where a prefix comes from when it is not the reference: the model itself, or an unrelated sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from hf_lrp.inputs import Vocabulary


def generate_targets(
    model: PreTrainedModel,
    sources: Sequence[Tensor],
    vocabulary: Vocabulary,
    batch_size: int,
    progress: bool,
    options: dict[str, Any],
) -> list[Tensor]:
    """What the model writes for each source [S]: ids [T] up to and including the end of the sentence."""
    if options.get("num_return_sequences", 1) != 1:
        raise ValueError("num_return_sequences must be 1: there is one explanation per source.")
    results: list[Tensor | None] = [None] * len(sources)
    by_length = sorted(range(len(sources)), key=lambda i: len(sources[i]), reverse=True)
    with tqdm(total=len(sources), desc="Generating", unit="sentence", disable=not progress) as bar:
        for start in range(0, len(by_length), batch_size):
            numbers = by_length[start : start + batch_size]
            batch = [sources[i] for i in numbers]
            for number, ids in zip(numbers, _generate_batch(model, batch, vocabulary, options), strict=True):
                results[number] = vocabulary.check(ids, "target", number)
            bar.update(len(numbers))
    return [ids for ids in results if ids is not None]


def _generate_batch(
    model: PreTrainedModel, batch: list[Tensor], vocabulary: Vocabulary, options: dict[str, Any]
) -> list[list[int]]:
    ids = pad_sequence(batch, batch_first=True, padding_value=vocabulary.pad or 0)
    mask = pad_sequence([torch.ones_like(row) for row in batch], batch_first=True)
    with torch.no_grad():
        output = cast(Any, model).generate(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            **_length_limit(model, ids.shape[1], vocabulary, options),
            **options,
            return_dict_in_generate=False,
        )
    return [_until_end(row.tolist(), model) for row in output]


def _length_limit(
    model: PreTrainedModel, source_length: int, vocabulary: Vocabulary, options: dict[str, Any]
) -> dict[str, int]:
    """A limit where neither the user nor the checkpoint has one: transformers' own would cut at 20 tokens."""
    config = model.generation_config
    chosen = ("max_length", "max_new_tokens", "generation_config")
    if any(name in options for name in chosen) or config.max_new_tokens or config.max_length not in (None, 20):
        return {}
    limit = 3 * source_length + 20
    return {"max_new_tokens": limit if vocabulary.limit is None else min(limit, vocabulary.limit - 1)}


def _until_end(ids: list[int], model: PreTrainedModel) -> list[int]:
    """Generated ids without the start token, up to the first end of sentence."""
    ends = model.generation_config.eos_token_id
    ends = set(ends) if isinstance(ends, (list, tuple)) else {ends}
    written = ids[1:]
    stop = next((i + 1 for i, token in enumerate(written) if token in ends), len(written))
    return written[:stop]


def shuffle_targets(targets: Sequence[Tensor], seed: int) -> list[Tensor]:
    """Each sentence gets another one's target, by one random cycle through all of them."""
    if len(targets) < 2:
        raise ValueError(
            "A random prefix is another sentence's target, and there is only one sentence. Pass more sentences with "
            "their targets, or unrelated target sentences as pool=[...]."
        )
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(targets), generator=generator).tolist()
    following = {number: order[(place + 1) % len(order)] for place, number in enumerate(order)}
    return [targets[_first_unequal(targets, number, following)] for number in range(len(targets))]


def _first_unequal(targets: Sequence[Tensor], number: int, following: dict[int, int]) -> int:
    """The next sentence along the cycle whose target is not the same."""
    other = following[number]
    while other != number and torch.equal(targets[other], targets[number]):
        other = following[other]
    if other == number:
        raise ValueError("All targets are equal, so none is an unrelated prefix. Pass other sentences as pool=[...].")
    return other


def draw_from_pool(pool: Sequence[Tensor], targets: Sequence[Tensor] | None, count: int, seed: int) -> list[Tensor]:
    """For each of ``count`` sentences a target from ``pool``, never its own."""
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    for number, place in enumerate(torch.randint(len(pool), (count,), generator=generator).tolist()):
        own = None if targets is None else targets[number]
        candidates = [*pool[place:], *pool[:place]]
        unrelated = next((other for other in candidates if own is None or not torch.equal(other, own)), None)
        if unrelated is None:
            raise ValueError(f"The pool holds nothing but the target of sentence {number}. Add unrelated sentences.")
        drawn.append(unrelated)
    return drawn
