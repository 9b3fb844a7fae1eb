r"""Train a translation model from a YAML config, on one process or many.

    accelerate launch recipes/training/train.py recipes/training/configs/tatoeba-mini-base.yaml \
        --data tatoeba-en-fr.tsv

Interrupted, the same command continues from the last whole checkpoint. Afterwards the latest checkpoints are averaged
and the result is scored on the held-out test set. recipes/README.md lists the configs and how to launch them.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
import yaml
from accelerate import PartialState
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)

from hf_lrp.data.files import write_atomically
from hf_lrp.models.checkpoints import whole_checkpoints
from hf_lrp.training import (
    ContributionCallback,
    MinimumRiskTrainer,
    TranslationTrainer,
    TranslationTrainingArguments,
    average_checkpoints,
    encode_pairs,
    hold_out,
    is_finished,
    last_whole_checkpoint,
    latest_checkpoints,
    load_pairs,
    nested_subset,
    train_tokenizer,
    translation_config,
)
from hf_lrp.training.scores import corpus_scores

# By tag of YAML, what it looks like and its first characters.
_RESOLVED = {
    "tag:yaml.org,2002:bool": (r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    "tag:yaml.org,2002:float": (r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
}
# What a config may have besides `training`, whose settings are the arguments of its trainer.
_SECTIONS = {
    "data": {
        *("path", "config", "source", "target", "streaming", "subset", "total"),
        *("test", "validation", "max_length", "max_ratio"),
    },
    "tokenizer": {*inspect.signature(train_tokenizer).parameters} - {"pairs"},
    "model": {*inspect.signature(translation_config).parameters} - {"tokenizer"},
    "contributions": {"every", "sentences"},
}
_SINGLE = {"attention", "average", "start_from"}
BEAMS = 4
TRAINERS: dict[str, type[TranslationTrainer]] = {"mle": TranslationTrainer, "mrt": MinimumRiskTrainer}


class _Loader(yaml.SafeLoader):
    """YAML 1.2: `no` is a text and `1e-5` a number, which YAML 1.1 has the other way round."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _RESOLVED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, (_pattern, _first) in _RESOLVED.items():
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))


def read_config(path: Path) -> dict[str, Any]:
    """A config, on top of the one that it names as its base."""
    try:
        config = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError:
        known = ", ".join(sorted(file.name for file in (Path(__file__).parent / "configs").glob("*.yaml")))
        raise SystemExit(f"There is no config {path}. In recipes/training/configs: {known}.") from None
    except yaml.YAMLError as error:
        raise SystemExit(f"{path} is not valid YAML: {error}") from None
    base = config.pop("base", None)
    return merge(read_config(path.parent / base), config) if base else config


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Sections are merged, everything else is replaced."""
    merged = dict(base)
    for name, value in changes.items():
        inner = isinstance(value, dict) and isinstance(base.get(name), dict)
        merged[name] = merge(base[name], value) if inner else value
    return merged


def with_settings(config: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    """A config with settings such as `training.max_steps=100` from the command line."""
    for setting in settings:
        path, _, value = setting.partition("=")
        names = path.split(".")
        if not _ or not all(names):
            raise SystemExit(f"--set takes section.name=value, got {setting!r}.")
        change: Any = yaml.load(value, _Loader)
        for name in reversed(names):
            change = {name: change}
        config = merge(config, change)
    return config


def check_names(config: dict[str, Any]) -> None:
    """An error for sections and settings that nothing would read; `prepare_arguments` checks those of training."""
    for name, section in config.items():
        if name not in (*_SECTIONS, *_SINGLE, "training"):
            known = ", ".join(sorted({*_SECTIONS, *_SINGLE, "training"}))
            raise SystemExit(f"Unknown setting or section {name!r} in the config; known are {known}.")
        unknown = (section or {}).keys() - _SECTIONS[name] if name in _SECTIONS else ()
        if unknown:
            known = ", ".join(sorted(_SECTIONS[name]))
            raise SystemExit(f"Unknown settings of {name}: {', '.join(sorted(unknown))}; known are {known}.")


def prepare_data(config: dict[str, Any], seed: int) -> tuple[Any, Any, Any]:
    """Training, validation and test pairs, as text."""
    data = config["data"]
    sides = {name: data[name] for name in ("source", "target")}
    pairs = load_pairs(data["path"], config=data.get("config"), streaming=data.get("streaming", False), **sides)
    train, validation, test = hold_out(pairs, test=data["test"], validation=data["validation"])
    if data.get("subset"):
        train = nested_subset(train, data["subset"], seed, data.get("total"))
    return train, validation, test


def prepare_arguments(
    config: dict[str, Any], output: Path
) -> tuple[type[TranslationTrainer], TranslationTrainingArguments]:
    """The trainer of the config's objective, and its arguments."""
    settings = dict(config["training"])
    objective = settings.pop("objective", "mle")
    if objective not in TRAINERS:
        raise SystemExit(f"training.objective must be one of {', '.join(TRAINERS)}, got {objective!r}.")
    trainer = TRAINERS[objective]
    known, others = (_names(each.arguments_class) for each in (trainer, MinimumRiskTrainer))
    unknown = settings.keys() - known
    if unknown - others:
        raise SystemExit(f"Unknown settings of training: {', '.join(sorted(unknown - others))}.")
    if unknown:
        print(f"Not used by objective {objective}: {', '.join(sorted(unknown))}.")
    settings = {name: value for name, value in settings.items() if name in known}
    return trainer, trainer.arguments_class(output_dir=str(output), **settings)


def _names(arguments: type[TranslationTrainingArguments]) -> set[str]:
    return {each.name for each in fields(arguments) if each.init} - {"output_dir"}


def prepare_model(config: dict[str, Any], train: Any, output: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model to start from and its tokenizer: a trained one, or a new one and a tokenizer trained on the data."""
    attention = config.get("attention")  # transformers' name of an implementation; None: its choice
    if config.get("start_from"):
        start = config["start_from"]
        model = AutoModelForSeq2SeqLM.from_pretrained(
            start, dtype=torch.float32, attn_implementation=attention, trust_remote_code=False
        )
        return model, AutoTokenizer.from_pretrained(start, trust_remote_code=False)
    folder = output / "tokenizer"
    state = PartialState()
    with state.main_process_first():
        if not folder.is_dir() and state.is_main_process:
            write_tokenizer(config, train, folder)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    settings = translation_config(tokenizer, **config["model"])
    return AutoModelForSeq2SeqLM.from_config(settings, attn_implementation=attention), tokenizer


def write_tokenizer(config: dict[str, Any], train: Any, folder: Path) -> None:
    """Train a tokenizer on training pairs and write it, whole or not at all."""
    partial = folder.with_name(f"{folder.name}.partial")
    train_tokenizer(train, **config["tokenizer"]).save_pretrained(partial)
    partial.rename(folder)


def score(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, test: Any) -> dict[str, Any]:
    """BLEU and chrF of beam search on text pairs, detokenised."""
    sources, references = list(test["source"]), list(test["target"])
    order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
    written: dict[int, str] = {}
    longest = min(128, model.config.max_position_embeddings - 1)
    model.eval()
    for start in tqdm(range(0, len(order), 50), desc="Translating", unit="batch"):
        numbers = order[start : start + 50]
        rows = [torch.tensor(tokenizer(sources[number]).input_ids) for number in numbers]
        ids = pad_sequence(rows, batch_first=True, padding_value=model.config.pad_token_id).to(model.device)
        mask = ids.ne(model.config.pad_token_id).long()
        with torch.no_grad():
            output = model.generate(input_ids=ids, attention_mask=mask, num_beams=BEAMS, max_new_tokens=longest)
        written |= dict(zip(numbers, tokenizer.batch_decode(output, skip_special_tokens=True), strict=True))
    translations = [written[number] for number in range(len(sources))]
    return {
        **corpus_scores(translations, references),
        "sentences": len(references),
        "beams": BEAMS,
        "examples": [list(row) for row in zip(sources[:10], references[:10], translations[:10], strict=True)],
    }


def finish(output: Path, number: int, device: torch.device, tokenizer: PreTrainedTokenizerBase, test: Any) -> None:
    """Average the latest checkpoints of a run and score the result."""
    averaged = output / "averaged"
    number = min(number, len(whole_checkpoints(output)))
    average_checkpoints(latest_checkpoints(output, number), averaged, overwrite=True)
    model = AutoModelForSeq2SeqLM.from_pretrained(averaged, dtype=torch.float32, trust_remote_code=False).to(device)
    results = score(model, tokenizer, test)
    write_atomically(output / "results.json", (json.dumps(results, indent=2, ensure_ascii=False) + "\n").encode())
    print(f"BLEU {results['bleu']:.1f}, chrF {results['chrf']:.1f} on {results['sentences']} sentences: {averaged}")


def prepare(config: dict[str, Any], output: Path) -> tuple[TranslationTrainer, Any, Any]:
    """The trainer, the test pairs, and the report of what was left out of training."""
    check_names(config)
    trainer_class, arguments = prepare_arguments(config, output)
    set_seed(arguments.seed)
    output.mkdir(parents=True, exist_ok=True)
    with PartialState().main_process_first():  # the others find it in the cache
        train, validation, test = prepare_data(config, arguments.seed)
    model, tokenizer = prepare_model(config, train, output)
    limits = {name: config["data"][name] for name in ("max_length", "max_ratio")}
    with PartialState().main_process_first():
        encoded, report = encode_pairs(train, tokenizer, **limits)
        held_out, _ = encode_pairs(validation, tokenizer, **limits)
    trainer = trainer_class(model, arguments, train_dataset=encoded, eval_dataset=held_out, processing_class=tokenizer)
    settings = config.get("contributions")
    if settings:
        sample = validation.select(range(min(settings["sentences"], len(validation))))
        callback = ContributionCallback(
            trainer, list(sample["source"]), list(sample["target"]), every=settings["every"]
        )
        trainer.add_callback(callback)
    return trainer, test, report


def run(config: dict[str, Any], output: Path) -> None:
    """Train, average, score."""
    try:
        trainer, test, report = prepare(config, output)
    except (OSError, ValueError) as error:  # of data and settings: its words are enough
        raise SystemExit(f"error: {error}") from error
    streaming = config["data"].get("streaming", False)  # pairs are then encoded, and counted, while it trains
    if trainer.is_world_process_zero():
        if not streaming:
            print(report)
        write_atomically(output / "config.yaml", yaml.safe_dump(config, sort_keys=False).encode())
    last = last_whole_checkpoint(output)
    if last is None or not is_finished(last, trainer.args):
        trainer.train(resume_from_checkpoint=last)
        if streaming and report.read and trainer.is_world_process_zero():
            print(f"In the last pass over the stream: {report}")
    if trainer.is_world_process_zero():
        finish(output, config["average"], trainer.args.device, trainer.processing_class, test)
    trainer.accelerator.wait_for_everyone()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="a YAML file, for example one of recipes/training/configs")
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="DATA",
        help="takes the place of data.path: a file, two of parallel lines, a Hub name",
    )
    parser.add_argument("--output", type=Path, help="folder of the run; default: runs/<name of the config>")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.NAME=VALUE", help="change a setting")
    options = parser.parse_args(arguments)
    config = with_settings(read_config(options.config), options.set)
    if options.data:
        config["data"]["path"] = options.data if len(options.data) > 1 else options.data[0]
    run(config, options.output or Path("runs") / options.config.stem)


if __name__ == "__main__":
    main()
