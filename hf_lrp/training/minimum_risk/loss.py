"""Minimum Risk Training (Shen et al. 2016, as in Voita et al. 2021): the expected risk over sampled candidates.

For a source x with distinct candidates y, the loss is  Σ_y P̃(y|x) Δ(y)  with  P̃(y|x) = P(y|x)^α / Σ_y' P(y'|x)^α.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple, cast

import torch
from accelerate.utils import extract_model_from_parallel
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from hf_lrp.models.configs import IGNORED_LABEL, require_end_tokens, require_start_token
from hf_lrp.training.batching import shift_right
from hf_lrp.training.minimum_risk.candidates import Candidates, evaluating, never_drawn, sample_candidates
from hf_lrp.training.minimum_risk.risks import Risk, negative_sentence_bleu
from hf_lrp.training.minimum_risk.trees import edge_log_probabilities, score_candidates


@dataclass(frozen=True)
class MinimumRiskStatistics:
    """Sums over sentences, which can be added over micro-batches and processes; seconds as seen by the CPU.

    ``mean_risk``: of all samples; ``best_risk``: of each source's best sample; the reference counts only if it was
    drawn. ``distinct``: number of candidates, with the reference; ``entropy`` of P̃ in
    nats. ``scoring_seconds`` holds the forward passes, not the backward pass.
    """

    sentences: float = 0.0
    expected_risk: float = 0.0
    mean_risk: float = 0.0
    best_risk: float = 0.0
    distinct: float = 0.0
    entropy: float = 0.0
    sampling_seconds: float = 0.0
    scoring_seconds: float = 0.0
    risk_seconds: float = 0.0

    def __add__(self, other: MinimumRiskStatistics) -> MinimumRiskStatistics:
        return MinimumRiskStatistics(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def means(self) -> dict[str, float]:
        """All but the number of sentences, per sentence."""
        values = asdict(self)
        sentences = max(values.pop("sentences"), 1.0)
        return {name: value / sentences for name, value in values.items()}


class MinimumRiskOutput(NamedTuple):
    """``expected_risks`` [sources], with gradients, and ``loss``, their sum."""

    loss: Tensor
    expected_risks: Tensor
    statistics: MinimumRiskStatistics


def minimum_risk_step(
    model: nn.Module,
    batch: Mapping[str, Tensor],
    *,
    candidates: int,
    seed: int,
    alpha: float = 0.005,
    risk: Risk = negative_sentence_bleu,
    chunk_tokens: int = 16_000,
) -> MinimumRiskOutput:
    """Sample so many ``candidates`` per source of a batch and return their expected risk.

    ``model`` may be wrapped for distributed training: the wrapper is called once, on sources and references; samples
    are scored from the encoder states of that call, without the wrapper but in the same graph, so that one backward
    pass has all gradients. In training mode, dropout is active in scoring, never in sampling: the samples depend on
    ``seed``, the model and the batch only. ``batch``: as for `minimum_risk_loss`.
    """
    clock = _Clock()
    plain = _unwrap(model)
    with clock("scoring"):
        encoded = _run_references(model, batch)
    with clock("sampling"):
        drawn = sample_candidates(
            plain,
            _states_without_dropout(plain, batch) if plain.training else encoded.states.detach(),
            batch["attention_mask"],
            [row[row != IGNORED_LABEL] for row in batch["labels"].cpu()],
            candidates,
            seed=seed,
            max_rows=chunk_tokens,
        )
    with clock("risk"):
        risks = _risks(risk, drawn.ids, require_end_tokens(plain))
    with clock("scoring"):
        expected, statistics = _expected_risk(plain, encoded, drawn, risks, alpha, chunk_tokens)
    return MinimumRiskOutput(expected.sum(), expected, statistics + MinimumRiskStatistics(**clock.seconds))


def minimum_risk_loss(
    model: nn.Module,
    batch: Mapping[str, Tensor],
    candidates: Sequence[Sequence[Tensor]],
    risks: Sequence[Sequence[float]],
    alpha: float,
    *,
    chunk_tokens: int,
) -> MinimumRiskOutput:
    """The expected risk of given candidates, of which each source's first is the reference.

    ``batch``: ``input_ids`` and ``attention_mask`` [sources, S], ``labels`` [sources, T] with -100 as padding.
    ``candidates``: for each source distinct token ids [T], scored as they are, with the end-of-sentence token if they
    have one. ``chunk_tokens`` bounds the memory and does not change gradients: see `score_candidates`.
    """
    clock = _Clock()
    drawn = Candidates([list(ids) for ids in candidates], [[1] * len(ids) for ids in candidates])
    with clock("scoring"):
        encoded = _run_references(model, batch)
        expected, statistics = _expected_risk(_unwrap(model), encoded, drawn, risks, alpha, chunk_tokens)
    return MinimumRiskOutput(expected.sum(), expected, statistics + MinimumRiskStatistics(**clock.seconds))


class _Clock:
    """Adds up seconds by name, under the names of `MinimumRiskStatistics`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        key = f"{name}_seconds"
        self.seconds[key] = self.seconds.get(key, 0.0) + time.perf_counter() - start


def _unwrap(model: nn.Module) -> PreTrainedModel:
    return cast(PreTrainedModel, extract_model_from_parallel(model, keep_torch_compile=False))


def _states_without_dropout(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> Tensor:
    """Encoder states [sources, S, d] to sample from; through the model itself, in whatever precision it runs."""
    start = batch["input_ids"].new_full((len(batch["input_ids"]), 1), require_start_token(model))
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad(), evaluating(model):
        return cast(Any, model)(**inputs, decoder_input_ids=start, use_cache=False).encoder_last_hidden_state


class _Encoded(NamedTuple):
    """Outputs of the one call of the model: log-probabilities of the references [sources], and ``states``
    [sources, S, d] of the encoder with their mask [sources, S]."""

    log_probabilities: Tensor
    states: Tensor
    mask: Tensor


def _run_references(model: nn.Module, batch: Mapping[str, Tensor]) -> _Encoded:
    plain, labels = _unwrap(model), batch["labels"]
    output = model(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        decoder_input_ids=shift_right(labels, plain.config.pad_token_id or 0, require_start_token(plain)),
        use_cache=False,
    )
    row, step = (labels != IGNORED_LABEL).nonzero(as_tuple=True)
    place = row * labels.shape[1] + step
    excluded = never_drawn(plain)
    found = edge_log_probabilities(output.logits.flatten(0, 1), place, labels[row, step], excluded)
    log_probabilities = found.new_zeros(len(labels)).index_add(0, row, found)
    return _Encoded(log_probabilities, output.encoder_last_hidden_state, batch["attention_mask"])


def _risks(risk: Risk, candidates: Sequence[Sequence[Tensor]], ends: Sequence[int]) -> list[list[float]]:
    """The risk of each source's candidates, given the first of them as the reference."""
    values = []
    for number, rows in enumerate(candidates):
        ids = [_without_end(row.tolist(), ends) for row in rows]
        values.append([float(value) for value in risk(ids, ids[0])])
        if len(values[-1]) != len(ids):
            raise ValueError(
                f"The risk returned {len(values[-1])} values for the {len(ids)} candidates of source {number}; it "
                "must return one per candidate."
            )
    return values


def _without_end(ids: list[int], ends: Sequence[int]) -> list[int]:
    return ids[:-1] if ids and ids[-1] in ends else ids


def _expected_risk(
    model: PreTrainedModel,
    encoded: _Encoded,
    candidates: Candidates,
    risks: Sequence[Sequence[float]],
    alpha: float,
    chunk_tokens: int,
) -> tuple[Tensor, MinimumRiskStatistics]:
    """The risk of each sentence, [sources], and all statistics but the seconds."""
    others = score_candidates(model, encoded.states, encoded.mask, candidates.ids, chunk_tokens=chunk_tokens)
    sharpened = torch.full((len(risks), max(map(len, risks))), -torch.inf).to(encoded.log_probabilities)
    sharpened[:, 0] = alpha * encoded.log_probabilities
    distribution = sharpened.index_put(others[1:], alpha * others.log_probabilities).softmax(-1)  # P̃
    padded = pad_sequence([torch.tensor(row, dtype=torch.float64) for row in risks], batch_first=True)
    expected = (distribution * padded.to(distribution)).sum(-1)
    drawn = [
        [(risk, n) for risk, n in zip(*pair, strict=True) if n] for pair in zip(risks, candidates.draws, strict=True)
    ]
    statistics = MinimumRiskStatistics(
        sentences=len(risks),
        expected_risk=expected.sum().item(),
        mean_risk=sum(sum(risk * n for risk, n in row) / sum(n for _, n in row) for row in drawn),
        best_risk=sum(min(risk for risk, _ in row) for row in drawn),
        distinct=sum(map(len, risks)),
        entropy=torch.special.entr(distribution.detach()).sum().item(),
    )
    return expected, statistics
