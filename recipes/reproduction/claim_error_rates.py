"""How often the rules of the claims err, on made-up contributions for which the truth is known.

    python recipes/reproduction/claim_error_rates.py

prints the tables of docs/claim_rules.md.
"""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import product

import numpy as np
from simulated_claims import CASES, SIMULATIONS, World, applies

SETS = 200
SEEDS = {"C11": 2}  # amounts of data: two seeds of each of four amounts; three seeds elsewhere
SENTENCES = dict.fromkeys(("C12", "C13", "C14", "C15"), 100)  # of a timeline; 300 elsewhere
COMPARISONS = ("C8", "C9", "C10", "C11")
DEVIATIONS = (0.0015, 0.003, 0.006, 0.012)


def count_verdicts(claim: str, case: str, sets: int, **world: float) -> Counter[str]:
    """How often each verdict comes out, in so many sets of contributions."""
    settings = {"seeds": SEEDS.get(claim, 3), "sentences": SENTENCES.get(claim, 300), **world}
    number, kind = list(SIMULATIONS).index(claim), list(CASES).index(case)
    draws = (np.random.default_rng([number, kind, repeat]) for repeat in range(sets))
    return Counter(SIMULATIONS[claim](World(draw, case, **settings)).verdict for draw in draws)


def error_table(sets: int) -> str:
    """By claim, how often it holds in each case; where it is true also how often it does not."""
    lines = ["| claim | true: holds | does not hold | " + " | ".join(list(CASES)[1:]) + " |"]
    lines.append("| --- " * (len(CASES) + 2) + "|")
    for claim in SIMULATIONS:
        cells = [claim]
        for case in CASES:
            found = count_verdicts(claim, case, sets) if applies(claim, case) else None
            cells.append("" if found is None else _percent(found["holds"], sets))
            if case == "true" and found is not None:
                cells.append(_percent(found["does not hold"], sets))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def seed_table(sets: int) -> str:
    """How often claims that compare models hold where they are true, and where an effect is just the minimum."""
    lines = ["| deviation between seeds | seeds | " + " | ".join(COMPARISONS) + " |"]
    lines.append("| --- " * (len(COMPARISONS) + 2) + "|")
    for deviation, seeds in product(DEVIATIONS, (2, 3, 5)):
        world = {"seeds": seeds, "seed_deviation": deviation}
        cells = [_rates(claim, sets, world) for claim in COMPARISONS]
        lines.append(f"| {deviation:g} | {seeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _rates(claim: str, sets: int, world: dict[str, float]) -> str:
    counts = (count_verdicts(claim, case, sets, **world)["holds"] for case in ("true", "smallest"))
    return " / ".join(_percent(count, sets) for count in counts)


def _percent(number: int, sets: int) -> str:
    return f"{100 * number / sets:.3g} %"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=SETS, help="made-up sets of contributions per claim and case")
    options = parser.parse_args(arguments)
    print(error_table(options.sets), seed_table(max(options.sets // 4, 1)), sep="\n\n")


if __name__ == "__main__":
    main()
