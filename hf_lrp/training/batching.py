"""Micro-batches of sentences of about equal length, the same for any number of processes, and their tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from hf_lrp.models.configs import IGNORED_LABEL

PADDED_FACTOR = 1.2  # a micro-batch has up to this many times its budget of source tokens if padding counts,
TARGET_FACTOR = 1.6  # and up to this many times as many target tokens, padding included
_ATTEMPTS = 4  # to give micro-batches their budget on average


class TokenBudgetBatchSampler(Sampler[list[int]]):
    """Index lists of micro-batches, a function of the seed and the epoch only.

    Sentences are sorted by source length, then target length, both rounded up by at most an eighth, with ties in
    random order, and the sorted list is cut into micro-batches of `tokens` source tokens on average, padding not
    counted. Memory is bounded: with padding, a micro-batch has at most `PADDED_FACTOR * tokens` source tokens and
    `TARGET_FACTOR * tokens` target tokens. Since sorted lengths are the same in every epoch, so is the number of
    micro-batches, while their sentences and order change.

    An update is `batches_per_update` consecutive micro-batches. The largest micro-batches are halved until their
    number is a multiple of that: every sentence is in every epoch once, and no update is incomplete. On W processes
    (W divides `batches_per_update`), accelerate gives micro-batches i, i + W, ... to process i: updates stay the same.

    Args:
        source_lengths, target_lengths: tokens of each sentence, [sentences].
        tokens: source tokens of a micro-batch.
        batches_per_update: number of processes times accumulation steps.

    Raises:
        ValueError: a sentence alone exceeds the budget, or there are too few sentences for one update.
    """

    batch_size = None  # accelerate: it varies
    drop_last = True  # accelerate: nothing has to be filled up at the end of an epoch

    def __init__(
        self,
        source_lengths: Sequence[int] | np.ndarray,
        target_lengths: Sequence[int] | np.ndarray,
        *,
        tokens: int,
        batches_per_update: int,
        seed: int,
    ) -> None:
        sources, targets = np.asarray(source_lengths), np.asarray(target_lengths)
        _check(sources, targets, tokens, int(TARGET_FACTOR * tokens), batches_per_update)
        cells, shapes = _cells(sources, targets)
        counts = np.bincount(cells, minlength=len(shapes))
        means = np.bincount(cells, sources, minlength=len(shapes)) / np.maximum(counts, 1)
        batch_ends = _cut_into(int(sources.sum()) / tokens, counts, means, shapes, tokens)
        self._batch_ends = _halve_until_multiple(batch_ends, batches_per_update)
        self._cell_ends = np.cumsum(counts)[counts > 1]
        self._cell_starts = self._cell_ends - counts[counts > 1]
        self._sorted = np.argsort(cells, kind="stable").astype(np.uint32 if len(sources) < 2**32 else np.int64)
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration gives.

        In an epoch that is continued on several processes, Trainer does not reach this sampler below accelerate's two
        wrappers (one skips, one distributes): call this before the epoch in any case.
        """
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._batch_ends)

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng([self.seed, self.epoch])
        order = self._sorted.copy()
        for start, end in zip(self._cell_starts.tolist(), self._cell_ends.tolist(), strict=True):
            generator.shuffle(order[start:end])
        ends = self._batch_ends
        starts = np.concatenate([[0], ends[:-1]])
        for batch in generator.permutation(len(ends)):
            yield order[starts[batch] : ends[batch]].tolist()


def collate(
    features: Sequence[Mapping[str, Any]], pad_token_id: int, decoder_start_token_id: int
) -> dict[str, Tensor]:
    """Tensors of a micro-batch, padded on the right.

    Args:
        features: `input_ids` and `labels`, both with the end of the sentence, and the number `example`. Sentences that
            are only to be translated have neither labels nor numbers.

    Returns:
        `input_ids`, `attention_mask` [batch, source]; `labels` (-100 where there is none), `decoder_input_ids` (the
        start token, then all labels but the last) [batch, target]; `example` [batch]; all int64.
    """
    input_ids, attention_mask = _pad([feature["input_ids"] for feature in features], pad_token_id)
    tensors = {"input_ids": input_ids, "attention_mask": attention_mask.long()}
    if "labels" in features[0]:
        labels, _ = _pad([feature["labels"] for feature in features], IGNORED_LABEL)
        tensors |= {"labels": labels, "decoder_input_ids": shift_right(labels, pad_token_id, decoder_start_token_id)}
    if "example" in features[0]:
        tensors["example"] = torch.tensor([int(feature["example"]) for feature in features])
    return tensors


def shift_right(labels: Tensor, pad_token_id: int, decoder_start_token_id: int) -> Tensor:
    """The decoder's input, [batch, target]: the start token, then all labels but the last."""
    inputs = torch.full_like(labels, decoder_start_token_id)
    inputs[:, 1:] = labels[:, :-1]
    return inputs.masked_fill(labels == IGNORED_LABEL, pad_token_id)


def _pad(rows: Sequence[Sequence[int]], value: int) -> tuple[Tensor, Tensor]:
    """Rows of different lengths as one tensor, and where it holds their values; [rows, longest] each."""
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    padded = torch.full(mask.shape, value, dtype=torch.int64)
    padded[mask] = torch.from_numpy(np.concatenate(rows).astype(np.int64, copy=False))
    return padded, mask


def _check(sources: np.ndarray, targets: np.ndarray, tokens: int, target_tokens: int, batches_per_update: int) -> None:
    if sources.ndim != 1 or sources.shape != targets.shape:
        raise ValueError(f"One source and one target length per sentence, not {sources.shape} and {targets.shape}.")
    if batches_per_update < 1:
        raise ValueError(f"batches_per_update must be at least 1, not {batches_per_update}.")
    if len(sources) < batches_per_update:
        raise ValueError(f"{len(sources)} sentences are too few for {batches_per_update} micro-batches per update.")
    for side, lengths, limit in (("source", sources, tokens), ("target", targets, target_tokens)):
        if lengths.min() < 1:
            raise ValueError(f"Sentence {lengths.argmin()} has no {side} tokens: leave it out.")
        if lengths.max() > limit:
            raise ValueError(
                f"{np.count_nonzero(lengths > limit)} sentences have more than {limit} {side} tokens, the limit of a "
                f"micro-batch (sentence {lengths.argmax()} has {lengths.max()}): leave them out, or raise the budget."
            )


def _round_up(lengths: np.ndarray) -> np.ndarray:
    """Lengths rounded up to a multiple of an eighth of the power of two below them; exact up to 16."""
    step = np.maximum(2 ** np.floor(np.log2(lengths)).astype(np.int64) // 8, 1)
    return -(-lengths // step) * step


def _cells(sources: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of each sentence's cell, [sentences], and the longest source and target of each cell, [cells, 2].

    A cell has all sentences of the same rounded lengths. Cells are numbered by source length, then by target length,
    which alternately rises and falls, so that neighbours are of about the same lengths.
    """
    source_ranks, source_limits = _ranks(sources)
    target_ranks, target_limits = _ranks(targets)
    rows, columns = len(source_limits), len(target_limits)
    numbers = np.arange(rows * columns, dtype=np.min_scalar_type(rows * columns)).reshape(rows, columns)
    numbers[1::2] = numbers[1::2, ::-1].copy()
    limits = np.stack(np.meshgrid(source_limits, target_limits, indexing="ij"), axis=-1)
    shapes = np.empty((rows * columns, 2), dtype=np.int64)
    shapes[numbers] = limits
    return numbers[source_ranks, target_ranks], shapes


def _ranks(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rank of each rounded length among all possible ones, and these."""
    limits, ranks = np.unique(_round_up(np.arange(1, lengths.max() + 1)), return_inverse=True)
    return ranks[lengths - 1], limits


def _cut_into(number: float, counts: np.ndarray, means: np.ndarray, shapes: np.ndarray, tokens: int) -> np.ndarray:
    """Where micro-batches end, of which there are about so many.

    Some are full before they have their source tokens, because of their padding or of long targets: others get more.
    """
    limits = int(PADDED_FACTOR * tokens), int(TARGET_FACTOR * tokens)
    budget = float(tokens)
    for _ in range(_ATTEMPTS):
        ends = _cut(counts, means, shapes, budget, *limits)
        if len(ends) <= np.ceil(number):
            break
        budget = min(budget * len(ends) / number, limits[0])
    return ends


def _cut(
    counts: np.ndarray, means: np.ndarray, shapes: np.ndarray, budget: float, source_limit: int, target_limit: int
) -> np.ndarray:
    """Where micro-batches end if as many sentences as fit are taken, cell after cell.

    Of each cell, [cells]: `counts`, its sentences, and `means`, their source tokens on average; `shapes` [cells, 2].
    The budget is of these tokens; the limits count padding.
    """
    ends = []
    position = start = longest_source = longest_target = 0
    free = budget
    for cell in np.flatnonzero(counts).tolist():
        left, mean, (source, target) = int(counts[cell]), float(means[cell]), shapes[cell].tolist()
        while left:
            longest_source, longest_target = max(longest_source, source), max(longest_target, target)
            capacity = min(source_limit // longest_source, target_limit // longest_target) - (position - start)
            taken = min(left, capacity, round(free / mean))
            if taken <= 0 and position > start:
                ends.append(position)
                start, longest_source, longest_target, free = position, 0, 0, budget
                continue
            taken = max(taken, 1)
            position += taken
            left -= taken
            free -= taken * mean
    return np.array([*ends, position])


def _halve_until_multiple(ends: np.ndarray, divisor: int) -> np.ndarray:
    """Ends of micro-batches, with the largest ones halved until their number is a multiple of `divisor`."""
    while len(ends) % divisor:
        sizes = np.diff(ends, prepend=0)
        largest = int(sizes.argmax())
        if sizes[largest] == 1:
            raise ValueError(
                f"{len(ends)} micro-batches of one sentence cannot make updates of {divisor}: give a larger budget of "
                "tokens, or another number of micro-batches per update."
            )
        ends = np.insert(ends, largest, ends[largest] - sizes[largest] // 2)
    return ends
