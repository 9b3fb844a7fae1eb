"""Word dropout: how often, what is spared, and that only the sentence and its seed matter."""

import math

import pytest
import torch
from torch import Tensor

from hf_lrp.training.batching import collate
from hf_lrp.training.word_dropout import WordDropout, mixed, sentence_seeds

PAD, EOS, UNK = 0, 1, 2
SPARED = frozenset({PAD, EOS, UNK})
VOCABULARY = 50


def dropout(rate: float = 0.1, replacement: int | str = "random", **options) -> WordDropout:
    return WordDropout(rate, replacement, **({"vocabulary_size": VOCABULARY, "spared": SPARED} | options))


def random_sentences(lengths: list[int]) -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    return [[*torch.randint(3, VOCABULARY, (n - 1,), generator=generator).tolist(), EOS] for n in lengths]


def pad(sentences: list[list[int]], length: int, left: bool = False) -> tuple[Tensor, Tensor]:
    rows, masks = [], []
    for sentence in sentences:
        padding, ones = [PAD] * (length - len(sentence)), [1] * len(sentence)
        rows.append(padding + sentence if left else sentence + padding)
        masks.append(padding + ones if left else ones + padding)
    return torch.tensor(rows), torch.tensor(masks)


def seeds(examples: list[int], seed: int = 1, epoch: int = 0, side: str = "source") -> Tensor:
    return sentence_seeds(torch.tensor(examples), seed=seed, epoch=epoch, side=side)


def slow_mix(state: int, value: int) -> int:
    """One step of the chain of seeds, in Python's integers."""
    state = (state + 0x9E3779B97F4A7C15) % 2**64 ^ value
    for distance, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ state >> distance) * factor % 2**64
    return state ^ state >> 31


class TestRate:
    @pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
    def test_of_tokens_of_each_position(self, rate):
        batch, length = 20_000, 12
        ids = torch.full((batch, length), 7)
        out = dropout(rate, replacement=UNK)(ids, torch.ones_like(ids), seeds(list(range(batch))))
        for count in (out[:, 1:] == UNK).sum(0).tolist():
            assert abs(count - rate * batch) < 4.5 * math.sqrt(batch * rate * (1 - rate))

    def test_tokens_are_replaced_independently(self):
        batch = 40_000
        ids = torch.full((batch, 4), 7)
        out = dropout(0.5, replacement=UNK)(ids, torch.ones_like(ids), seeds(list(range(batch))))
        correlations = torch.corrcoef((out[:, 1:] == UNK).double().T) - torch.eye(3)
        assert correlations.abs().max() < 4.5 / math.sqrt(batch)

    def test_zero_changes_nothing(self):
        ids, mask = pad(random_sentences([30] * 50), 30)
        out = dropout(0.0)(ids, mask, seeds(list(range(50))))
        assert torch.equal(out, ids)
        assert out is not ids

    def test_one_replaces_all_that_is_not_spared(self):
        ids, mask = pad(random_sentences([5, 9]), 9)
        out = dropout(1.0, replacement=UNK)(ids, mask, seeds([0, 1]))
        assert out[0].tolist() == [ids[0, 0], UNK, UNK, UNK, EOS, PAD, PAD, PAD, PAD]
        assert out[1].tolist() == [ids[1, 0], *[UNK] * 7, EOS]

    def test_the_given_ids_are_not_changed(self):
        ids, mask = pad(random_sentences([20] * 10), 20)
        before = ids.clone()
        assert not torch.equal(dropout(0.5)(ids, mask, seeds(list(range(10)))), before)
        assert torch.equal(ids, before)


class TestReplacement:
    def test_random_tokens_are_uniform_over_ordinary_ones(self):
        batch, length = 4000, 101
        ids = torch.full((batch, length), 7)
        out = dropout(1.0)(ids, torch.ones_like(ids), seeds(list(range(batch))))[:, 1:]
        counts = torch.bincount(out.flatten(), minlength=VOCABULARY).double()
        assert counts[:3].sum() == 0
        ordinary, expected = counts[3:], batch * (length - 1) / (VOCABULARY - 3)
        chi_square = ((ordinary - expected) ** 2 / expected).sum()
        degrees = VOCABULARY - 4
        assert abs(chi_square - degrees) < 4 * math.sqrt(2 * degrees)

    def test_what_is_put_in_does_not_depend_on_the_rate(self):
        ids, mask = pad(random_sentences([40] * 20), 40)
        low, high = (dropout(rate)(ids, mask, seeds(list(range(20)))) for rate in (0.3, 0.7))
        changed = low != ids
        assert changed.sum() > 100
        assert torch.equal(low[changed], high[changed])

    def test_special_tokens_between_ordinary_ones_are_kept(self):
        ids = torch.tensor([[5, 6, UNK, 7, EOS, 8, EOS]])
        out = dropout(1.0, replacement=9)(ids, torch.ones_like(ids), seeds([0]))
        assert out.tolist() == [[5, 9, UNK, 9, EOS, 9, EOS]]

    def test_a_language_code_in_front_does_not_take_the_place_of_the_first_token(self):
        ids = torch.tensor([[49, 6, 7, EOS]])
        out = dropout(1.0, replacement=9, spared=SPARED | {49})(ids, torch.ones_like(ids), seeds([0]))
        assert out.tolist() == [[49, 6, 9, EOS]]


class TestRepeatability:
    LENGTHS = (4, 30, 17, 9, 22)

    def test_a_sentence_is_changed_alike_in_any_batch_and_with_any_padding(self):
        sentences = random_sentences(list(self.LENGTHS))
        together = dropout(0.5)(*pad(sentences, 30), seeds([10, 11, 12, 13, 14]))
        for order, length, left in (([4, 2, 0], 25, False), ([1], 64, False), ([3, 1, 2], 40, True)):
            part = dropout(0.5)(*pad([sentences[i] for i in order], length, left), seeds([10 + i for i in order]))
            for row, i in zip(part, order, strict=True):
                own = row[-self.LENGTHS[i] :] if left else row[: self.LENGTHS[i]]
                assert torch.equal(own, together[i, : self.LENGTHS[i]])

    def test_the_global_generator_is_neither_used_nor_changed(self):
        ids, mask = pad(random_sentences(list(self.LENGTHS)), 30)
        torch.manual_seed(0)
        state = torch.get_rng_state()
        first = dropout(0.5)(ids, mask, seeds(list(range(5))))
        assert torch.equal(torch.get_rng_state(), state)
        torch.manual_seed(1)
        assert torch.equal(dropout(0.5)(ids, mask, seeds(list(range(5)))), first)

    @pytest.mark.parametrize("change", [{"seed": 2}, {"epoch": 1}, {"side": "target"}, {"examples": [1]}])
    def test_seed_epoch_side_and_example_change_what_is_replaced(self, change):
        ids = torch.full((1, 2001), 7)
        settings = {"examples": [0], "seed": 1, "epoch": 0, "side": "source"}
        first, second = (
            dropout(0.5, UNK)(ids, torch.ones_like(ids), seeds(**options)) == UNK
            for options in (settings, settings | change)
        )
        agreeing = (first == second)[:, 1:].sum().item()
        assert abs(agreeing - 1000) < 4.5 * math.sqrt(500)

    def test_seeds_are_distinct(self):
        examples = torch.arange(100_000)
        several = [sentence_seeds(examples, seed=s, epoch=e, side="source") for s in (1, 2) for e in (0, 1)]
        assert torch.cat(several).unique().numel() == 400_000

    def test_seeds_are_those_of_exact_integers(self):
        examples = [0, 1, 30_000_000]
        expected = [slow_mix(slow_mix(slow_mix(slow_mix(0, 123), 2), 1), example) for example in examples]
        assert [value % 2**64 for value in seeds(examples, 123, 2, "target").tolist()] == expected

    def test_the_mixing_function_is_that_of_splitmix64(self):
        states = torch.tensor([0x9E3779B97F4A7C15 - 2**64])
        assert mixed(states).item() % 2**64 == 0xE220A8397B1DCDAF


class TestTargetSide:
    def test_decoder_inputs_change_and_labels_do_not(self):
        sentences = random_sentences([12, 30, 21])
        features = [{"input_ids": s, "labels": s, "example": i} for i, s in enumerate(sentences)]
        batch = collate(features, pad_token_id=PAD, decoder_start_token_id=PAD)
        labels = batch["labels"].clone()
        out = dropout(1.0, replacement=UNK)(batch["decoder_input_ids"], labels != -100, seeds([0, 1, 2]))
        assert torch.equal(batch["labels"], labels)
        for row, sentence in zip(out.tolist(), sentences, strict=True):
            inside = len(sentence) - 2
            assert row == [PAD, sentence[0], *[UNK] * inside, *[PAD] * (30 - len(sentence))]


class TestBadSettings:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"rate": -0.1}, "from 0 to 1, not -0.1"),
            ({"rate": 1.5}, "from 0 to 1, not 1.5"),
            ({"rate": math.nan}, "from 0 to 1"),
            ({"replacement": "unk"}, "an id or 'random', not 'unk'"),
            ({"replacement": VOCABULARY}, "50 is not in a vocabulary of 50"),
            ({"replacement": -1}, "-1 is not in a vocabulary"),
            ({"vocabulary_size": 3}, "there is none to put in"),
        ],
    )
    def test_message(self, options, message):
        with pytest.raises(ValueError, match=message):
            dropout(**options)
