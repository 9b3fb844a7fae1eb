"""Micro-batches: their budget, what changes between epochs, and that the number of processes changes nothing."""

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard, prepare_data_loader, skip_first_batches
from accelerate.state import PartialState
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from hf_lrp.training.batching import PADDED_FACTOR, TARGET_FACTOR, TokenBudgetBatchSampler, collate


def random_lengths(sentences: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Lengths as in a corpus: skewed, with targets of about the length of their sources."""
    generator = np.random.default_rng(seed)
    sources = np.clip(generator.lognormal(2.5, 0.6, sentences), 2, 60).astype(np.int32)
    targets = np.clip(sources * generator.normal(1.1, 0.2, sentences), 2, 80).astype(np.int32)
    return sources, targets


def build(sentences: int = 3000, tokens: int = 300, batches_per_update: int = 4, seed: int = 1):
    return TokenBudgetBatchSampler(
        *random_lengths(sentences), tokens=tokens, batches_per_update=batches_per_update, seed=seed
    )


def epoch_of(sampler: TokenBudgetBatchSampler, epoch: int) -> list[list[int]]:
    sampler.set_epoch(epoch)
    return list(sampler)


def updates_of(shards: list[list[list[int]]], batches_per_update: int) -> list[set[tuple[int, ...]]]:
    """The micro-batches of each update, given those of each process in their order."""
    accumulation = batches_per_update // len(shards)
    assert len({len(shard) for shard in shards}) == 1
    return [
        {tuple(batch) for shard in shards for batch in shard[start : start + accumulation]}
        for start in range(0, len(shards[0]), accumulation)
    ]


class TestMicroBatches:
    @pytest.mark.parametrize("epoch", [0, 1, 7])
    def test_every_sentence_is_in_every_epoch_once(self, epoch):
        batches = epoch_of(build(), epoch)
        assert sorted(number for batch in batches for number in batch) == list(range(3000))
        assert min(map(len, batches)) >= 1

    @given(
        lengths=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 75)), max_size=60),
        tokens=st.integers(50, 400),
        batches_per_update=st.integers(1, 3),
        epoch=st.integers(0, 3),
    )
    def test_budget_length_and_completeness_hold_for_any_lengths(self, lengths, tokens, batches_per_update, epoch):
        lengths += [(1, 1)] * 8  # enough that there is always something to halve
        sources, targets = np.array(lengths).T
        sampler = TokenBudgetBatchSampler(
            sources, targets, tokens=tokens, batches_per_update=batches_per_update, seed=5
        )
        batches = epoch_of(sampler, epoch)
        assert len(batches) == len(sampler)
        assert len(batches) % batches_per_update == 0
        assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
        for batch in batches:
            assert sources[batch].max() * len(batch) <= PADDED_FACTOR * tokens
            assert targets[batch].max() * len(batch) <= TARGET_FACTOR * tokens

    def test_micro_batches_are_nearly_full_and_have_little_padding(self):
        sources, targets = random_lengths(30_000)
        sampler = TokenBudgetBatchSampler(sources, targets, tokens=1000, batches_per_update=8, seed=1)
        padded = np.array([sources[batch].max() * len(batch) for batch in sampler])
        padded_targets = sum(targets[batch].max() * len(batch) for batch in sampler)
        assert padded.mean() > 0.95 * 1000
        assert sources.sum() > 0.95 * padded.sum()
        assert targets.sum() > 0.93 * padded_targets

    @pytest.mark.parametrize("tokens", [500, 2000])
    def test_updates_have_the_source_tokens_that_are_asked_for(self, tokens):
        sources, targets = random_lengths(30_000)
        sampler = TokenBudgetBatchSampler(sources, targets, tokens=tokens, batches_per_update=4, seed=1)
        real = np.array([sources[batch].sum() for batch in sampler])
        assert real.mean() == pytest.approx(tokens, rel=0.01)

    def test_the_number_is_a_multiple_of_the_micro_batches_per_update(self):
        numbers = {k: len(build(batches_per_update=k)) for k in (1, 2, 3, 5, 8, 64)}
        assert all(number % k == 0 for k, number in numbers.items())
        assert all(number - numbers[1] < k for k, number in numbers.items())

    def test_few_sentences_are_spread_over_one_update(self):
        sampler = TokenBudgetBatchSampler([5] * 7, [5] * 7, tokens=100, batches_per_update=4, seed=1)
        assert sorted(map(len, sampler)) == [1, 2, 2, 2]


class TestRandomness:
    def test_epochs_differ_in_order_and_composition_but_not_in_number(self):
        sampler = build()
        first, second = epoch_of(sampler, 0), epoch_of(sampler, 1)
        assert len(first) == len(second) == len(sampler)
        assert len({frozenset(batch) for batch in first} & {frozenset(batch) for batch in second}) < 0.2 * len(first)

    def test_an_epoch_is_a_function_of_seed_and_epoch_only(self):
        sampler = build()
        expected = epoch_of(sampler, 2)
        for epoch in (0, 5):
            epoch_of(sampler, epoch)
        np.random.seed(0)
        assert epoch_of(sampler, 2) == expected
        assert epoch_of(build(), 2) == expected
        assert epoch_of(build(seed=2), 2) != expected

    def test_lengths_do_not_come_sorted(self):
        sources, _ = random_lengths(3000)
        longest = [sources[batch].max() for batch in build()]
        assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.15


class TestProcesses:
    @pytest.mark.parametrize("even_batches", [False, True])
    @pytest.mark.parametrize("processes", [1, 2, 4])
    def test_updates_are_the_same_on_any_number_of_processes(self, processes, even_batches):
        sampler = build(batches_per_update=4)
        sampler.set_epoch(3)
        shards = [BatchSamplerShard(sampler, processes, i, even_batches=even_batches) for i in range(processes)]
        assert {len(shard) for shard in shards} == {len(sampler) // processes}
        batches = list(sampler)
        expected = [{tuple(batch) for batch in batches[i : i + 4]} for i in range(0, len(batches), 4)]
        assert updates_of([list(shard) for shard in shards], 4) == expected

    @pytest.mark.parametrize("processes", [1, 2])
    def test_skipping_the_first_batches_continues_where_an_epoch_was_left(self, processes):
        PartialState(cpu=True)
        sampler = build(batches_per_update=2)
        for index in range(processes):
            loader = prepare_data_loader(
                DataLoader(range(3000), batch_sampler=sampler, collate_fn=list),
                num_processes=processes,
                process_index=index,
                even_batches=False,
            )
            loader.set_epoch(4)
            sampler.set_epoch(4)
            complete = list(loader)
            assert len(complete) == len(loader) == len(sampler) // processes
            loader.set_epoch(4)
            sampler.set_epoch(4)
            skipping = skip_first_batches(loader, 10)
            assert len(skipping) == len(complete) - 10
            assert list(skipping) == complete[10:]


class TestBadInput:
    @pytest.mark.parametrize(
        ("sources", "targets", "message"),
        [
            ([5, 5, 5], [5, 5], "One source and one target length per sentence"),
            ([5, 0, 5], [5, 5, 5], "Sentence 1 has no source tokens"),
            ([5, 5, 5], [5, 5, 0], "Sentence 2 has no target tokens"),
            ([5, 101, 5], [5, 5, 5], r"1 sentences have more than 100 source tokens.*sentence 1 has 101"),
            ([5, 5, 5], [161, 170, 5], r"2 sentences have more than 160 target tokens.*sentence 1 has 170"),
            ([5], [5], "1 sentences are too few for 2"),
            ([], [], "0 sentences are too few for 2"),
            ([70, 70, 70], [5, 5, 5], "3 micro-batches of one sentence cannot make updates of 2"),
        ],
    )
    def test_what_cannot_be_batched(self, sources, targets, message):
        with pytest.raises(ValueError, match=message):
            TokenBudgetBatchSampler(sources, targets, tokens=100, batches_per_update=2, seed=1)

    def test_no_micro_batches_per_update(self):
        with pytest.raises(ValueError, match="at least 1, not 0"):
            build(batches_per_update=0)

    def test_a_sentence_that_fills_the_budget_is_a_micro_batch_of_its_own(self):
        sampler = TokenBudgetBatchSampler([99, 5, 5], [5, 5, 5], tokens=99, batches_per_update=1, seed=1)
        assert sorted(map(sorted, sampler)) == [[0], [1, 2]]


class TestCollate:
    FEATURES = (
        {"input_ids": [4, 5, 1], "labels": [7, 1], "example": 12},
        {"input_ids": [6, 1], "labels": [8, 9, 3, 1], "example": 5},
    )

    def test_values(self):
        batch = collate(self.FEATURES, pad_token_id=0, decoder_start_token_id=2)
        assert {name: tensor.tolist() for name, tensor in batch.items()} == {
            "input_ids": [[4, 5, 1], [6, 1, 0]],
            "attention_mask": [[1, 1, 1], [1, 1, 0]],
            "labels": [[7, 1, -100, -100], [8, 9, 3, 1]],
            "decoder_input_ids": [[2, 7, 0, 0], [2, 8, 9, 3]],
            "example": [12, 5],
        }
        assert {tensor.dtype for tensor in batch.values()} == {torch.int64}

    def test_arrays_and_tensors_give_the_same_as_lists(self):
        expected = collate(self.FEATURES, 0, 2)
        for convert in (np.array, torch.tensor):
            features = [{name: convert(value) for name, value in feature.items()} for feature in self.FEATURES]
            batch = collate(features, 0, 2)
            assert all(torch.equal(batch[name], expected[name]) for name in expected)
