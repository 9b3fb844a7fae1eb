"""Minimum Risk Training: the loss and its gradients, memory, processes, and that it helps."""

import gc
import importlib
import itertools
import math
import weakref

import pytest
import torch
from minimum_risk_examples import (
    MARIAN_LIKE,
    TOY_SOURCE,
    all_sequences,
    exact_probabilities,
    make_batch,
    references_of,
    sample,
    toy_model,
)
from own_process import start_together
from slow_minimum_risk import slow_minimum_risk
from tiny_models import EOS, random_ids, tiny_model, tiny_variant
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import MarianConfig, MarianMTModel

from hf_lrp.training.minimum_risk import trees as candidate_trees
from hf_lrp.training.minimum_risk.loss import (
    MinimumRiskStatistics,
    minimum_risk_loss,
    minimum_risk_step,
)
from hf_lrp.training.minimum_risk.risks import negative_sentence_bleu

ALL = 10**9  # tokens: everything in one chunk


def make_candidates(batch, seed=0):
    """For each source the reference and a different number of others, some of them cut, and their risks."""
    candidates, risks = [], []
    for number, reference in enumerate(references_of(batch)):
        others = [random_ids(length, seed=seed + 10 * number + length) for length in range(1, 5 + number)]
        ended = [torch.cat([ids, torch.tensor([EOS])]) if len(ids) != 3 else ids for ids in others]
        candidates.append([reference, *ended])
        risks.append([-math.cos(k + number) for k in range(len(ended) + 1)])
    return candidates, risks


def gradients(model):
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def assert_same_gradients(first, second, tolerance):
    assert first.keys() == second.keys()
    largest = max(gradient.abs().max() for gradient in second.values())
    assert largest > 0
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=0, atol=tolerance * float(largest))


@pytest.mark.parametrize("alpha", [0.005, 1.0])
@pytest.mark.parametrize("name", [*MARIAN_LIKE, "marian two vocabularies", "bart uneven, untied"])
def test_loss_and_gradients_equal_the_formula(name, alpha):
    model = tiny_variant(name, dtype=torch.float64)
    batch = make_batch()
    candidates, risks = make_candidates(batch)
    expected = slow_minimum_risk(model, batch, candidates, risks, alpha)
    expected.backward()
    slow = gradients(model)
    output = minimum_risk_loss(model, batch, candidates, risks, alpha, chunk_tokens=ALL)
    output.loss.backward()
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-12)
    assert_same_gradients(gradients(model), slow, 1e-9)


@pytest.mark.parametrize("chunk_tokens", [1, 9, 30])
def test_chunks_do_not_change_gradients(chunk_tokens, monkeypatch):
    model = tiny_model(dtype=torch.float64, dropout=0.0)
    batch = make_batch()
    candidates, risks = make_candidates(batch)
    calls = count_calls(monkeypatch, "checkpoint")
    whole = minimum_risk_loss(model, batch, candidates, risks, 0.5, chunk_tokens=ALL)
    assert not calls  # nothing is computed twice if everything fits
    whole.loss.backward()
    expected = gradients(model)
    output = minimum_risk_loss(model, batch, candidates, risks, 0.5, chunk_tokens=chunk_tokens)
    output.loss.backward()
    assert len(calls) > 1
    torch.testing.assert_close(output.loss, whole.loss, rtol=0, atol=1e-12)
    assert_same_gradients(gradients(model), expected, 1e-6)


def count_calls(monkeypatch, name):
    calls, function = [], getattr(candidate_trees, name)

    def counted(*arguments, **options):
        calls.append(arguments)
        return function(*arguments, **options)

    monkeypatch.setattr(candidate_trees, name, counted)
    return calls


def test_recomputed_chunks_have_the_same_dropout(monkeypatch):
    model = tiny_model(dtype=torch.float64, dropout=0.3).train()
    batch = make_batch()
    candidates, risks = make_candidates(batch)

    def run():
        torch.manual_seed(3)
        minimum_risk_loss(model, batch, candidates, risks, 0.5, chunk_tokens=9).loss.backward()
        return gradients(model)

    recomputed = run()
    monkeypatch.setattr(candidate_trees, "checkpoint", lambda function, *args, use_reentrant: function(*args))
    assert_same_gradients(recomputed, run(), 1e-12)


class PeakMemory(TorchDispatchMode):
    """The most bytes that tensors made under it held at a time."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self.known = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._add(tensor.untyped_storage())
        return result

    def _add(self, storage):
        if storage.data_ptr() and storage.data_ptr() not in self.known:
            self.known.add(storage.data_ptr())
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._remove, storage.data_ptr(), storage.nbytes())

    def _remove(self, address, size):
        self.known.discard(address)
        self.now -= size


def peak_memory(number, chunk_tokens):
    model = tiny_model(vocab_size=500, decoder_vocab_size=500)
    batch = make_batch(((5, 8), (6, 8)))
    candidates = [[ids, *random_ids(number, 8, seed=k)] for k, ids in enumerate(references_of(batch))]
    risks = [[-0.5] * (number + 1) for _ in candidates]
    model.zero_grad()
    gc.collect()
    with PeakMemory() as memory:
        minimum_risk_loss(model, batch, candidates, risks, 0.5, chunk_tokens=chunk_tokens).loss.backward()
    return memory.peak


def test_memory_does_not_grow_with_the_number_of_candidates():
    few, many = peak_memory(20, chunk_tokens=80), peak_memory(80, chunk_tokens=80)
    at_once = peak_memory(80, chunk_tokens=ALL)
    assert many < 1.25 * few
    assert at_once > 4 * many


@pytest.mark.parametrize("alpha", [0.005, 1.0])
def test_risk_over_all_sequences_is_the_exact_expectation(alpha):
    model = toy_model()
    sequences = all_sequences(3)
    reference = torch.tensor([2, 1, 0])
    sequences = [reference, *(ids for ids in sequences if ids.tolist() != reference.tolist())]
    assert len(sequences) == 1 + 3 + 9 + 27
    stripped = [[i for i in ids.tolist() if i] for ids in sequences]
    risks = negative_sentence_bleu(stripped, stripped[0])
    batch = {"input_ids": TOY_SOURCE[None], "attention_mask": torch.ones(1, 4).long(), "labels": reference[None]}
    output = minimum_risk_loss(model, batch, [sequences], [risks], alpha, chunk_tokens=20)
    probabilities = exact_probabilities(model, sequences)
    assert probabilities.sum().item() == pytest.approx(1.0, abs=1e-12)
    weights = probabilities**alpha
    expected = (weights / weights.sum() * torch.tensor(risks, dtype=torch.float64)).sum()
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-12)


def test_naive_version_has_the_same_expectation():
    """That of the benchmark, so that it compares what does the same."""
    naive_minimum_risk_step = importlib.import_module("benchmark_training").naive_minimum_risk_step
    model = toy_model()
    reference = torch.tensor([3, 0])
    sequences = all_sequences(5)  # the limit: 1.4 · 2 + 3
    risks = negative_sentence_bleu([[i for i in ids.tolist() if i] for ids in sequences], [3])
    expected = (exact_probabilities(model, sequences) * torch.tensor(risks)).sum().item()
    batch = {"input_ids": TOY_SOURCE[None], "attention_mask": torch.ones(1, 4).long(), "labels": reference[None]}
    found = naive_minimum_risk_step(model, batch, 4000, alpha=0.0, seed=0).item()
    assert found == pytest.approx(expected, abs=0.02)
    output = minimum_risk_step(model.eval(), batch, candidates=4000, seed=0)
    assert output.statistics.mean_risk == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_called_once_with_a_graph_and_samples_are_drawn_without_dropout(training):
    model, batch = tiny_model(dropout=0.5).train(training), make_batch()
    calls, modes = [], []
    model.register_forward_pre_hook(lambda _, args, options: calls.append(options), with_kwargs=True)
    model.get_encoder().register_forward_hook(lambda *_: modes.append((model.training, torch.is_grad_enabled())))
    outputs = [minimum_risk_step(model, batch, candidates=10, chunk_tokens=50, seed=0) for _ in range(2)]
    assert outputs[0].statistics.mean_risk == outputs[1].statistics.mean_risk  # the same samples
    assert (outputs[0].loss != outputs[1].loss) == training  # scored with another dropout
    assert modes[: len(modes) // 2] == ([(True, True), (False, False)] if training else [(False, True)])
    outputs[0].loss.backward()
    assert all(parameter.grad is not None for parameter in model.get_encoder().layers.parameters())


def test_step_is_the_loss_of_its_samples_and_reports_them():
    model, batch = tiny_model(dtype=torch.float64, dropout=0.0).train(), make_batch()
    output = minimum_risk_step(model, batch, candidates=20, alpha=0.3, seed=4)
    found = sample(model, batch, 20, seed=4)
    stripped = [[[i for i in ids.tolist() if i != EOS] for ids in rows] for rows in found.ids]
    risks = [negative_sentence_bleu(rows, rows[0]) for rows in stripped]
    expected = slow_minimum_risk(model, batch, found.ids, risks, 0.3)
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-12)
    means = output.statistics.means()
    sampled = [
        [risk for risk, draws in zip(*row, strict=True) for _ in range(draws)]
        for row in zip(risks, found.draws, strict=True)
    ]
    assert output.statistics.sentences == 3
    assert means["expected_risk"] == pytest.approx(expected.item() / 3)
    assert means["mean_risk"] == pytest.approx(sum(sum(row) / 20 for row in sampled) / 3)
    assert means["best_risk"] == pytest.approx(sum(map(min, sampled)) / 3)
    assert means["distinct"] == sum(map(len, found.ids)) / 3
    assert 0 < means["entropy"] < math.log(21)
    assert all(means[f"{part}_seconds"] > 0 for part in ("sampling", "scoring", "risk"))


def test_entropy_of_the_distribution():
    model, batch = tiny_model(), make_batch()
    candidates, risks = make_candidates(batch)
    statistics = minimum_risk_loss(model, batch, candidates, risks, 0.0, chunk_tokens=ALL).statistics
    assert statistics.entropy == pytest.approx(sum(math.log(len(rows)) for rows in candidates), rel=1e-6)
    assert statistics.expected_risk == pytest.approx(sum(sum(row) / len(row) for row in risks), rel=1e-6)


def test_statistics_add_up():
    total = MinimumRiskStatistics(sentences=3, mean_risk=1.5) + MinimumRiskStatistics(sentences=1, mean_risk=0.5)
    assert total.means()["mean_risk"] == 0.5


def test_a_source_whose_samples_all_equal_the_reference_has_no_gradient():
    model, batch = tiny_model(), make_batch()
    candidates = [[ids] for ids in references_of(batch)]
    output = minimum_risk_loss(model, batch, candidates, [[-1.0]] * 3, 0.5, chunk_tokens=ALL)
    output.loss.backward()
    assert output.loss.item() == -3.0
    assert all(gradient.abs().max() == 0 for gradient in gradients(model).values())


def test_a_risk_must_return_one_value_per_candidate():
    with pytest.raises(ValueError, match="1 values for the .* candidates of source 0; it must return one per"):
        minimum_risk_step(tiny_model(), make_batch(), candidates=5, risk=lambda candidates, reference: [0.0], seed=0)


# Two processes

CHUNKS = (ALL, 40)


def make_distributed_case():
    model = tiny_model(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0).train()
    return model, [make_batch(seed=1), make_batch(((6, 3), (2, 5)), seed=2)]


def backward_micro_batch(model, batch, number, chunk_tokens, scale):
    (
        scale * minimum_risk_step(model, batch, candidates=12, alpha=0.5, chunk_tokens=chunk_tokens, seed=number).loss
    ).backward()


def run_process(rank, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    model, batches = make_distributed_case()
    parallel = DistributedDataParallel(model)
    for chunk_tokens in CHUNKS:
        # DDP averages over processes; the loss is divided by the sentences of the whole update
        backward_micro_batch(parallel, batches[rank], rank, chunk_tokens, 2 / 5)
        torch.save(gradients(model), f"{folder}/{rank}-{chunk_tokens}.pt")
    # Before the group: if DDP is the last to let go of it, torch joins gloo's thread while that waits for the GIL.
    del parallel
    distributed.destroy_process_group()


def test_two_processes_have_the_gradient_of_one(tmp_path):
    start_together(run_process, str(tmp_path))
    model, batches = make_distributed_case()
    for number, batch in enumerate(batches):
        backward_micro_batch(model, batch, number, ALL, 1 / 5)
    expected = gradients(model)
    for rank, chunk_tokens in itertools.product(range(2), CHUNKS):
        assert_same_gradients(torch.load(tmp_path / f"{rank}-{chunk_tokens}.pt"), expected, 1e-5)


# That it helps


def copy_batch(generator, sentences=8):
    ids = torch.randint(2, 14, (sentences, 5), generator=generator)
    ids = torch.cat([ids, torch.full((sentences, 1), EOS)], dim=1)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def copying_model():
    """A model that has half learned to copy."""
    torch.manual_seed(0)
    sizes = dict(vocab_size=15, d_model=32, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=16)
    layers = dict(encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4)
    tokens = dict(pad_token_id=14, eos_token_id=EOS, decoder_start_token_id=14)
    model = MarianMTModel(MarianConfig(**sizes, **layers, **tokens, dropout=0.0, init_std=0.1))
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        model(**copy_batch(generator, 32)).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    return model, generator


def mean_risk(model):
    batch = copy_batch(torch.Generator().manual_seed(99), 64)
    with torch.no_grad():
        return minimum_risk_step(model, batch, candidates=20, seed=7).statistics.means()["mean_risk"]


def test_eighty_updates_lower_the_risk_of_samples():
    model, generator = copying_model()
    before = mean_risk(model)
    assert -0.7 < before < -0.2
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(80):
        minimum_risk_step(model, copy_batch(generator), candidates=10, seed=step).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    assert mean_risk(model) < before - 0.3
