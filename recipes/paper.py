"""Every analysis of the paper from one command: train the models, evaluate them, draw the figures, check the claims.

    python recipes/paper.py toy --output paper
    python recipes/paper.py tatoeba-mini --data tatoeba-en-fr.tsv --output paper
    python recipes/paper.py wmt14-en-fr --output paper --accelerate recipes/accelerate/one_machine.yaml

`toy` makes its own corpus, sentences of a small grammar, and takes about half an hour on one core. Each step
continues where it was interrupted, and is passed over once it is done: start the same command again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from claims import KINDS, Claim, as_markdown, as_rows, check_growth, check_model, check_objectives, check_training
from toy_corpus import toy_pairs
from train import prepare_data, read_config, with_settings

from hf_lrp.analysis.run.store import Run
from hf_lrp.data.files import write_atomically

RECIPES = Path(__file__).parent
OBJECTIVES = dict(zip(("base", "wd-source", "wd-target", "mrt"), KINDS, strict=True))
SEED = 1  # of the configs: one model of each kind
TOY_PAIRS = 26_000


@dataclass(frozen=True)
class Size:
    """What is trained and evaluated: configs, changes to them, training pairs of all and of fewer data, sentences."""

    configs: str
    pairs: int
    subsets: tuple[int, ...]
    sentences: int
    settings: tuple[str, ...] = ()
    minimum_risk_settings: tuple[str, ...] = ()
    every: int = field(default=1000, metadata={"help": "updates between checkpoints that the timeline has"})


SIZES = {
    "toy": Size(
        "tatoeba-mini",
        19_500,
        (1_000, 4_000),
        200,
        (
            "data.test=6000",
            "tokenizer.vocab_size=400",
            "model.d_model=128",
            "model.layers=2",
            "model.ffn_dim=256",
            "training.source_tokens=1000",
            "training.device_tokens=1000",
            "training.max_steps=1500",
            "training.schedule_scale=0.5",
            "training.warmup_steps=300",
            "training.eval_steps=500",
        ),
        (
            "training.max_steps=150",
            "training.source_tokens=200",
            "training.device_tokens=200",
            "training.candidates=20",
            "training.schedule_scale=null",
            "training.warmup_steps=30",
            "training.learning_rate=1.0e-4",
        ),
        every=100,
    ),
    "tatoeba-mini": Size("tatoeba-mini", 160_298, (20_000, 60_000), 500, every=500),
    "wmt14-en-fr": Size("wmt14-en-fr", 1_000_000, (1_000_000, 2_500_000, 5_000_000, 10_000_000, 20_000_000), 1000),
}


class Steps:
    """The steps of one reproduction, each a command of its own that is passed over once it is done."""

    def __init__(self, size: Size, data: str | None, output: Path, accelerate: str | None) -> None:
        self.size, self.data, self.output = size, data, output
        self.settings = [*size.settings, f"training.save_steps={size.every}"]
        if data is not None:
            self.settings.append(f"data.path={data}")
        launcher = ["-m", "accelerate.commands.launch", "--config_file", accelerate] if accelerate else []
        self._python = [sys.executable, *launcher]

    def train(self, name: str, config: str, *settings: str) -> Path:
        """Train a model into models/NAME; the folder of its run."""
        folder = self.output / "models" / name
        if not (folder / "results.json").is_file():
            self._share_tokenizer(folder)
            changes = [part for setting in (*self.settings, *settings) for part in ("--set", setting)]
            path = RECIPES / "configs" / f"{self.size.configs}-{config}.yaml"
            self._run(*self._python, str(RECIPES / "train.py"), str(path), "--output", str(folder), *changes)
        return folder

    def _share_tokenizer(self, folder: Path) -> None:
        """Give a model the baseline's tokenizer: only then do they read the same tokens."""
        tokenizer, shared = folder / "tokenizer", self.output / "models" / "base" / "tokenizer"
        if shared.is_dir() and not tokenizer.exists():
            partial = folder / "tokenizer.partial"
            shutil.copytree(shared, partial, dirs_exist_ok=True)
            partial.rename(tokenizer)

    def analyze(self, name: str, model: Path) -> Path:
        """Evaluate a model on the test set into runs/NAME; the folder."""
        folder = self.output / "runs" / name
        number = ("--number", str(self.size.sentences), "--label", name)
        module = ("-m", "hf_lrp", "analyze", str(model))
        self._run(*self._python, *module, "--data", str(self.test_set()), "--out", str(folder), *number)
        return folder

    def timeline(self, run: Path) -> Path:
        """Evaluate the checkpoints of a training run into runs/timeline; the folder."""
        folder = self.output / "runs" / "timeline"
        number = ("--number", str(min(200, self.size.sentences)))
        module = ("-m", "hf_lrp", "timeline", str(run))
        self._run(*self._python, *module, "--data", str(self.test_set()), "--out", str(folder), *number)
        return folder

    def compare(self, name: str, folders: list[Path], *options: str) -> None:
        """Figures, tables and the report of runs into NAME."""
        output = self.output / "reports" / name
        command = (sys.executable, "-m", "hf_lrp", "compare", *map(str, folders), "--out", str(output))
        self._run(*command, *options)

    def test_set(self) -> Path:
        """The held-out pairs of all trainings, as a file."""
        path = self.output / "test.tsv"
        if not path.is_file():
            config = with_settings(read_config(RECIPES / "configs" / f"{self.size.configs}-base.yaml"), self.settings)
            _, _, test = prepare_data(config, config["training"]["seed"])
            rows = zip(test["source"], test["target"], strict=True)
            write_atomically(path, "".join(f"{source}\t{target}\n" for source, target in rows).encode())
        return path

    def _run(self, *command: str) -> None:
        print("+", " ".join(command[1:]), file=sys.stderr, flush=True)
        done = subprocess.run(command, check=False)
        if done.returncode:
            raise SystemExit(f"That step failed (exit code {done.returncode}). Mend the cause and start again.")


def reproduce(steps: Steps) -> list[Claim]:
    """Train, evaluate, draw; the claims."""
    size = steps.size
    models = {"base": steps.train("base", "base", "training.save_total_limit=null")}
    for name in list(OBJECTIVES)[1:]:
        start = (f"start_from={models['base'] / 'averaged'}", *size.minimum_risk_settings) if name == "mrt" else ()
        models[name] = steps.train(name, name, *start)
    amounts = {f"{pairs:,}": steps.train(f"base-{pairs}", "base", f"data.subset={pairs}") for pairs in size.subsets}
    runs = {name: steps.analyze(name, folder / "averaged") for name, folder in (models | amounts).items()}
    timeline = steps.timeline(models["base"])
    growth = [*(runs[name] for name in amounts), runs["base"]]
    steps.compare("model", [runs["base"]])
    steps.compare("objectives", [runs[name] for name in OBJECTIVES], "--labels", *OBJECTIVES.values())
    steps.compare("data", growth, "--growth", "--labels", *(f"{name} pairs" for name in amounts), "all pairs")
    steps.compare("training", [timeline])
    opened = {name: {SEED: Run.open(folder)} for name, folder in runs.items()}
    sizes = {**dict(zip(size.subsets, amounts, strict=True)), size.pairs: "base"}
    checkpoints = {int(folder.name.removeprefix("step-")): Run.open(folder) for folder in timeline.glob("step-*")}
    return [
        *check_model(opened["base"]),
        *check_objectives({kind: opened[name] for name, kind in OBJECTIVES.items()}),
        *check_growth({pairs: opened[name] for pairs, name in sizes.items()}),
        *check_training({SEED: checkpoints}),
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("--data", help="a Hub name or a file in place of the config's; toy makes its own")
    parser.add_argument("--output", type=Path, required=True, help="folder for models, runs and reports")
    parser.add_argument("--accelerate", metavar="FILE", help="accelerate config; default: one process")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    data = options.data
    if options.size == "toy" and data is None:
        data = str(options.output / "toy.tsv")
        rows = "".join(f"{english}\t{french}\n" for english, french in toy_pairs(TOY_PAIRS, seed=1))
        write_atomically(data, rows.encode())
    claims = reproduce(Steps(SIZES[options.size], data, options.output, options.accelerate))
    write_atomically(options.output / "claims.json", (json.dumps(as_rows(claims), indent=2) + "\n").encode())
    write_atomically(options.output / "claims.md", as_markdown(claims).encode())
    print(as_markdown(claims))


if __name__ == "__main__":
    main()
