"""Does the source's share tell detached translations from real ones? Ask one checkpoint, on one corpus.

    python recipes/score/detached_translations.py MODEL --data sources.txt references.txt --output runs/detached

Each source is paired with the model's own translation of it; with a detached one, the model's translation of another
sentence of about the same length; with one whose second half is detached; and with the human reference. Half of the
sentences calibrate the score of `hf-lrp score`; on the other half it is compared with the mean log-probability of the
same tokens: AUROC with bootstrap intervals over sentences, as a table, `results.json` and `roc.png`.
Interrupted, the same command continues.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_lrp import Contributions, explain
from hf_lrp.corpus.calibration import Calibration, calibrate
from hf_lrp.corpus.journal import Journal
from hf_lrp.corpus.scoring import THRESHOLD
from hf_lrp.data.files import write_atomically
from hf_lrp.data.pairs import load_pairs, nested_subset
from hf_lrp.inputs.ids import read_sources
from hf_lrp.inputs.prefixes import DecoderPrompts
from hf_lrp.kinds.encoder_decoder import Encoded
from hf_lrp.models.loading import load_checkpoint
from hf_lrp.models.vocabulary import Vocabulary
from hf_lrp.pictures.look import FAINT, PAGE, new_figure, printed_look
from hf_lrp.results.intervals import CONFIDENCE, DRAWS, Estimate

BATCH = 16  # sentences that are translated together
# What is told apart: the translations that should have the lower scores, and the others.
COMPARISONS = (("detached", "own"), ("half", "own"), ("detached", "reference"), ("reference", "own"))
SIGNALS = ("score", "log_probability", "both")
COLOURS = {"score": "#0072B2", "log_probability": "#D55E00", "both": "#009E73"}
LABELS = {"score": "R(source) score", "log_probability": "log-probability", "both": "mean of both"}


class Sentence(NamedTuple):
    """A source with its translations as ids; `partner`: the sentence whose translation is the detached one."""

    source: list[int]
    own: list[int]
    reference: list[int]
    partner: int


class Measured(NamedTuple):
    """R_t(source) and the token's log-probability at each step, [T]; and whether the token is detached."""

    source_total: np.ndarray
    log_probability: np.ndarray
    is_detached: np.ndarray


def main(arguments: Sequence[str] | None = None) -> None:
    options = _read_options(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    model, tokenizer = load_checkpoint(options.model)
    sentences = prepare(model, tokenizer, options)
    rows = measure(model, sentences, Journal(options.output / "measurements.jsonl", {"sentences": len(sentences)}))
    results, curves = evaluate(sentences, rows)
    content = {"settings": _settings(options), **results}
    write_atomically(options.output / "results.json", (json.dumps(content, indent=1) + "\n").encode())
    draw(results, curves).savefig(options.output / "roc.png", dpi=160)
    show(results)


def _read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="folder or Hub id (default: the embedded model)")
    parser.add_argument("--data", nargs="+", required=True, help="a TSV file of pairs, or two text files")
    parser.add_argument("--output", type=Path, required=True, help="folder")
    parser.add_argument("--number", type=int, default=200, help="of sentences; half of them calibrate")
    parser.add_argument("--lengths", type=int, nargs=2, default=[8, 30], help="least and most tokens of a source")
    parser.add_argument("--seed", type=int, default=0, help="which sentences are taken")
    return parser.parse_args(arguments)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    names = [Path(file).name for file in options.data]
    model = None if options.model is None else Path(options.model).name
    rest = {name: getattr(options, name) for name in ("number", "lengths", "seed")}
    return {"model": model, "data": names, **rest}


# ---- sentences


def prepare(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, options: argparse.Namespace) -> list[Sentence]:
    """The sentences with the model's translations; from the output folder if they are there."""
    path = options.output / "sentences.json"
    if path.exists():
        stored = json.loads(path.read_text())
        if stored["settings"] != _settings(options):
            raise SystemExit(f"{options.output} holds a run with other settings: take another folder.")
        return [Sentence(**row) for row in stored["sentences"]]
    vocabulary = Vocabulary(model, tokenizer)
    sources, references = _select(vocabulary, options)
    prompts = DecoderPrompts(model, vocabulary, {})
    prefixes = Encoded(read_sources(sources, vocabulary), prompts).generate(model, BATCH, {}, True)
    owns = [prefix.ids.tolist() for prefix in prefixes]
    if not _keeps_tokens(vocabulary, owns):
        print("The tokenizer does not split translations as the model writes them: references are left out.")
        references = [[] for _ in references]
    half = options.number // 2
    partners = [*partners_by_length(owns[:half]), *(half + i for i in partners_by_length(owns[half:]))]
    sentences = [Sentence(*row) for row in zip(sources, owns, references, partners, strict=True)]
    content = {"settings": _settings(options), "sentences": [sentence._asdict() for sentence in sentences]}
    write_atomically(path, json.dumps(content).encode())
    return sentences


def _select(vocabulary: Vocabulary, options: argparse.Namespace) -> tuple[list[list[int]], list[list[int]]]:
    """Ids of sources and references: a random sample of the pairs whose source has a fitting length."""
    pairs = load_pairs(options.data if len(options.data) > 1 else options.data[0])
    least, most = options.lengths
    lengths = [len(ids) for ids in vocabulary.encode(list(pairs["source"]), "source")]
    fitting = pairs.select([n for n, length in enumerate(lengths) if least <= length <= most])
    chosen = nested_subset(fitting, options.number, options.seed)
    return vocabulary.encode(list(chosen["source"]), "source"), vocabulary.encode(list(chosen["target"]), "target")


def _keeps_tokens(vocabulary: Vocabulary, translations: Sequence[list[int]]) -> bool:
    """Whether at least half of the translations become the same ids again when their text is encoded."""
    assert vocabulary.tokenizer is not None
    texts = [str(vocabulary.tokenizer.decode(ids, skip_special_tokens=True)) for ids in translations]
    kept = [
        bool(t.strip()) and vocabulary.encode([t], "target")[0] == i for t, i in zip(texts, translations, strict=True)
    ]
    return sum(kept) >= len(kept) / 2


def partners_by_length(translations: Sequence[Sequence[int]]) -> list[int]:
    """For each translation another one of about its length: neighbours in the order of lengths exchange theirs.

    Of an odd number, the last three go round. Equal translations may be partners only if most are equal.
    """
    order = sorted(range(len(translations)), key=lambda i: (len(translations[i]), list(translations[i])))
    partners = [0] * len(order)
    starts = list(range(0, len(order) - 1, 2))
    for first in starts:
        group = order[first:] if first == starts[-1] else order[first : first + 2]
        for place, number in enumerate(group):
            partners[number] = group[(place + 1) % len(group)]
    return partners


def translation_of(sentences: Sequence[Sentence], number: int, kind: str) -> tuple[list[int], list[bool]]:
    """Ids of the translation of a kind, and which of them are detached."""
    own, other = sentences[number].own, sentences[sentences[number].partner].own
    if kind == "half":
        start, end = own[: len(own) // 2], other[len(other) // 2 :]
        return start + end, [False] * len(start) + [True] * len(end)
    ids = {"own": own, "detached": other, "reference": sentences[number].reference}[kind]
    return ids, [kind == "detached"] * len(ids)


# ---- measuring


def measure(
    model: PreTrainedModel, sentences: Sequence[Sentence], journal: Journal
) -> dict[tuple[int, str], Measured]:
    """R_t(source) and log-probabilities by sentence and kind, in the first half of own translations only.

    What the journal has is not measured again.
    """
    done = {(row["sentence"], row["kind"]) for row in journal.rows}
    kinds = ["own", "detached", "half", *(["reference"] if sentences[0].reference else [])]
    half = len(sentences) // 2
    jobs = [(number, kind) for number in range(len(sentences)) for kind in (kinds if number >= half else ["own"])]
    for number, kind in tqdm([job for job in jobs if job not in done], desc="Measuring"):
        ids, _ = translation_of(sentences, number, kind)
        result = explain(model, None, sentences[number].source, ids, predict="target")
        assert isinstance(result, Contributions)
        numbers = {name: getattr(result, name).tolist() for name in ("source_total", "log_probability")}
        journal.append({"sentence": number, "kind": kind, **numbers})
    return {
        (row["sentence"], row["kind"]): Measured(
            np.array(row["source_total"]),
            np.array(row["log_probability"]),
            np.array(translation_of(sentences, row["sentence"], row["kind"])[1]),
        )
        for row in journal.rows
    }


# ---- evaluating


def evaluate(
    sentences: Sequence[Sentence], measured: Mapping[tuple[int, str], Measured]
) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """AUROCs on the second half of the sentences, calibrated on the first; and the points of ROC curves."""
    half = len(sentences) // 2
    owns = [measured[number, "own"] for number in range(half)]
    rows = [{"curve": own.source_total, "kept": True} for own in owns]
    calibration = calibrate(rows, model="", weights="", sources="")
    usual = np.array([own.log_probability.mean() for own in owns])
    test = range(half, len(sentences))
    values = {
        kind: {n: _signals(measured[n, kind], calibration, usual) for n in test}
        for kind in dict.fromkeys(kind for _, kind in measured)
    }
    results: dict[str, Any] = {"sentences": {"calibration": half, "test": len(test)}, "comparisons": {}}
    curves: dict[str, dict[str, np.ndarray]] = {}
    for low, high in COMPARISONS:
        if low in values and high in values:
            name = f"{low} from {high}"
            pairs = {s: [([values[low][n][s]], [values[high][n][s]]) for n in test] for s in SIGNALS}
            results["comparisons"][name] = {s: bootstrap_auroc(pairs[s])._asdict() for s in SIGNALS}
            curves[name] = {s: roc(*_joined(pairs[s])) for s in SIGNALS}
    pairs = {s: [_tokens(measured[n, "half"], calibration, s) for n in test] for s in SIGNALS[:2]}
    name = "detached tokens within a sentence"
    results["comparisons"][name] = {s: bootstrap_auroc(pairs[s])._asdict() for s in pairs}
    curves[name] = {s: roc(*_joined(pairs[s])) for s in pairs}
    results["tokens_below_threshold"] = {
        kind: _share_below([calibration.z_scores(measured[n, kind].source_total) for n in test]) for kind in values
    }
    results["mean_source_share"] = {
        kind: float(np.mean([measured[n, kind].source_total[1:].mean() for n in test])) for kind in values
    }
    return results, curves


def _signals(measured: Measured, calibration: Calibration, usual: np.ndarray) -> dict[str, float]:
    """What a translation is judged by; low is suspicious. `both` is the mean of two standardised values."""
    score = float(np.nanmean(calibration.z_scores(measured.source_total)))
    log_probability = float(measured.log_probability.mean())
    standardised = (log_probability - usual.mean()) / usual.std(ddof=1)
    return {"score": score, "log_probability": log_probability, "both": (score + standardised) / 2}


def _tokens(measured: Measured, calibration: Calibration, signal: str) -> tuple[list[float], list[float]]:
    """The values of detached and of other tokens, from the second step on."""
    values = calibration.z_scores(measured.source_total) if signal == "score" else measured.log_probability
    values, is_detached = values[1:], measured.is_detached[1:]
    return values[is_detached].tolist(), values[~is_detached].tolist()


def _share_below(curves: Sequence[np.ndarray]) -> float:
    return float((np.concatenate([curve[1:] for curve in curves]) < THRESHOLD).mean())


def _joined(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> tuple[np.ndarray, np.ndarray]:
    low, high = zip(*pairs, strict=True)
    return np.concatenate(low), np.concatenate(high)


def auroc(low: np.ndarray, high: np.ndarray) -> float:
    """How often a value of `low` is below one of `high`; ties count half."""
    ordered = np.sort(high)
    below, not_above = np.searchsorted(ordered, low, "left"), np.searchsorted(ordered, low, "right")
    return float(1 - (below + not_above).mean() / (2 * len(high)))


def bootstrap_auroc(pairs: Sequence[tuple[Sequence[float], Sequence[float]]], seed: int = 0) -> Estimate:
    """The AUROC over values of sentences, which should be low and high, with an interval from drawing sentences."""
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(DRAWS):
        low, high = _joined([pairs[i] for i in rng.integers(len(pairs), size=len(pairs))])
        drawn.append(auroc(low, high))
    ends = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(auroc(*_joined(pairs)), *map(float, ends))


def roc(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Points [n, 2] of the curve: the share of `high` and of `low` that are at or below each threshold."""
    thresholds = np.concatenate([[-np.inf], np.unique(np.concatenate([low, high]))])
    return np.array([[(high <= x).mean(), (low <= x).mean()] for x in thresholds])


# ---- showing


def show(results: Mapping[str, Any], console: Console | None = None) -> None:
    """Print a table of AUROCs with their intervals."""
    number = results["sentences"]["test"]
    table = Table("", *LABELS.values(), title=f"AUROC, {CONFIDENCE:.0%} intervals over {number} sentences")
    for name, estimates in results["comparisons"].items():
        cells = (estimates.get(signal) for signal in SIGNALS)
        table.add_row(
            name, *("" if e is None else f"{e['value']:.3f} [{e['low']:.3f}, {e['high']:.3f}]" for e in cells)
        )
    (console or Console(width=119)).print(table, "tokens below the threshold:", results["tokens_below_threshold"])


def draw(results: Mapping[str, Any], curves: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    """A ROC curve per comparison and signal."""
    columns = min(3, len(curves))
    rows = -(-len(curves) // columns)
    with printed_look():
        figure = new_figure(PAGE, rows * 2.35)
        panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes in panels.flat[len(curves) :]:
            axes.remove()
        for number, (axes, (name, by_signal)) in enumerate(zip(panels.flat, curves.items(), strict=False)):
            axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
            for signal in [signal for signal in by_signal if signal != "both"]:
                value = results["comparisons"][name][signal]["value"]
                style = {"color": COLOURS[signal], "linestyle": "-" if signal == "score" else "--"}
                axes.plot(*by_signal[signal].T, **style, linewidth=1.4, label=f"{LABELS[signal]} {value:.2f}")
            axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
            axes.set_title(name, fontsize=7)
            axes.legend(fontsize=6.5, loc="lower right", handlelength=2)
            axes.set_xlabel("false alarms" if number + columns >= len(curves) else "")
            axes.tick_params(labelbottom=number + columns >= len(curves))
            axes.set_ylabel("found" if number % columns == 0 else "")
    return figure


if __name__ == "__main__":
    main()
