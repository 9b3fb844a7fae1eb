"""Time word links from heads against `Contributions.alignment()`, in turns on the same pairs, in processor seconds.

python recipes/links/link_speed.py --gold zh-en.tsv --model opus-mt-zh-en
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from word_links import read_gold

from hf_lrp.explaining.explainer import Explainer
from hf_lrp.links.aligner import Aligner
from hf_lrp.models.loading import load


def seconds(call: Callable[[], object]) -> float:
    """How much of the processor a call takes, all threads together."""
    started = time.process_time()
    call()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gold", type=Path, required=True, help="source, target and links, with tabs between them")
    parser.add_argument("--model", type=Path, required=True, help="a folder")
    parser.add_argument("--pairs", type=int, default=12, help="the first odd lines (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of both in turns (default: %(default)s)")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # alignment() points to align
    gold = read_gold(args.gold, turned=False)
    finding, pairs = gold.half(0), gold.half(1)
    sources, targets = ([" ".join(words) for words in side[: args.pairs]] for side in (pairs.sources, pairs.targets))
    model, tokenizer = load(args.model)
    aligner, explainer = Aligner(model, tokenizer), Explainer(model, tokenizer)
    found = seconds(lambda: aligner.find_heads(finding.sources, finding.targets))

    def by_heads() -> None:
        aligner.align(sources, targets)

    def by_contributions() -> None:
        for result in explainer.explain(sources, targets, predict="target"):
            result.alignment()

    by_heads()
    explainer.explain(sources[0], targets[0], predict="target").alignment()
    rounds = [(seconds(by_heads), seconds(by_contributions)) for _ in range(args.rounds)]
    ratios = [slow / fast for fast, slow in rounds]
    told = {
        "pairs": len(sources),
        "threads": torch.get_num_threads(),
        "align, seconds": [round(fast, 3) for fast, _ in rounds],
        "explain and alignment(), seconds": [round(slow, 3) for _, slow in rounds],
        "times as fast": {"each": [round(r, 1) for r in ratios], "median": round(statistics.median(ratios), 1)},
        "finding heads once, seconds": round(found, 1),
        "finding heads, pairs": len(finding.sources),
    }
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
