"""The accelerate configs: known to accelerate, and those that can run without GPUs train each kind of recipe."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser
from accelerate.utils import DistributedType
from toy_corpus import toy_pairs

RECIPES = Path(__file__).parents[2] / "recipes" / "training"
CONFIGS = sorted((RECIPES / "accelerate").glob("*.yaml"))
SMALL = {
    "data.test": 6,
    "data.validation": 6,
    "tokenizer.vocab_size": 120,
    "model.d_model": 16,
    "model.layers": 1,
    "model.heads": 2,
    "model.ffn_dim": 24,
    "training.source_tokens": 300,
    "training.device_tokens": 150,
    "training.max_steps": 2,
    "training.save_steps": 2,
    "training.eval_steps": 2,
    "training.report_to": "none",
    "training.disable_tqdm": "true",
    "contributions.every": 2,
    "contributions.sentences": 2,
}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_accelerate_knows_every_key(path: Path) -> None:
    config = load_config_from_file(str(path))  # raises for keys that it does not know
    assert DistributedType(config.distributed_type) in DistributedType and config.num_processes >= 1
    options = {action.dest for action in launch_command_parser()._actions}
    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    for section in ("fsdp_config", "deepspeed_config"):
        assert set(written.get(section, {})) <= options


def launch(config: str, recipe: str, corpus: Path, output: Path, *settings: str) -> None:
    options = [part for name, value in SMALL.items() for part in ("--set", f"{name}={value}")]
    options += [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "accelerate.commands.launch", "--main_process_port", "0"]
    command += ["--config_file", str(RECIPES / "accelerate" / f"{config}.yaml"), str(RECIPES / "train.py")]
    command += [str(RECIPES / "configs" / f"{recipe}.yaml"), "--data", str(corpus), "--output", str(output), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("config", ["one_process", "several_cpus"])
def test_recipes_run(config: str, tmp_path: Path) -> None:
    """Likelihood in mixed precision, as the configs for GPUs have it, then minimum risk; two updates each."""
    corpus = tmp_path / "toy.tsv"
    corpus.write_text("".join(f"{a}\t{b}\n" for a, b in toy_pairs(200, seed=1)), encoding="utf-8")
    launch(config, "tatoeba-mini-base", corpus, tmp_path / "base", "training.bf16=true")
    start = f"start_from={tmp_path / 'base' / 'averaged'}"
    launch(config, "tatoeba-mini-mrt", corpus, tmp_path / "mrt", start, "training.candidates=3", "training.bf16=true")
    for name in ("base", "mrt"):
        lines = (tmp_path / name / "contributions.jsonl").read_text().splitlines()
        assert len(lines) == 2 and (tmp_path / name / "results.json").is_file()
