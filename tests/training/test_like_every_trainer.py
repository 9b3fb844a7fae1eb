"""What people do with `Seq2SeqTrainer` works with ours: arguments, data sets, precision, adapters, metrics."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, DatasetDict
from peft import LoraConfig, get_peft_model
from tiny_models import tiny_model
from tiny_tokenizer import WORDS, tiny_tokenizer
from torch.utils.data import Dataset as TorchDataset
from training_script import build_trainer, toy_dataset
from transformers import DataCollatorForSeq2Seq, EarlyStoppingCallback, EvalPrediction

from hf_lrp import explain
from hf_lrp.models.checkpoints import whole_checkpoints
from hf_lrp.training import (
    ContributionCallback,
    MinimumRiskTrainer,
    MinimumRiskTrainingArguments,
    TranslationTrainingArguments,
)

MRT = {"minimum_risk": True, "candidates": 4, "alpha": 0.5}
EVERY = {"eval_strategy": "steps", "eval_steps": 2}
SENTENCES = ["the cat sees the dog", "she is not in the house"]


def losses(trainer: Any) -> dict[int, float]:
    return {log["step"]: log["loss"] for log in trainer.state.log_history if "loss" in log}


def trained(output: Path, **settings: Any) -> dict[int, float]:
    trainer = build_trainer(output, **settings)
    trainer.train()
    return losses(trainer)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """Losses of the plain run."""
    return trained(tmp_path_factory.mktemp("plain"))


# Evaluation


def test_translations_are_scored_while_training(tmp_path: Path) -> None:
    trainer = build_trainer(tmp_path, predict_with_generate=True, **EVERY)
    trainer.train()
    logs = [log for log in trainer.state.log_history if "eval_loss" in log]
    assert len(logs) == 2 and all(0 <= log[name] <= 100 for log in logs for name in ("eval_bleu", "eval_chrf"))
    plain = build_trainer(tmp_path / "plain", options={"model": trainer.model}).evaluate()["eval_loss"]
    assert logs[-1]["eval_loss"] == pytest.approx(plain, rel=1e-6)  # whether sentences are translated or not
    assert trainer.predict(toy_dataset(5)).predictions.shape[0] == 5
    unlabelled = trainer.predict(toy_dataset(5).select_columns("input_ids"))
    assert unlabelled.predictions.shape[0] == 5 and unlabelled.label_ids is None


def test_own_metrics(tmp_path: Path) -> None:
    seen: list[EvalPrediction] = []

    def count(prediction: EvalPrediction) -> dict[str, float]:
        seen.append(prediction)
        return {"sentences": len(prediction.predictions)}

    trainer = build_trainer(tmp_path, predict_with_generate=True, options={"compute_metrics": count})
    assert trainer.evaluate()["eval_sentences"] == 8
    assert seen[0].predictions.shape[0] == seen[0].label_ids.shape[0] == 8


@pytest.mark.parametrize("settings", [{}, MRT], ids=["mle", "mrt"])
def test_evaluation_does_not_depend_on_the_batch_size(tmp_path: Path, settings: dict[str, Any]) -> None:
    found = [build_trainer(tmp_path, per_device_eval_batch_size=k, **settings).evaluate() for k in (1, 3, 8)]
    assert [each["eval_loss"] for each in found] == pytest.approx([found[-1]["eval_loss"]] * 3, rel=1e-6)


def test_the_best_model_by_held_out_risk(tmp_path: Path) -> None:
    best = {"load_best_model_at_end": True, "metric_for_best_model": "expected_risk", "save_total_limit": 1}
    steps = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
    trainer = build_trainer(tmp_path, **MRT, **best, **steps, callbacks=[EarlyStoppingCallback(2)])
    trainer.train()
    risks = {log["step"]: log["eval_expected_risk"] for log in trainer.state.log_history if "eval_loss" in log}
    assert trainer.args.greater_is_better is False
    assert trainer.state.best_metric == min(risks.values())
    assert trainer.state.best_model_checkpoint.endswith(f"checkpoint-{min(risks, key=lambda step: risks[step])}")


# Arguments of the trainer


def test_arguments_of_the_trainer(tmp_path: Path, expected: dict[int, float]) -> None:
    plain = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    init = {"model": None, "model_init": lambda: tiny_model(**plain)}
    assert trained(tmp_path / "init", options=init) == expected
    model = tiny_model(**plain)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    assert trained(tmp_path / "own", options={"model": model, "optimizers": (optimizer, schedule)}) == expected
    collator = DataCollatorForSeq2Seq(tiny_tokenizer())
    assert trained(tmp_path / "collator", options={"data_collator": collator}) == pytest.approx(expected, abs=1e-6)
    assert trained(tmp_path / "saving", gradient_checkpointing=True) == pytest.approx(expected, abs=1e-6)

    def summed(outputs: Any, labels: Any, num_items_in_batch: Any) -> Any:
        return torch.nn.functional.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten(), reduction="sum") / (
            num_items_in_batch
        )

    own = trained(tmp_path / "loss", options={"compute_loss_func": summed})
    assert own == pytest.approx(trained(tmp_path / "smooth", label_smoothing_factor=0.0), abs=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the default backend compiles with g++")
@pytest.mark.parametrize("settings", [{}, MRT], ids=["mle", "mrt"])
def test_compiled_models_have_the_same_losses(tmp_path: Path, settings: dict[str, Any]) -> None:
    plain = trained(tmp_path / "plain", max_steps=2, **settings)
    compiled = trained(tmp_path / "compiled", max_steps=2, torch_compile=True, **settings)
    assert compiled == pytest.approx(plain, abs=1e-5)


def test_a_loss_outside_of_training(tmp_path: Path) -> None:
    trainer = build_trainer(tmp_path, label_smoothing_factor=0.0)
    batch = next(iter(trainer.get_train_dataloader()))
    alone = trainer.compute_loss(trainer.model.train(), batch)
    assert alone.item() == pytest.approx(trainer.compute_loss(trainer.model.eval(), batch).item(), rel=1e-6)


def test_other_arguments_than_ours(tmp_path: Path) -> None:
    arguments = TranslationTrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    with pytest.raises(TypeError, match="MinimumRiskTrainer needs args, MinimumRiskTrainingArguments"):
        MinimumRiskTrainer(tiny_model(), arguments)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule_scale": 4.0}, "schedule_scale needs warmup_steps"),
        ({"schedule_scale": 4.0, "warmup_steps": 9, "learning_rate": 0.1}, "are both given"),
        ({"per_device_train_batch_size": 16}, "per_device_train_batch_size=16 has no effect"),
        ({"gradient_accumulation_steps": 3}, "gradient_accumulation_steps=3 has no effect"),
        ({"auto_find_batch_size": True}, "lower device_tokens"),
    ],
    ids=str,
)
def test_settings_that_would_have_no_effect(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TranslationTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **settings)


@pytest.mark.parametrize("name", ["source_word_dropout", "target_word_dropout", "label_smoothing_factor"])
def test_minimum_risk_has_no(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} belongs to maximum likelihood"):
        MinimumRiskTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **{name: 0.1})


def test_the_card_that_would_be_pushed(tmp_path: Path) -> None:
    trainer = build_trainer(tmp_path, **MRT, **EVERY)
    trainer.train()
    trainer.create_model_card(language="en", license="apache-2.0")
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "- candidates: 4\n- alpha: 0.5" in card and "- eval_expected_risk: -" in card
    assert "train_batch_size" not in card


# Data sets


def sentences(number: int) -> list[str]:
    generator = torch.Generator().manual_seed(0)
    picks = torch.randint(len(WORDS), (number, 5), generator=generator).tolist()
    return [" ".join(WORDS[i] for i in row) for row in picks]


class Rows(TorchDataset):
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.rows[number]


def padded(row: dict[str, Any]) -> dict[str, list[int]]:
    """As a tokenizer gives it with padding="max_length"."""
    extra = 9 - len(row["input_ids"])
    mask = [1] * len(row["input_ids"]) + [0] * extra
    return {
        "input_ids": row["input_ids"] + [39] * extra,
        "labels": row["labels"] + [-100] * extra,
        "attention_mask": mask,
    }


def test_mapped_data_sets(tmp_path: Path, expected: dict[int, float]) -> None:
    plain = toy_dataset().select_columns(["input_ids", "labels"])
    forms = {
        "plain": DatasetDict({"train": plain})["train"],
        "padded": Dataset.from_list([padded(row) for row in plain]),
        "tensors": plain.with_format("torch"),
        "torch": Rows(plain.to_list()),
    }
    for name, dataset in forms.items():
        options = {"train_dataset": dataset, "eval_dataset": dataset}
        assert trained(tmp_path / name, options=options) == expected, name


def test_a_mapped_stream(tmp_path: Path) -> None:
    plain = toy_dataset().select_columns(["input_ids", "labels"]).to_iterable_dataset()
    found = trained(tmp_path / "mapped", options={"train_dataset": plain}, stream_buffer=20)
    assert found == trained(tmp_path / "ours", stream=True, stream_buffer=20)


@pytest.mark.parametrize("streaming", [False, True])
def test_text(tmp_path: Path, streaming: bool) -> None:
    texts = sentences(48)
    nested = Dataset.from_list([{"translation": {"en": text, "fr": text}} for text in texts])
    named = Dataset.from_list([{"en": text, "fr": text, "score": 1.0} for text in texts])
    found = []
    for number, dataset in enumerate((nested, named)):
        options = {"train_dataset": dataset.to_iterable_dataset() if streaming else dataset, "eval_dataset": dataset}
        columns = {"source_column": "en", "target_column": "fr"}
        found.append(trained(tmp_path / str(number), options=options, max_steps=2, **columns))
    assert found[0] == found[1] and len(found[0]) == 2


def test_data_sets_that_cannot_be_used(tmp_path: Path) -> None:
    text = Dataset.from_list([{"en": "a cat", "fr": "a cat"}] * 8)
    with pytest.raises(ValueError, match=r"has the columns en, fr, .* source_column and target_column"):
        build_trainer(tmp_path, options={"train_dataset": text})
    with pytest.raises(ValueError, match=r"give one, for example dataset\['train'\]"):
        build_trainer(tmp_path, options={"train_dataset": DatasetDict({"train": text})})


# Precision and adapters


@pytest.mark.parametrize("settings", [{}, MRT], ids=["mle", "mrt"])
def test_contributions_in_mixed_precision(tmp_path: Path, settings: dict[str, Any]) -> None:
    """They are those of the weights in float32; every loss is logged; training goes on in mixed precision."""
    trainer = build_trainer(tmp_path, bf16=True, max_steps=2, **settings)
    trainer.add_callback(ContributionCallback(trainer, SENTENCES, SENTENCES, every=1, prefixes=["reference"]))
    trainer.train()
    assert list(losses(trainer)) == [1, 2]
    line = json.loads((tmp_path / "contributions.jsonl").read_text().splitlines()[-1])
    model = tiny_model(dropout=0.0)
    model.load_state_dict(trainer.model.state_dict())
    results = explain(model.eval(), tiny_tokenizer(), SENTENCES, SENTENCES)
    means = [float(result.source_total[1:].mean()) for result in results]
    assert line["reference/source_total"] == pytest.approx(sum(means) / 2, abs=1e-5)


@pytest.mark.parametrize("settings", [{}, MRT], ids=["mle", "mrt"])
def test_adapters_train_and_are_explained(tmp_path: Path, settings: dict[str, Any]) -> None:
    base = tiny_model(dropout=0.0)
    lora = LoraConfig(task_type="SEQ_2_SEQ_LM", target_modules=["q_proj", "v_proj"], r=2)
    model = get_peft_model(base, lora)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer = build_trainer(tmp_path, options={"model": model}, learning_rate=1.0, **settings)
    trainer.add_callback(ContributionCallback(trainer, SENTENCES, SENTENCES, every=4, prefixes=["reference"]))
    trainer.train()
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert changed and all("lora" in name for name in changed)
    assert len((tmp_path / "contributions.jsonl").read_text().splitlines()) == 2


def test_old_checkpoints_go_when_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped while it is written, also into the folder of an earlier run, a checkpoint is not whole."""
    saving = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 1}
    build_trainer(tmp_path, **saving).train()
    assert list(whole_checkpoints(tmp_path)) == [4]
    trainer = build_trainer(tmp_path, **saving)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "_save_optimizer_and_scheduler", stop)
    (tmp_path / "checkpoint-4").rename(tmp_path / "checkpoint-2")
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert not whole_checkpoints(tmp_path)  # it wrote into checkpoint-2
    with pytest.raises(ValueError, match="was not written to its end"):
        trainer.train(resume_from_checkpoint=tmp_path / "checkpoint-2")
    monkeypatch.undo()
    build_trainer(tmp_path, **saving).train()
    assert [folder.name for folder in tmp_path.glob("checkpoint-*")] == ["checkpoint-4"]
