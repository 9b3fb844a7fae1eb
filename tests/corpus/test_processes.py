"""Evaluation killed and continued, and on two processes: the same bytes as in one piece."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from evaluation_script import SHARD, analyze_until
from own_process import exit_code
from tiny_checkpoint import save_checkpoint
from tiny_tokenizer import WORDS

from hf_lrp.commands.cli import main
from hf_lrp.corpus import Run, RunError
from hf_lrp.corpus import processes as scheduling
from hf_lrp.corpus.processes import plan_shards, share_out

SCRIPT = Path(__file__).parents[1] / "support" / "evaluation_script.py"
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("given")
    draw = random.Random(0)
    lines = ["\t".join(" ".join(draw.choices(WORDS, k=draw.randint(2, 4))) for _ in range(2)) for _ in range(30)]
    (folder / "pairs.tsv").write_text("\n".join(lines))
    model = save_checkpoint(folder / "model")
    return [str(model), "--data", str(folder / "pairs.tsv"), "--lengths", "mixed", "--number", "12"]


@pytest.fixture
def _one_thread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scheduling, "SHARD", SHARD)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def whole() -> dict[str, bytes]:
    """What an evaluation in one piece writes; filled by the first test that needs it."""
    return {}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run_here(arguments: list[str], folder: Path) -> dict[str, bytes]:
    assert main(["analyze", *arguments, "--out", str(folder)]) == 0
    assert Run.open(folder).number == 12
    return contents(folder)


@pytest.mark.usefixtures("_one_thread")
def test_killed_it_continues_to_the_same_bytes(tmp_path, arguments, whole):
    folder = tmp_path / "killed"
    killed = exit_code(analyze_until, "*/shards/00002.json", [*arguments, "--out", str(folder)])
    assert killed == -signal.SIGKILL
    assert 1 <= len(list(folder.glob("shards/*.json"))) < 6  # the most expensive ones are first
    with pytest.raises(RunError, match="not finished: start the same"):
        Run.open(folder)
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("shards/*.json")}
    continued = run_here(arguments, folder)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    whole |= run_here(arguments, tmp_path / "whole")
    assert len(whole) == 15 and continued == whole


@pytest.mark.usefixtures("_one_thread")
def test_two_processes_write_the_same_bytes(tmp_path, arguments, whole):
    options = ["--multi_gpu", "--num_processes", "2", "--main_process_port", "0"]
    command = [sys.executable, "-m", "accelerate.commands.launch", *options, str(SCRIPT), *arguments]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "two")],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert " ".join(done.stdout.split()).count("12 pairs with mixed lengths") == 1  # the main process only
    assert "Evaluating" not in done.stderr  # bars are for terminals
    assert contents(tmp_path / "two") == (whole or run_here(arguments, tmp_path / "whole"))


@pytest.mark.parametrize("number", [1, 2, 15, 16, 17, 100, 1000])
def test_shards_hold_all_sentences_in_order_and_nearly_as_many_each(number):
    shards = plan_shards(number)
    assert [n for shard in shards for n in shard] == list(range(number))
    sizes = set(map(len, shards))
    assert max(sizes) <= 8 and max(sizes) - min(sizes) <= 1


def test_large_sets_have_larger_shards():
    shards = plan_shards(100_001)
    assert len(shards) == 1000 and {len(shard) for shard in shards} == {100, 101}


def test_shares_are_even_and_whole():
    draw = random.Random(1)
    costs = {shard: draw.randint(100, 1000) for shard in range(0, 90, 2)}
    for processes in (1, 2, 3, 7):
        shares = share_out(costs, processes)
        assert sorted(shard for share in shares for shard in share) == sorted(costs)
        loads = [sum(costs[shard] for shard in share) for share in shares]
        assert max(loads) <= 1.06 * sum(loads) / processes
        assert all([costs[s] for s in share] == sorted((costs[s] for s in share), reverse=True) for share in shares)
    assert share_out({4: 7}, 3) == [[4], [], []] and share_out({}, 2) == [[], []]
