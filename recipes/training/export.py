r"""Turn a finished run of train.py into a small checkpoint to ship: half precision, scored, with a model card.

    python recipes/training/export.py runs/tatoeba-embedded --data tatoeba-en-fr.tsv \
        --output hf_lrp/embedded/tatoeba-en-fr

Weights are stored in half precision and load as float32. The score is that of the stored checkpoint, not of the one
before rounding. The folder is replaced only once all of it is written.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch
import yaml
from train import BEAMS, prepare_data, score
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig, PreTrainedModel, TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from hf_lrp.models.checkpoints import last_whole_checkpoint

LONGEST = 128  # tokens, far above what the data has


def save_half(averaged: Path, folder: Path) -> None:
    """Weights in half precision, tokenizer and settings for beam search."""
    model = AutoModelForSeq2SeqLM.from_pretrained(averaged, dtype=torch.float32, trust_remote_code=False)
    tokenizer = AutoTokenizer.from_pretrained(averaged, trust_remote_code=False)
    tokenizer.model_max_length = LONGEST
    config = model.config
    model.generation_config = GenerationConfig(
        bad_words_ids=[[tokenizer.pad_token_id], [tokenizer.unk_token_id]],
        decoder_start_token_id=config.decoder_start_token_id,
        eos_token_id=config.eos_token_id,
        forced_eos_token_id=config.eos_token_id,
        max_length=LONGEST,
        num_beams=BEAMS,
        pad_token_id=config.pad_token_id,
    )
    model.half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", written | {"dtype": "float32", "use_cache": True})


def describe_training(run: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Settings, number of updates and validation losses of a run."""
    last = last_whole_checkpoint(run)
    if last is None:
        raise SystemExit(f"{run} has no checkpoint: give the output folder of a finished recipes/training/train.py.")
    state = TrainerState.load_from_json(str(last / TRAINER_STATE_NAME))
    losses = [{"step": e["step"], "loss": round(e["eval_loss"], 4)} for e in state.log_history if "eval_loss" in e]
    settings = config | {"data": {name: value for name, value in config["data"].items() if name != "path"}}
    return {"config": settings, "updates": state.global_step, "validation": losses}


def model_card(model: PreTrainedModel, training: dict[str, Any]) -> str:
    """What the model is, where it comes from, what it can do."""
    config, data, results = model.config, training["config"]["data"], training["test"]
    return f"""---
language: [en, fr]
license: apache-2.0
library_name: transformers
pipeline_tag: translation
---
# English to French, small

A Marian model for the examples and tests of `hf_lrp`. It knows short everyday sentences; do not use it where a wrong
translation matters.

- layers: {config.encoder_layers} + {config.decoder_layers}, {config.encoder_attention_heads} heads each
- width: {config.d_model}, feed-forward {config.encoder_ffn_dim}
- vocabulary: {config.vocab_size}, BPE, both languages
- parameters: {model.num_parameters():,}, stored in half precision, loaded as float32

## Data
English-French sentence pairs of [Tatoeba](https://tatoeba.org), as collected by
[manythings.org/anki](https://www.manythings.org/anki). Licence of the sentences:
[CC BY 2.0 FR](https://creativecommons.org/licenses/by/2.0/fr/). No sentence is shipped.

Held out: English sentences, regarded without case, spaces and punctuation, are ordered by a hash of their text. The
first {data["test"]} are for testing, the next {data["validation"]} for validation, each with the first French
translation in the file. None of these English sentences is in the training data.

## Training
```
accelerate launch recipes/training/train.py recipes/training/configs/tatoeba-embedded.yaml --data tatoeba-en-fr.tsv
python recipes/training/export.py runs/tatoeba-embedded --data tatoeba-en-fr.tsv --output hf_lrp/embedded/tatoeba-en-fr
```
{training["updates"]} updates; the last {training["config"]["average"]} checkpoints are averaged. Updates are the same
on any number of processes. Settings and validation losses: `training.json`.

## Score
BLEU {results["bleu"]:.1f}, chrF {results["chrf"]:.1f} on the {results["sentences"]} test pairs: one reference,
detokenised, beam {results["beams"]}, `{results["signature"]}`.
"""


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def export(run: Path, data: str, output: Path) -> dict[str, Any]:
    """Write the checkpoint; returns its scores."""
    if not (run / "averaged").is_dir():
        raise SystemExit(
            f"{run} has no folder averaged: give the output folder of a finished recipes/training/train.py."
        )
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    config["data"]["path"] = data
    training = describe_training(run, config)
    partial = output.with_name(f".{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    save_half(run / "averaged", partial)
    model = AutoModelForSeq2SeqLM.from_pretrained(partial, dtype=torch.float32, trust_remote_code=False)
    _, _, test = prepare_data(config, config["training"]["seed"])
    results = score(model, AutoTokenizer.from_pretrained(partial, trust_remote_code=False), test)
    training["test"] = {name: value for name, value in results.items() if name != "examples"}
    write_json(partial / "training.json", training)
    (partial / "README.md").write_text(model_card(model, training), encoding="utf-8")
    shutil.rmtree(output, ignore_errors=True)
    partial.rename(output)
    return results


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="output folder of a finished recipes/training/train.py")
    parser.add_argument("--data", required=True, help="the data it was trained on, for the held-out pairs")
    parser.add_argument("--output", type=Path, required=True, help="folder for the checkpoint")
    options = parser.parse_args(arguments)
    results = export(options.run, options.data, options.output)
    print(f"BLEU {results['bleu']:.1f}, chrF {results['chrf']:.1f}: {options.output}")


if __name__ == "__main__":
    main()
