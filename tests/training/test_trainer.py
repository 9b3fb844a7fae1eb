"""Training: the same result however an update is split, spread over processes or interrupted."""

import json
import signal
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from own_process import exit_code, start_together
from safetensors.torch import load_file
from tiny_models import tiny_model
from torch import Tensor
from torch.distributed import TCPStore
from torch.nn import functional as F
from training_script import build_trainer, toy_dataset, train, train_together, train_until
from transformers import Trainer, TrainerCallback

from hf_lrp.models.checkpoints import last_whole_checkpoint
from hf_lrp.results.prefix_types import PREFIXES
from hf_lrp.training.arguments import TranslationTrainingArguments
from hf_lrp.training.batching import collate
from hf_lrp.training.minimum_risk.trainer import MinimumRiskTrainer
from hf_lrp.training.monitoring import ContributionCallback
from hf_lrp.training.sharding import require_whole_parameters

MRT = {"minimum_risk": True, "candidates": 6, "alpha": 0.5, "learning_rate": 0.5}


def weights(model: Any) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(
            actual[name], tensor, rtol=0, atol=tolerance, msg=lambda text, n=name: f"{n}: {text}"
        )


def written(output: Path) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The final weights and the losses of a training."""
    return load_file(output / "final" / "model.safetensors"), json.loads((output / "losses.json").read_text())


def whole_corpus_loss(model: Any, smoothing: float) -> Tensor:
    batch = collate(toy_dataset().to_list(), 39, 39)
    logits = model(**{n: batch[n] for n in ("input_ids", "attention_mask", "decoder_input_ids")}).logits
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), label_smoothing=smoothing)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_an_update_has_the_gradient_of_one_large_batch(tmp_path: Path, smoothing: float) -> None:
    # the whole corpus is one update
    trainer = build_trainer(
        tmp_path, max_steps=1, source_tokens=480, device_tokens=20, label_smoothing_factor=smoothing
    )
    assert len(trainer.get_train_dataloader()) == trainer.args.gradient_accumulation_steps == 24
    expected = tiny_model(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
    loss = whole_corpus_loss(expected, smoothing)
    loss.backward()
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(loss.item(), rel=1e-5)
    for parameter, before in zip(trainer.model.parameters(), expected.parameters(), strict=True):
        change = torch.zeros(()) if before.grad is None else 0.1 * before.grad  # positions do not learn
        torch.testing.assert_close(parameter, before - change, rtol=0, atol=1e-6)


# three batches for two processes: evaluation gathers batch by batch, and would wait for ever for a fourth
EVALUATION = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 3}


STREAM = {"stream": True, "stream_buffer": 20}  # the toy corpus is two buffers of 20 and 28 pairs


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(EVALUATION, id="mle"),
        pytest.param(MRT, id="mrt", marks=pytest.mark.slow),
        pytest.param(STREAM, id="stream", marks=pytest.mark.slow),
    ],
)
def test_the_number_of_processes_does_not_matter(tmp_path: Path, settings: dict[str, Any]) -> None:
    trainer = build_trainer(tmp_path / "one", max_steps=3, **settings)
    before = weights(trainer.model)
    trainer.train()
    assert max(float((trainer.model.state_dict()[n] - w).abs().max()) for n, w in before.items()) > 1e-3
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    start_together(train_together, 2, store.port, tmp_path / "two", {"max_steps": 3, **settings})
    two, losses = written(tmp_path / "two")
    one = {name: tensor for name, tensor in weights(trainer.model).items() if name in two}
    assert_same(two, one)
    expected = {str(log["step"]): log["loss"] for log in trainer.state.log_history if "loss" in log}
    assert losses == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"dropout": 0.3, "source_word_dropout": 0.2, "target_word_dropout": 0.2}, id="mle"),
        pytest.param(MRT | {"dropout": 0.1}, id="mrt", marks=pytest.mark.slow),
        pytest.param(STREAM | {"dropout": 0.3, "target_word_dropout": 0.2}, id="stream", marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_continues_as_if_nothing_had_happened(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Killed once hard while it trains; the second start ends with the same losses and weights."""
    settings = {"max_steps": 12, "save_strategy": "steps", "save_steps": 2, "learning_rate": 0.05} | settings
    train(tmp_path / "whole", settings)
    assert exit_code(train_until, "*/checkpoint-6", tmp_path / "killed", settings) == -signal.SIGKILL
    assert last_whole_checkpoint(tmp_path / "killed") == tmp_path / "killed" / "checkpoint-4"
    train(tmp_path / "killed", settings)
    (whole, first), (continued, second) = written(tmp_path / "whole"), written(tmp_path / "killed")
    assert_same(continued, whole, 1e-7)
    assert second == first


def test_an_unfinished_checkpoint_is_passed_over(tmp_path: Path) -> None:
    assert last_whole_checkpoint(tmp_path) is None
    trainer = build_trainer(tmp_path, max_steps=2, save_strategy="steps", save_steps=1)
    trainer.train()
    assert last_whole_checkpoint(tmp_path) == tmp_path / "checkpoint-2"
    (tmp_path / "checkpoint-2" / "incomplete").touch()
    assert last_whole_checkpoint(tmp_path) == tmp_path / "checkpoint-1"


def test_checkpoints_at_steps_of_ones_own(tmp_path: Path) -> None:
    build_trainer(tmp_path, max_steps=7, save_strategy="steps", save_steps=5, save_also=[1, 2, 4]).train()
    steps = sorted(int(folder.name.rpartition("-")[2]) for folder in tmp_path.glob("checkpoint-*"))
    assert steps == [1, 2, 4, 5, 7]


def test_word_dropout_changes_inputs_in_training_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = build_trainer(tmp_path / "plain").evaluate()["eval_loss"]
    trainer = build_trainer(tmp_path, source_word_dropout=0.9, target_word_dropout=0.9, max_steps=1)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(plain, abs=1e-6)
    seen: list[dict[str, Tensor]] = []
    forward = trainer.model.forward

    def noted(**inputs: Any) -> Any:
        seen.append(inputs)
        return forward(**inputs)

    monkeypatch.setattr(trainer.model, "forward", noted)
    trainer.train()
    batches = list(trainer.get_train_dataloader())[: len(seen)]
    for name in ("input_ids", "decoder_input_ids"):
        changed = [bool((batch[name] != inputs[name]).any()) for batch, inputs in zip(batches, seen, strict=True)]
        assert any(changed), name
        for batch, inputs in zip(batches, seen, strict=True):
            special = torch.isin(batch[name], torch.tensor([0, 1, 39]))
            assert torch.equal(batch[name][special], inputs[name][special])


def test_evaluation_is_cross_entropy_per_token(tmp_path: Path) -> None:
    trainer = build_trainer(tmp_path, per_device_eval_batch_size=8)
    batch = collate(toy_dataset(8, seed=1).to_list(), 39, 39)
    with torch.no_grad():
        logits = trainer.model(**{n: batch[n] for n in ("input_ids", "attention_mask", "decoder_input_ids")}).logits
    expected = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten()).item()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)


def test_the_schedule_of_the_paper(tmp_path: Path) -> None:
    trainer = build_trainer(tmp_path, schedule_scale=4.0, warmup_steps=3, optim="adamw_torch", max_steps=5)
    trainer.train()
    rates = [log["learning_rate"] for log in trainer.state.log_history if "learning_rate" in log]
    assert rates == pytest.approx([4 * 16**-0.5 * min(s**-0.5, s * 3**-1.5) for s in range(1, 6)], rel=1e-6)
    group = trainer.optimizer.param_groups[0]
    assert (group["betas"], group["eps"]) == ((0.9, 0.98), 1e-9)


def test_minimum_risk_reports_what_it_sees(tmp_path: Path) -> None:
    trainer = build_trainer(tmp_path, **MRT)
    trainer.train()
    log = trainer.state.log_history[0]
    assert log["loss"] == pytest.approx(log["expected_risk"], abs=1e-5)
    assert -1 <= log["best_risk"] <= log["mean_risk"] <= 0
    assert 1 <= log["distinct"] <= 7 and log["entropy"] >= 0


def test_a_risk_of_ones_own(tmp_path: Path) -> None:
    trainer = build_trainer(tmp_path, **MRT)
    own = MinimumRiskTrainer(
        trainer.model,
        trainer.args,
        train_dataset=toy_dataset(),
        risk=lambda candidates, reference: [2.0 for _ in candidates],
    )
    own.train()
    assert own.state.log_history[0]["loss"] == pytest.approx(2.0, abs=1e-5)


def test_contributions_are_logged_and_change_nothing(tmp_path: Path) -> None:
    plain = build_trainer(tmp_path / "plain", dropout=0.3, max_steps=4)
    plain.train()
    reported: list[dict[str, float]] = []

    class Integration(TrainerCallback):
        """As those of TensorBoard and W&B, which come before the user's callbacks."""

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
            reported.append({"step": state.global_step, **logs})

    trainer = build_trainer(tmp_path / "watched", callbacks=[Integration()], dropout=0.3, max_steps=4)
    sources = ["the cat sees the dog", "she is not in the house", "they eats a big street"]
    trainer.add_callback(ContributionCallback(trainer, sources, sources, every=2))
    trainer.train()
    assert_same(weights(trainer.model), weights(plain.model), 0.0)
    lines = [json.loads(line) for line in (tmp_path / "watched" / "contributions.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 2, 4]
    for prefix in ("reference", "random"):
        assert 0 < lines[0][f"{prefix}/source_total"] < 1
        assert lines[0][f"{prefix}/source_entropy"] > 0
    logged = [log for log in trainer.state.log_history if "contributions/reference/source_total" in log]
    assert [log["step"] for log in logged] == [0, 2, 4]
    names = {name for name in lines[0] if "/" in name}
    assert names == {f"{p}/{q}" for p in PREFIXES for q in ("source_total", "source_entropy", "target_entropy")}
    seen = {log["step"]: log for log in reported if f"contributions/{PREFIXES[0]}/source_total" in log}
    assert list(seen) == [0, 2, 4]
    for line in lines:
        assert {name: seen[line["step"]][f"contributions/{name}"] for name in names} == {n: line[n] for n in names}
    assert trainer.model.training


def test_contributions_without_source_tokens_have_no_source_entropy(tmp_path: Path) -> None:
    trainer = build_trainer(tmp_path, max_steps=1)
    sources = ["the cat sees the dog", "she is not in the house"]
    for name, source_tokens in (("with", True), ("without", False)):
        callback = ContributionCallback(
            trainer, sources, sources, prefixes=["reference"], path=tmp_path / name, source_tokens=source_tokens
        )
        trainer.add_callback(callback)
    trainer.train()
    whole, alone = (json.loads((tmp_path / name).read_text().splitlines()[0]) for name in ("with", "without"))
    assert whole.pop("reference/source_entropy") > 0
    assert alone == pytest.approx(whole, abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (MRT | {"risk": "ter"}, "risk must be one of"),
        ({"source_word_dropout": 1.0}, "source_word_dropout must be at least 0 and below 1"),
        ({"device_tokens": 0}, "device_tokens .* must be positive"),
        ({"device_tokens": 90}, "at most source_tokens"),
        ({"remove_unused_columns": True}, "examples carry their number"),
        (
            {"word_dropout_token": "<mask>", "source_word_dropout": 0.1},
            "'<mask>' is not in the tokenizer's vocabulary",
        ),
    ],
    ids=str,
)
def test_bad_settings(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_trainer(tmp_path, **settings)


def test_processes_that_cannot_share_an_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TranslationTrainingArguments, "world_size", 3)
    with pytest.raises(ValueError, match=r"An update has 4 micro-batches .* which 3 processes cannot share equally"):
        TranslationTrainingArguments(output_dir=str(tmp_path), source_tokens=80, device_tokens=20, use_cpu=True)


def test_a_model_in_parts_is_not_sampled_from_nor_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create = Trainer.create_accelerator_and_postprocess

    def create_for_fsdp(self: Trainer) -> None:
        create(self)
        self.is_fsdp_enabled = True

    monkeypatch.setattr(Trainer, "create_accelerator_and_postprocess", create_for_fsdp)
    trainer = build_trainer(tmp_path)  # likelihood is fine
    with pytest.raises(ValueError, match="Minimum risk training needs the whole model .* FSDP divides it"):
        build_trainer(tmp_path, **MRT)
    with pytest.raises(ValueError, match="contributions while training needs the whole model .* FSDP divides it"):
        ContributionCallback(trainer, ["a", "b"], ["a", "b"])


@pytest.mark.parametrize(("stage", "whole"), [(1, True), (2, True), (3, False)])
def test_stages_of_deepspeed(stage: int, whole: bool) -> None:
    state = SimpleNamespace(deepspeed_plugin=SimpleNamespace(zero_stage=stage))
    trainer: Any = SimpleNamespace(is_deepspeed_enabled=True, accelerator=SimpleNamespace(state=state))
    with nullcontext() if whole else pytest.raises(ValueError, match="DeepSpeed ZeRO-3 divides it among them"):
        assert require_whole_parameters(trainer, "This") is None
