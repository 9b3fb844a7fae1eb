"""What tells translation errors apart: link heads, log-probability, erasure, R(source)? Ask one checkpoint.

    python recipes/score/error_signals.py MODEL --data sources.txt references.txt --mqm mqm.tsv --output runs/signals

Fixed before any of the reported numbers was seen:

- *Own translations* are greedy. *Link heads* are found by agreement on those of the first 100 sentences of the chosen
  half, as `hf-lrp score` finds them; the best 8 are kept.
- *Halves.* Sentences with an even number, from 0, are to choose on; of MQM, the talk whose name comes first. All
  figures are of the other half. One thing is chosen: how a source token's coverage is read from the weights
  [heads, T, S] (with 4, 6 or 8 heads; the largest weight over the steps, averaged over heads before or after, or the
  largest of all), by the AUROC of tokens left out: of MQM's if it is given, else of the made ones.
- *Left out and added, made.* Of sentences with an inner comma, the last clause is cut away; the model translates both
  parts. Left out: the whole source with the translation of its first part. Added: the first part with the translation
  of both, one after the other. Signals are compared on the tokens of the clause against all others.
- *Forced beginnings.* The model translates greedily after 0, 1, 3, 5 or 8 tokens of its translation of the next
  sentence. Bad: the continuation has a chrF below 20; good: 35 or more. Also of outputs of 0.7 to 1.3 of the
  reference's length.
- *MQM.* Tokens in spans marked as omission or addition against the others of the same translations; tokens of
  mistranslations against the others of theirs. Sentences, of every third segment: with an omission, and with any
  major error of accuracy, against those without any error of accuracy. All systems and human translations count.
- Ratios, erasure and R(source), which take long, are measured on the first `--slow` cases of each kind of the reported
  half, in an order drawn by a hash; of forced beginnings, of the bad ones and of the good ones. There R(source) is the
  mean from the second step on, and other signals are given for the same cases.
- *Flags* are words rarer than 0.1 to 5 % of the words in the model's own translations of the chosen half. For words
  without support, four ways to flag are compared on the chosen half: log-probability or its ratio to four other
  sources (on `--slow` cases of each kind), against greedy translations or against such as are drawn from the model's
  probabilities. The default becomes the one, with its rarity, that flags most of the words added (MQM's and made, half
  each) among those that flag at most 5 % of the words in others' translations without errors of accuracy; one pass
  rather than five where it flags at most 5 % fewer. Where none flags so few, the default stays.
- AUROC with 95 % intervals from 1,000 bootstrap draws of sentences (MQM: of segments, with all their translations).

Interrupted, the same command continues. Results, without any sentence: `results.json`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from error_signal_cases import Case, forced_cases, made_cases, mqm_cases, own_cases, sampled_cases
from error_signal_figures import evaluate, show
from error_signal_measures import Measurer, measure, measure_slow

from hf_lrp.data.files import write_atomically
from hf_lrp.data.pairs import hold_out, load_pairs
from hf_lrp.models.loading import load_checkpoint

SLOW_GROUPS = ("forced", "own", "sampled", "made", "mqm")  # in the order in which they are measured


def main(arguments: Sequence[str] | None = None) -> None:
    options = _read_options(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    model, tokenizer = load_checkpoint(options.model)
    pairs = load_pairs(options.data if len(options.data) > 1 else options.data[0])
    if options.held_out:
        pairs = hold_out(pairs)[1]
    sources, references = (list(pairs[side])[: options.number] for side in ("source", "target"))
    measurer = Measurer(model, tokenizer, options.output)
    own = measurer.keep("own", lambda: own_cases(measurer, sources, references))
    measurer.find_heads(own)
    groups: dict[str, Callable[[], list[Case]]] = {
        "own": lambda: own,
        "sampled": lambda: sampled_cases(measurer, own),
        "mqm": lambda: [] if options.mqm is None else mqm_cases(options.mqm),
        "made": lambda: made_cases(measurer, sources, options.comma),
        "forced": lambda: forced_cases(measurer, own, references),
    }
    settings = {
        "model": None if options.model is None else Path(options.model).name,
        "data": [Path(file).name for file in options.data],
        "heads": [list(head) for head in measurer.heads],
    }
    found = {name: measurer.keep(name, make) for name, make in groups.items()}
    rows = {name: measure(measurer, name, cases) for name, cases in found.items()}
    every = [case for cases in found.values() for case in cases], [row for group in rows.values() for row in group]
    for name in (None, *SLOW_GROUPS):
        if name is not None:
            measure_slow(measurer, name, found[name], rows[name], options.slow)
        results = settings | evaluate(*every)
        write_atomically(options.output / "results.json", (json.dumps(results, indent=1) + "\n").encode())
    show(results)


def _read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="folder or Hub id (default: the embedded model)")
    parser.add_argument("--data", nargs="+", required=True, help="a TSV file of pairs, or two text files")
    parser.add_argument("--held-out", action="store_true", help="take the test pairs that recipes/train.py holds out")
    parser.add_argument("--mqm", type=Path, help="a TSV file of errors that raters marked")
    parser.add_argument("--output", type=Path, required=True, help="folder")
    parser.add_argument("--number", type=int, default=240, help="of sentences")
    parser.add_argument("--comma", default=", ", help="what parts clauses in sources")
    parser.add_argument(
        "--slow", type=int, default=60, help="how many cases of a kind are measured by erasure, or R(source)"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
