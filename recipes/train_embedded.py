"""Train the small English-French Marian model that ships with the package.

    python recipes/train_embedded.py --data tatoeba-en-fr.tsv --output hf_lrp/embedded/tatoeba-en-fr

Data: tab-separated English and French, one pair per line, from tatoeba.org via manythings.org/anki.
Interrupted, the same command continues from the last checkpoint in `--checkpoints`. With `--minutes` the
learning rate follows the time spent training, so that a slower machine still ends at zero; with `--steps` the
result is reproducible. `--evaluate_only` scores the model in `--output` again.
On a CPU that others use too, OMP_WAIT_POLICY=passive in the environment makes a step several times faster.
"""

import hashlib
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import sacrebleu
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch.nn.functional import cross_entropy
from tqdm import tqdm
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    HfArgumentParser,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
)
from transformers.utils.logging import disable_progress_bar

Pair = tuple[str, str]
Example = tuple[list[int], list[int]]
IGNORED = -100


@dataclass(frozen=True)
class Arguments:
    data: str
    output: str
    checkpoints: str = "runs/tatoeba-en-fr"
    minutes: float = 50.0
    steps: int | None = None  # takes the place of minutes
    save_steps: int = 500
    seed: int = 1
    evaluate_only: bool = False
    # held out
    test_size: int = 1000
    validation_size: int = 500
    # model
    vocab_size: int = 4000
    d_model: int = 192
    ffn_dim: int = 640
    layers: int = 3
    heads: int = 4
    dropout: float = 0.1
    # optimisation
    batch_tokens: int = 1536  # target tokens, padding included
    learning_rate: float = 1.5e-3
    warmup_steps: int = 1000
    label_smoothing: float = 0.1


def read_pairs(path: str | Path) -> list[Pair]:
    with open(path, encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines if line.strip()]
    if any(len(row) < 2 for row in rows):
        raise ValueError(f"{path}: every line needs an English and a French column, separated by a tab.")
    return [(row[0], row[1]) for row in rows]


def english_key(english: str) -> str:
    """Sentences that differ only in case, spaces or punctuation share a key, and so a side of the split."""
    return "".join(c for c in english.casefold() if c.isalnum()) or english


def split_pairs(pairs: list[Pair], test_size: int, validation_size: int) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Train, validation and test pairs. Keys are ordered by SHA-256: the first are test, the next validation.

    A held-out key keeps its first pair only; none of its pairs is in train.
    """
    first = {}
    for pair in pairs:
        first.setdefault(english_key(pair[0]), pair)
    order = sorted(first, key=lambda key: hashlib.sha256(key.encode()).hexdigest())
    if len(order) <= test_size + validation_size:
        raise ValueError(
            f"{len(order)} distinct English sentences are too few to hold out {test_size + validation_size}."
        )
    test, validation = order[:test_size], order[test_size : test_size + validation_size]
    held_out = {*test, *validation}
    train = [pair for pair in pairs if english_key(pair[0]) not in held_out]
    return train, [first[key] for key in validation], [first[key] for key in test]


def build_tokenizer(pairs: list[Pair], vocab_size: int) -> PreTrainedTokenizerFast:
    """One BPE vocabulary for both languages; '▁' marks a space before, punctuation stays apart from words."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Replace(Regex(r"[\s\u00a0\u2009\u202f]+"), " "),
            normalizers.Replace("’", "'"),
            normalizers.Strip(),
        ]
    )
    word_or_mark = Regex(r"▁?(?:[\p{L}\p{M}\p{N}]+|[^\p{L}\p{M}\p{N}▁])")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="always"), pre_tokenizers.Split(word_or_mark, "isolated")]
    )
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        limit_alphabet=120,
        special_tokens=["</s>", "<unk>", "<pad>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator((side for pair in pairs for side in pair), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A $B </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        model_max_length=128,
        clean_up_tokenization_spaces=False,  # French has a space before ? and !
    )


def build_model(tokenizer: PreTrainedTokenizerFast, args: Arguments) -> MarianMTModel:
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    config = MarianConfig(
        vocab_size=len(tokenizer),
        d_model=args.d_model,
        encoder_layers=args.layers,
        decoder_layers=args.layers,
        encoder_attention_heads=args.heads,
        decoder_attention_heads=args.heads,
        encoder_ffn_dim=args.ffn_dim,
        decoder_ffn_dim=args.ffn_dim,
        activation_function="relu",
        dropout=args.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        scale_embedding=True,
        init_std=args.d_model**-0.5,  # scaled embeddings start as large as the sinusoidal positions
        max_position_embeddings=128,
        pad_token_id=pad,
        eos_token_id=eos,
        decoder_start_token_id=pad,
        forced_eos_token_id=eos,
    )
    model = MarianMTModel(config)
    model.generation_config = GenerationConfig(
        num_beams=4,
        max_length=128,
        pad_token_id=pad,
        eos_token_id=eos,
        forced_eos_token_id=eos,
        decoder_start_token_id=pad,
        bad_words_ids=[[pad], [tokenizer.unk_token_id]],
    )
    return model


def encode(tokenizer: PreTrainedTokenizerFast, pairs: list[Pair]) -> list[Example]:
    sources, targets = (tokenizer(list(side), truncation=True)["input_ids"] for side in zip(*pairs, strict=True))
    return list(zip(sources, targets, strict=True))


def make_batches(examples: list[Example], batch_tokens: int, rng: random.Random) -> list[list[Example]]:
    """Pairs of similar length together, at most `batch_tokens` target tokens each, in random order."""
    examples = sorted(rng.sample(examples, len(examples)), key=lambda e: (len(e[1]), len(e[0])))
    batches: list[list[Example]] = [[]]
    for example in examples:  # sorted, so the newest is the longest
        if batches[-1] and (len(batches[-1]) + 1) * len(example[1]) > batch_tokens:
            batches.append([])
        batches[-1].append(example)
    rng.shuffle(batches)
    return batches


def pad_rows(rows: list[list[int]], value: int) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [value] * (width - len(row)) for row in rows])


def batch_loss(model: MarianMTModel, batch: list[Example], label_smoothing: float) -> torch.Tensor:
    pad = model.config.pad_token_id
    sources = pad_rows([source for source, _ in batch], pad)
    labels = pad_rows([target for _, target in batch], IGNORED)
    inputs = pad_rows([[model.config.decoder_start_token_id, *target[:-1]] for _, target in batch], pad)
    logits = model(input_ids=sources, attention_mask=sources.ne(pad), decoder_input_ids=inputs, use_cache=False).logits
    return cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, label_smoothing=label_smoothing)


@torch.no_grad()
def validation_loss(model: MarianMTModel, examples: list[Example], batch_tokens: int) -> float:
    """Mean cross-entropy per target token, in nats."""
    model.eval()
    total = 0.0
    for batch in make_batches(examples, batch_tokens, random.Random(0)):
        total += batch_loss(model, batch, 0.0).item() * sum(len(target) for _, target in batch)
    model.train()
    return total / sum(len(target) for _, target in examples)


def last_checkpoint(folder: Path) -> Path | None:
    found = [path for path in folder.glob("step-*") if path.suffix != ".tmp"]
    return max(found, key=lambda path: int(path.name.removeprefix("step-")), default=None)


def save_checkpoint(folder: Path, model: MarianMTModel, optimizer: torch.optim.Optimizer, state: dict) -> None:
    """Write beside, then rename: a checkpoint is complete or absent. The last two stay."""
    final = folder / f"step-{state['step']}"
    temporary = final.with_suffix(".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    model.save_pretrained(temporary)
    tensors = {"rng": torch.get_rng_state()}
    for index, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"{index}.{name}": tensor.clone() for name, tensor in moments.items()}
    save_file(tensors, temporary / "optimizer.safetensors")
    (temporary / "state.json").write_text(json.dumps(state, indent=1))
    shutil.rmtree(final, ignore_errors=True)
    os.replace(temporary, final)
    old = sorted(folder.glob("step-*"), key=lambda path: int(path.stem.removeprefix("step-")))[:-2]
    for path in old:
        shutil.rmtree(path)


def load_optimizer(optimizer: torch.optim.Optimizer, checkpoint: Path) -> None:
    """Restore Adam's moments and torch's random state."""
    tensors = load_file(checkpoint / "optimizer.safetensors")
    torch.set_rng_state(tensors.pop("rng"))
    saved = optimizer.state_dict()
    for key, tensor in tensors.items():
        index, name = key.split(".", 1)
        saved["state"].setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict(saved)


def epochs(examples: list[Example], args: Arguments, state: dict) -> Iterator[list[Example]]:
    """Batches without end, from where `state` says; the order depends on the seed and the epoch only."""
    while True:
        batches = make_batches(examples, args.batch_tokens, random.Random(f"{args.seed}-{state['epoch']}"))
        while state["batch"] < len(batches):
            state["batch"] += 1
            yield batches[state["batch"] - 1]
        state["epoch"], state["batch"] = state["epoch"] + 1, 0


def train(args: Arguments, train_pairs: list[Pair], validation_pairs: list[Pair]) -> tuple[MarianMTModel, dict]:
    """Train until the time or the steps are used up; returns the model and what happened.

    The tokenizer is built once and saved in `checkpoints`.
    """
    folder = Path(args.checkpoints)
    torch.manual_seed(args.seed)
    if not (folder / "tokenizer.json").exists():
        build_tokenizer(train_pairs, args.vocab_size).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    checkpoint = last_checkpoint(folder)
    model = MarianMTModel.from_pretrained(checkpoint) if checkpoint else build_model(tokenizer, args)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    state = {"step": 0, "seconds": 0.0, "epoch": 0, "batch": 0, "history": []}
    if checkpoint:
        load_optimizer(optimizer, checkpoint)
        state = json.loads((checkpoint / "state.json").read_text())
    validation = encode(tokenizer, validation_pairs)
    batches = epochs(encode(tokenizer, train_pairs), args, state)

    def progress() -> float:
        return min(1.0, state["step"] / args.steps if args.steps else state["seconds"] / (60 * args.minutes))

    model.train()
    running = None
    bar = tqdm(
        total=100,
        initial=100 * progress(),
        unit="%",
        bar_format="{l_bar}{bar}| {elapsed}<{remaining}{postfix}",
    )
    with bar:
        while progress() < 1:
            start = time.monotonic()
            before = progress()
            rate = args.learning_rate * min(1.0, (state["step"] + 1) / args.warmup_steps) * (1 - before)
            optimizer.param_groups[0]["lr"] = rate
            loss = batch_loss(model, next(batches), args.label_smoothing)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            running = loss.item() if running is None else 0.99 * running + 0.01 * loss.item()
            state["step"] += 1
            state["seconds"] += time.monotonic() - start
            bar.update(100 * (progress() - before))
            bar.set_postfix(step=state["step"], epoch=state["epoch"], loss=f"{running:.3f}", lr=f"{rate:.1e}")
            if state["step"] % args.save_steps == 0 or progress() >= 1:
                heldout = validation_loss(model, validation, args.batch_tokens)
                state["history"].append({"step": state["step"], "loss": running, "validation_loss": heldout})
                save_checkpoint(folder, model, optimizer, state)
                bar.write(f"step {state['step']}: validation loss {heldout:.3f}", file=sys.stderr)
    return model.eval(), state


def write_text(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def write_json(path: Path, content: dict) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def export(args: Arguments, model: MarianMTModel, state: dict) -> None:
    """Save the folder that ships: half-precision weights that load as float32, tokenizer, `training.json`."""
    output = Path(args.output)
    temporary = output.with_name(output.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    model.half().save_pretrained(temporary)
    AutoTokenizer.from_pretrained(args.checkpoints).save_pretrained(temporary)
    config = json.loads((temporary / "config.json").read_text())
    write_json(temporary / "config.json", config | {"dtype": "float32"})
    arguments = {k: v for k, v in asdict(args).items() if k not in ("data", "output", "checkpoints", "evaluate_only")}
    training = {"arguments": arguments, "parameters": model.num_parameters(), "epochs": state["epoch"]}
    training |= {
        "steps": state["step"],
        "minutes": round(state["seconds"] / 60, 1),
        "history": state["history"],
    }
    write_json(temporary / "training.json", training)
    shutil.rmtree(output, ignore_errors=True)
    os.replace(temporary, output)


@torch.no_grad()
def translate(model: MarianMTModel, tokenizer: PreTrainedTokenizerFast, sentences: list[str]) -> list[str]:
    """Beam search as the generation config says, 50 sentences of similar length at a time."""
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    translations = [""] * len(sentences)
    for start in tqdm(range(0, len(order), 50), desc="translate", leave=False):
        chosen = order[start : start + 50]
        inputs = tokenizer([sentences[i] for i in chosen], return_tensors="pt", padding=True, truncation=True)
        outputs = tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True)
        for i, text in zip(chosen, outputs, strict=True):
            translations[i] = text
    return translations


def evaluate(output: Path, test_pairs: list[Pair]) -> dict:
    """BLEU of the saved model on the held-out pairs, added to its `training.json` and model card."""
    tokenizer = AutoTokenizer.from_pretrained(output)
    model = AutoModelForSeq2SeqLM.from_pretrained(output, dtype=torch.float32).eval()
    sources, references = map(list, zip(*test_pairs, strict=True))
    metric = sacrebleu.BLEU()
    score = metric.corpus_score(translate(model, tokenizer, sources), [references])
    training = json.loads((output / "training.json").read_text(encoding="utf-8"))
    training["test"] = {
        "pairs": len(sources),
        "bleu": round(score.score, 2),
        "signature": str(metric.get_signature()),
    }
    write_json(output / "training.json", training)
    write_text(output / "README.md", model_card(training, model.config, model.generation_config.num_beams))
    return training["test"]


def model_card(training: dict, config: MarianConfig, beams: int) -> str:
    arguments, test = training["arguments"], training["test"]
    amount = f"--steps {arguments['steps']}" if arguments["steps"] else f"--minutes {arguments['minutes']:g}"
    return f"""---
language: [en, fr]
license: apache-2.0
library_name: transformers
pipeline_tag: translation
---
# English to French, small

A Marian model for the examples and tests of `hf_lrp`. It knows short everyday sentences; do not use it where
a wrong translation matters.

- layers: {config.encoder_layers} + {config.decoder_layers}, {config.encoder_attention_heads} heads each
- width: {config.d_model}, feed-forward {config.encoder_ffn_dim}
- vocabulary: {config.vocab_size}, BPE, both languages
- parameters: {training["parameters"]:,}, stored in half precision, loaded as float32

## Data
English-French sentence pairs of [Tatoeba](https://tatoeba.org), as collected by
[manythings.org/anki](https://www.manythings.org/anki). Licence of the sentences:
[CC BY 2.0 FR](https://creativecommons.org/licenses/by/2.0/fr/). No sentence is shipped.

Held out: English sentences, regarded without case, spaces and punctuation, are ordered by the SHA-256 of
their text.
The first {arguments["test_size"]} are for testing, the next {arguments["validation_size"]} for validation,
each with the first French translation in the file.
None of these English sentences is in the training data.

## Training
```
python recipes/train_embedded.py --data tatoeba-en-fr.tsv \\
    --output hf_lrp/embedded/tatoeba-en-fr {amount} --seed {arguments["seed"]}
```
{training["steps"]} steps in {training["minutes"]} minutes on a CPU.
With `--minutes`, the number of steps and so the score depend on the machine and on what else it does.
Settings and validation losses: `training.json`.

## Score
BLEU {test["bleu"]:.1f} on the {test["pairs"]} test pairs: one reference, detokenised, beam {beams},
`{test["signature"]}`.
"""


def main(arguments: list[str] | None = None) -> None:
    disable_progress_bar()  # transformers shows one per file saved
    (args,) = HfArgumentParser(Arguments).parse_args_into_dataclasses(arguments)
    train_pairs, validation_pairs, test_pairs = split_pairs(
        read_pairs(args.data), args.test_size, args.validation_size
    )
    if not args.evaluate_only:
        export(args, *train(args, train_pairs, validation_pairs))
    print(json.dumps(evaluate(Path(args.output), test_pairs)))


if __name__ == "__main__":
    torch.set_flush_denormal(True)  # denormal gradients are slow, and this is a process of its own
    main()
