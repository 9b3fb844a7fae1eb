"""The measurements of error_signals.py: what forward passes say of each token of a case; R(source) of additions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from error_signal_cases import Case
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_lrp import Explainer
from hf_lrp.corpus.journal import Journal
from hf_lrp.corpus.support import OTHERS, ratios
from hf_lrp.data.files import write_atomically
from hf_lrp.inputs.prefixes import Prefix, seeded
from hf_lrp.links.agreement import find_heads
from hf_lrp.links.erasure import erasure
from hf_lrp.links.heads import Head
from hf_lrp.links.texts import piece_spans, read_texts
from hf_lrp.links.weights import HeadReader, PairsRead
from hf_lrp.models.words import group_words

HEADS = (4, 6, 8)
SENTENCES = 100  # to find heads on
BATCH = 16
CHUNK = 32  # cases between two writes
READINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "steps, then heads": lambda weights: weights.amax(1).mean(0),
    "heads, then steps": lambda weights: weights.mean(0).amax(0),
    "largest": lambda weights: weights.amax((0, 1)),
}


class Measurer:
    """A model with its tokenizer, and the folder in which what it made is kept."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, output: Path) -> None:
        self.model, self.tokenizer, self.output = model, tokenizer, output
        self.reader = HeadReader(model, tokenizer)
        self.heads: tuple[Head, ...] = ()

    def keep(self, name: str, make: Callable[[], list[Case]]) -> list[Case]:
        """Cases that were made before, or are made now and kept."""
        path = self.output / f"{name}.json"
        if not path.exists():
            write_atomically(path, json.dumps([case.as_dict() for case in make()], ensure_ascii=False).encode())
        return [Case(**row | {"marks": tuple(map(tuple, row["marks"]))}) for row in json.loads(path.read_text())]

    def find_heads(self, cases: Sequence[Case]) -> None:
        """The link heads, by agreement on own translations of the chosen half."""
        chosen = [case for case in cases if case.kind == "own" and case.chosen][:SENTENCES]
        texts = read_texts([c.source for c in chosen], "source"), read_texts([c.translation for c in chosen], "target")
        self.heads = find_heads(self.reader, *texts).heads[: max(HEADS)]

    def read(self, cases: Sequence[Case]) -> PairsRead:
        return self.reader.read([case.source for case in cases], [case.translation for case in cases])

    def translate(self, sources: Sequence[str], sample: bool = False) -> list[str]:
        """The model's greedy translations, or such as are drawn from its probabilities."""
        reading = self.reader.read(list(sources), list(sources)).reading
        options = {"num_beams": 1} | ({"do_sample": True, "top_k": 0} if sample else {})
        with seeded(0, self.model.device):
            return [self._text(prefix.ids) for prefix in reading.generate(self.model, BATCH, options, True)]

    def continue_after(self, sources: Sequence[str], texts: Sequence[str], count: int) -> list[tuple[str, str]]:
        """Greedy translations after the first tokens of these texts: all that is written, and the continuation."""
        pairs = self.reader.read(list(sources), list(texts))
        results: list[tuple[str, str]] = []
        for start in tqdm(range(0, len(sources), BATCH), desc=f"{count} forced"):
            numbers = range(start, min(start + BATCH, len(sources)))
            batch = pairs.reading.forward_batch(self.model, numbers, [pairs.prefixes[n] for n in numbers])
            begun = [_begin(pairs.prefixes[n], count) for n in numbers]
            kept = [row for row, ids in enumerate(begun) if ids is not None]
            found = dict.fromkeys(range(len(numbers)), ("", ""))
            if kept:
                inputs = {name: batch.inputs[name][kept] for name in ("input_ids", "attention_mask")}
                ids = torch.stack([begun[row] for row in kept])
                with torch.no_grad():
                    written = self.model.generate(
                        **inputs, decoder_input_ids=ids, num_beams=1, do_sample=False, max_new_tokens=100
                    )
                for row, output in zip(kept, written, strict=True):
                    found[row] = self._text(output), self._text(output[ids.shape[1] :])
            results += [found[row] for row in range(len(numbers))]
        return results

    def _text(self, ids: Tensor) -> str:
        return str(self.tokenizer.decode(ids.tolist(), skip_special_tokens=True)).strip()


def _begin(prefix: Prefix, count: int) -> Tensor | None:
    """The decoder's start and the first tokens of a text; None where it has no more tokens than these."""
    return torch.cat([prefix.prompt, prefix.ids[:count]]) if len(prefix.ids) > count + 1 else None


def _settings(measurer: Measurer, cases: Sequence[Case]) -> dict[str, Any]:
    return {"cases": _digest([case.as_dict() for case in cases]), "heads": [list(head) for head in measurer.heads]}


def measure(measurer: Measurer, group: str, cases: Sequence[Case]) -> list[dict[str, Any]]:
    """A row of signals of one forward pass for each case, in order; interrupted, it goes on."""
    journal = Journal(measurer.output / f"{group}.signals.jsonl", _settings(measurer, cases))
    with tqdm(total=len(cases), initial=len(journal.rows), desc="Forward passes") as bar:
        while len(journal.rows) < len(cases):
            for row in _signals(measurer, cases[len(journal.rows) : len(journal.rows) + CHUNK]):
                journal.append(row)
                bar.update()
    return [dict(row) for row in journal.rows]


def measure_slow(
    measurer: Measurer, group: str, cases: Sequence[Case], rows: Sequence[dict[str, Any]], limit: int
) -> None:
    """Add to the rows of some cases what takes long; interrupted, it goes on."""
    find = {"ratio": _ratio, "source_total": _source_total, "erasure": _erasure}
    settings = _settings(measurer, cases) | {"limit": limit}
    for name, wanted in _wanted(cases, limit).items():
        if not wanted:
            continue
        more = Journal(measurer.output / f"{group}.{name}.jsonl", settings)
        with tqdm(total=len(wanted), initial=len(more.rows), desc=name) as bar:
            for place in wanted[len(more.rows) :]:
                more.append({"values": find[name](measurer, cases, place)})
                bar.update()
        for place, row in zip(wanted, more.rows, strict=True):
            rows[place][name] = row["values"]


def _wanted(cases: Sequence[Case], limit: int) -> dict[str, list[int]]:
    """The places of the cases that a signal which takes long is measured on."""
    additions = ("addition", "made addition")
    return {
        "ratio": [
            *_first(cases, ("own", "sampled"), True, len(cases)),
            *_first(cases, (*additions, "clean"), False, limit),
            *_first(cases, (*additions, "clean"), True, limit),
        ],
        "source_total": _first(cases, (*additions, "forced, bad", "forced, good"), False, limit),
        "erasure": _first(cases, ("omission", "made omission"), False, limit),
    }


def _first(cases: Sequence[Case], names: Sequence[str], chosen: bool, limit: int) -> list[int]:
    """The places of so many cases of each group in one of the halves, in an order drawn by a hash."""
    order = sorted(range(len(cases)), key=lambda n: _digest([cases[n].source, cases[n].translation]))
    groups = ([n for n in order if cases[n].group == name and cases[n].chosen == chosen] for name in names)
    return [place for group in groups for place in group[:limit]]


def _signals(measurer: Measurer, cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Signals of one forward pass: by source token and by target token."""
    pairs = measurer.read(cases)
    found = dict(measurer.reader.weights(pairs, measurer.heads, log_probability=True))
    return [_row(measurer, case, pairs, n, found[n]) for n, case in enumerate(cases)]


def _row(measurer: Measurer, case: Case, pairs: PairsRead, number: int, found: Any) -> dict[str, Any]:
    vocabulary, weights = measurer.reader.vocabulary, found.weights.float()
    source, target = pairs.reading.sources.items[number], pairs.prefixes[number].ids
    sides = {}
    for side, ids, text in (("source", source, case.source), ("target", target, case.translation)):
        special = vocabulary.is_special(ids)
        spans = piece_spans(text, ids, side, vocabulary)
        marked = side == "source" if "omission" in case.kind else side == "target"
        sides[side] = {
            "text": [not s for s in special],
            "words": list(group_words(vocabulary.tokens(ids, side), special)),
            "spoken": [span is not None and any(map(str.isalnum, text[slice(*span)])) for span in spans],
            "marked": [marked and span is not None and _overlaps(span, case.marks) for span in spans],
        }
    coverage = {
        f"{count} heads, {name}": [round(v, 5) for v in read(weights[:count]).tolist()]
        for count in HEADS
        for name, read in READINGS.items()
    }
    return {
        "sides": sides,
        "coverage": coverage,
        "mean_weight": [round(v, 5) for v in weights[: HEADS[0]].mean((0, 1)).tolist()],
        "step_weight": [round(v, 5) for v in weights[: HEADS[0]].amax(2).mean(0).tolist()],
        "log_probability": [round(v, 4) for v in found.log_probability.tolist()],
        "length_ratio": len(target) / len(source),
    }


def _overlaps(span: tuple[int, int], marks: Sequence[tuple[int, int]]) -> bool:
    return any(span[0] < stop and start < span[1] for start, stop in marks)


def _ratio(measurer: Measurer, cases: Sequence[Case], place: int) -> list[float]:
    """Log-probability over its mean with the sources of four other clusters."""
    case = cases[place]
    alike = list(dict.fromkeys(c.source for c in cases if c.kind == case.kind and c.cluster != case.cluster))
    first = int(_digest([case.source])[:8], 16)
    chosen = [alike[(first + n * len(alike) // OTHERS) % len(alike)] for n in range(OTHERS)]
    others = [measurer.reader.read([source], [case.translation]) for source in chosen]
    (values,) = ratios(measurer.reader, measurer.read([case]), others)
    return [round(v, 4) for v in values.tolist()]


def _source_total(measurer: Measurer, cases: Sequence[Case], place: int) -> list[float]:
    explainer = Explainer(measurer.model, measurer.tokenizer)
    asked: dict[str, Any] = {"predict": "target", "source_tokens": False}
    result = explainer.explain(cases[place].source, cases[place].translation, **asked)
    return [round(v, 5) for v in result.source_total.tolist()]


def _erasure(measurer: Measurer, cases: Sequence[Case], place: int) -> list[float]:
    (falls,) = erasure(measurer.reader, measurer.read([cases[place]]))
    return [round(v, 4) for v in falls.tolist()]


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()
