"""Averages of checkpoints: their values, what else is in the folder, and what is refused."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import tiny_model
from tiny_tokenizer import tiny_tokenizer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

from hf_lrp.commands.cli import main
from hf_lrp.models.checkpoints import latest_checkpoints
from hf_lrp.training import averaging
from hf_lrp.training.averaging import average_checkpoints

STEPS = (8, 9, 10, 100)


def random_model(seed: int) -> PreTrainedModel:
    """A tiny Marian model; weights of different seeds have nothing in common."""
    model = tiny_model("marian")
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:  # positions do not, and are not saved
            parameter.data = torch.randn(parameter.shape, generator=generator)
    return model


def save(folder: Path, seed: int, **options) -> Path:
    """A checkpoint as Trainer leaves it."""
    random_model(seed).save_pretrained(folder, **options)
    tiny_tokenizer().save_pretrained(folder)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin", "trainer_state.json"):
        (folder / name).write_text("{}")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run with checkpoints of four steps, which are also the seeds of their weights."""
    folder = tmp_path_factory.mktemp("run")
    for step in STEPS:
        save(folder / f"checkpoint-{step}", seed=step)
    return folder


def checkpoints(run: Path, *steps: int) -> list[Path]:
    return [run / f"checkpoint-{step}" for step in steps]


def mean_of(*seeds: int) -> dict[str, torch.Tensor]:
    states = [random_model(seed).state_dict() for seed in seeds]
    return {name: torch.stack([state[name] for state in states]).double().mean(0) for name in states[0]}


class TestAverage:
    def test_the_model_loads_and_its_weights_are_the_mean(self, run, tmp_path):
        average_checkpoints(checkpoints(run, 8, 9, 100), tmp_path / "mean")
        model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "mean")
        expected = mean_of(8, 9, 100)
        assert model.state_dict().keys() == expected.keys()
        for name, value in model.state_dict().items():
            assert torch.equal(value, expected[name].float()), name

    def test_tied_weights_stay_tied(self, run, tmp_path):
        average_checkpoints(checkpoints(run, 8, 9), tmp_path / "mean")
        model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "mean")
        assert model.lm_head.weight is model.model.encoder.embed_tokens.weight
        assert (
            load_file(tmp_path / "mean/model.safetensors").keys()
            == load_file(run / "checkpoint-8/model.safetensors").keys()
        )

    def test_one_checkpoint_is_its_own_average(self, run, tmp_path):
        average_checkpoints(checkpoints(run, 9), tmp_path / "mean")
        weights = "model.safetensors"
        assert (tmp_path / "mean" / weights).read_bytes() == (run / "checkpoint-9" / weights).read_bytes()

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_the_type_is_kept_and_sums_are_exact(self, tmp_path, dtype):
        folders = []
        for i, value in enumerate([60000.0, 60000.0, 30000.0]):  # the sum is no float16
            folders.append(tmp_path / str(i))
            folders[-1].mkdir()
            save_file({"a": torch.full((2, 3), value, dtype=dtype)}, folders[-1] / "model.safetensors")
        average_checkpoints(folders, tmp_path / "mean")
        mean = load_file(tmp_path / "mean/model.safetensors")["a"]
        exact = torch.tensor([60000.0, 60000.0, 30000.0]).to(dtype).double().mean()
        assert torch.equal(mean, torch.full((2, 3), exact.item()).to(dtype))

    def test_integers_come_from_the_last_checkpoint(self, tmp_path):
        folders = [tmp_path / "1", tmp_path / "2"]
        for i, folder in enumerate(folders):
            folder.mkdir()
            tensors = {
                "count": torch.tensor([10 + i]),
                "mask": torch.tensor([i == 0, True, False]),
                "scalar": torch.tensor(float(i)),
                "empty": torch.zeros(0, 4),
            }
            save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        average_checkpoints(folders, tmp_path / "mean")
        mean = load_file(tmp_path / "mean/model.safetensors")
        assert mean["count"].tolist() == [11]
        assert mean["mask"].tolist() == [False, True, False]
        assert mean["scalar"].item() == 0.5
        assert mean["empty"].shape == (0, 4)

    def test_sharded_checkpoints(self, run, tmp_path):
        folders = [save(tmp_path / "1", 8, max_shard_size="20KB"), *checkpoints(run, 9)]
        for name, order in (("whole", folders), ("sharded", folders[::-1])):
            average_checkpoints(order, tmp_path / name)
        assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
        assert len(list((tmp_path / "whole").glob("*.safetensors"))) == 1
        expected = mean_of(8, 9)
        for name in ("whole", "sharded"):
            state = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / name).state_dict()
            assert all(torch.equal(state[key], expected[key].float()) for key in expected)

    def test_configuration_and_tokenizer_come_along_and_the_state_of_training_does_not(self, run, tmp_path):
        last = save(tmp_path / "last", 1)
        config = json.loads((last / "config.json").read_text()) | {"dropout": 0.25}
        (last / "config.json").write_text(json.dumps(config))
        (last / "source.spm").write_bytes(b"pieces")
        average_checkpoints([*checkpoints(run, 8), last], tmp_path / "mean")
        assert {path.name for path in (tmp_path / "mean").iterdir()} == {
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "source.spm",
            "tokenizer.json",
            "tokenizer_config.json",
        }
        assert json.loads((tmp_path / "mean/config.json").read_text())["dropout"] == 0.25
        assert AutoTokenizer.from_pretrained(tmp_path / "mean")("the cat").input_ids == [2, 4, 1]


class TestOutput:
    def test_nothing_is_left_if_it_fails(self, run, tmp_path, monkeypatch):
        def fail(weights, key):
            raise OSError("disk full")

        monkeypatch.setattr(averaging, "_mean", fail)
        with pytest.raises(OSError, match="disk full"):
            average_checkpoints(checkpoints(run, 8, 9), tmp_path / "mean")
        assert list(tmp_path.iterdir()) == []

    def test_missing_folders_are_created_and_empty_ones_used(self, run, tmp_path):
        (tmp_path / "empty").mkdir()
        for output in (tmp_path / "a" / "b", tmp_path / "empty"):
            average_checkpoints(checkpoints(run, 8), output)
            assert (output / "model.safetensors").is_file()
            assert not [path for path in output.parent.iterdir() if path.name.startswith(".")]

    def test_an_old_output_is_replaced_only_if_told(self, run, tmp_path):
        output = save(tmp_path / "mean", 1)
        (output / "old.txt").touch()
        with pytest.raises(FileExistsError, match="exists: choose another output, or overwrite it"):
            average_checkpoints(checkpoints(run, 8), output)
        assert (output / "old.txt").exists()
        average_checkpoints(checkpoints(run, 8), output, overwrite=True)
        assert not (output / "old.txt").exists()
        assert os.listdir(tmp_path) == ["mean"]

    def test_folders_that_hold_no_model_are_never_overwritten(self, run, tmp_path):
        (tmp_path / "thesis.txt").touch()
        with pytest.raises(FileExistsError, match="holds no model: it is not overwritten"):
            average_checkpoints(checkpoints(run, 8), tmp_path, overwrite=True)
        assert (tmp_path / "thesis.txt").exists()

    @pytest.mark.parametrize("output", [".", "checkpoint-8"])
    def test_checkpoints_are_never_overwritten(self, run, output):
        with pytest.raises(ValueError, match="is or holds a checkpoint to average"):
            average_checkpoints(checkpoints(run, 8, 9), run / output, overwrite=True)
        assert (run / "checkpoint-8" / "model.safetensors").is_file()


class TestBadCheckpoints:
    def damaged(self, tmp_path: Path, change) -> Path:
        folder = save(tmp_path / "bad", 1)
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")
        return folder

    def refused(self, folders: list[Path], tmp_path: Path) -> str:
        with pytest.raises(ValueError, match=str(folders[0]) if folders else "no checkpoints") as failure:
            average_checkpoints(folders, tmp_path / "mean")
        assert not (tmp_path / "mean").exists()
        return str(failure.value)

    def test_one_checkpoint_twice(self, run, tmp_path):
        (tmp_path / "link").symlink_to(run / "checkpoint-8")
        folders = [tmp_path / "link", *checkpoints(run, 9, 8)]
        with pytest.raises(ValueError, match="checkpoint-8 is listed twice"):
            average_checkpoints(folders, tmp_path / "mean")

    @pytest.mark.parametrize("name", ["../w.safetensors", "/w.safetensors", "sub/w.safetensors"])
    def test_an_index_is_not_followed_out_of_its_folder(self, tmp_path, name):
        folder = save(tmp_path / "bad", 1)
        (folder / "model.safetensors").rename(tmp_path / "w.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
        assert "which is not a file in its folder" in self.refused([folder], tmp_path)

    @pytest.mark.parametrize("content", ["{", "[]", "{}", "[" * 100_000])
    def test_a_damaged_index(self, tmp_path, content):
        folder = save(tmp_path / "bad", 1)
        (folder / "model.safetensors.index.json").write_text(content)
        assert "is damaged" in self.refused([folder], tmp_path)

    @pytest.mark.parametrize("bad_is_last", [False, True])
    def test_other_names(self, run, tmp_path, bad_is_last):
        bad = self.damaged(tmp_path, lambda tensors: tensors.pop("model.decoder.layers.0.fc1.bias"))
        folders = [bad, *checkpoints(run, 8)][:: -1 if bad_is_last else 1]
        message = self.refused(folders, tmp_path)
        assert message.startswith("model.decoder.layers.0.fc1.bias is ")
        assert f"missing in {bad}" in message

    def test_other_shapes(self, run, tmp_path):
        bad = self.damaged(tmp_path, lambda tensors: tensors.update({"model.shared.weight": torch.zeros(3, 4)}))
        message = self.refused([bad, *checkpoints(run, 8)], tmp_path)
        assert message.startswith(f"model.shared.weight is [3, 4] in {bad} but [40, ")

    def test_no_weights(self, run, tmp_path):
        (tmp_path / "bad").mkdir()
        message = self.refused([tmp_path / "bad", *checkpoints(run, 8)], tmp_path)
        assert f"{tmp_path / 'bad'} has no model.safetensors" in message

    def test_a_missing_shard(self, run, tmp_path):
        bad = save(tmp_path / "bad", 1, max_shard_size="20KB")
        shard = sorted(bad.glob("*.safetensors"))[1]
        shard.unlink()
        assert f"has no {shard.name}" in self.refused([bad, *checkpoints(run, 8)], tmp_path)

    def test_a_file_that_was_not_written_to_its_end(self, run, tmp_path):
        bad = save(tmp_path / "bad", 1)
        content = (bad / "model.safetensors").read_bytes()
        (bad / "model.safetensors").write_bytes(content[: len(content) // 2])
        assert "model.safetensors is damaged" in self.refused([bad, *checkpoints(run, 8)], tmp_path)

    def test_none(self, tmp_path):
        self.refused([], tmp_path)


class TestLatest:
    def test_steps_are_numbers_and_the_latest_is_last(self, run):
        assert latest_checkpoints(run, 3) == checkpoints(run, 9, 10, 100)

    def test_only_complete_checkpoints_count(self, tmp_path):
        for name in ("checkpoint-1", "checkpoint-2", "checkpoint-3", "checkpoint-best", "other"):
            (tmp_path / name).mkdir()
        for name in ("checkpoint-1", "checkpoint-3", "checkpoint-best"):
            (tmp_path / name / "trainer_state.json").touch()
        with pytest.warns(UserWarning, match="checkpoint-2 is left out: it was not written to its end"):
            assert latest_checkpoints(tmp_path, 2) == checkpoints(tmp_path, 1, 3)
        with pytest.raises(ValueError, match="has 2 complete checkpoints .* and 3 are wanted"):
            latest_checkpoints(tmp_path, 3)

    @pytest.mark.parametrize("number", [0, -1])
    def test_the_number_must_be_positive(self, run, number):
        with pytest.raises(ValueError, match=f"at least 1, not {number}"):
            latest_checkpoints(run, number)


class TestCommand:
    def test_the_latest_of_a_run(self, run, tmp_path, capsys):
        assert main(["average", str(run), "--last", "2", "--out", str(tmp_path / "mean")]) == 0
        out, err = capsys.readouterr()
        assert out == ""
        assert err == f"wrote {tmp_path / 'mean'}: the average of checkpoint-10, checkpoint-100\n"
        expected = mean_of(10, 100)["model.shared.weight"].float()
        assert torch.equal(load_file(tmp_path / "mean/model.safetensors")["model.shared.weight"], expected)

    def test_checkpoints_by_name(self, run, tmp_path):
        names = [str(folder) for folder in checkpoints(run, 8, 9)]
        argv = ["average", *names, "--out", str(tmp_path / "mean")]
        assert main(argv) == 0
        assert main(argv) == 1
        assert main([*argv, "--overwrite"]) == 0
        expected = mean_of(8, 9)["model.shared.weight"].float()
        assert torch.equal(load_file(tmp_path / "mean/model.safetensors")["model.shared.weight"], expected)

    def test_five_checkpoints_by_default(self, run, tmp_path, capsys):
        assert main(["average", str(run), "--out", str(tmp_path / "mean")]) == 1
        assert "has 4 complete checkpoints (folders checkpoint-STEP), and 5 are wanted" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["a", "b", "--last", "2", "--out", "c"], "--last is for the folder of a run"),
            (["a", "--last", "0", "--out", "c"], "not a number from 1 to"),
            (["a"], "the following arguments are required: --out"),
        ],
    )
    def test_usage_errors(self, options, message, capsys):
        with pytest.raises(SystemExit) as stop:
            main(["average", *options])
        assert stop.value.code == 2
        assert message in capsys.readouterr().err

    def test_a_folder_that_does_not_exist(self, tmp_path, capsys):
        assert main(["average", str(tmp_path / "nowhere"), "--out", str(tmp_path / "mean")]) == 1
        assert capsys.readouterr().err == f"hf-lrp: error: there is no folder {tmp_path / 'nowhere'}\n"
