"""C8 to C10: training objectives, each compared with the baseline of the same seed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from claims import sizes
from claims.curves import Curves, difference
from claims.intervals import NOTHING, mean_interval
from claims.verdicts import Claim, Statement, Wanted, at_least, at_most, within

BASELINE, SOURCE_DROPOUT, TARGET_DROPOUT, MINIMUM_RISK = (
    "baseline",
    "source word dropout",
    "target word dropout",
    "minimum risk",
)
KINDS = (BASELINE, SOURCE_DROPOUT, TARGET_DROPOUT, MINIMUM_RISK)
MORE, LESS, SAME = at_least(sizes.CONTRIBUTION), at_most(-sizes.CONTRIBUTION), within(sizes.CONTRIBUTION)
WIDER, NARROWER = at_least(sizes.ENTROPY), at_most(-sizes.ENTROPY)

_WORDS = {"source_total": "R(source)", "source_entropy": "source entropy"}


def own_prefixes_source(own: Mapping[str, Curves], unconverged: Collection[str] = ()) -> Claim:
    """C8. "Not noticeably" is an equivalence: the whole interval lies within what is a change for the others."""
    wanted = {MINIMUM_RISK: MORE, TARGET_DROPOUT: MORE, SOURCE_DROPOUT: SAME}
    statements = (_compare(own, "source_total", kind, BASELINE, size, unconverged) for kind, size in wanted.items())
    text = "model prefixes: MRT and target-side word dropout raise R(source), source-side does not change it"
    return Claim("C8", text, tuple(statements))


def own_prefixes_entropy(own: Mapping[str, Curves], unconverged: Collection[str] = ()) -> Claim:
    """C9."""
    wanted = {MINIMUM_RISK: NARROWER, TARGET_DROPOUT: WIDER, SOURCE_DROPOUT: WIDER}
    statements = (_compare(own, "source_entropy", kind, BASELINE, size, unconverged) for kind, size in wanted.items())
    return Claim(
        "C9", "model prefixes: only MRT lowers source entropy, both word dropouts raise it", tuple(statements)
    )


def random_prefixes(random: Mapping[str, Curves], unconverged: Collection[str] = ()) -> Claim:
    """C10. The highest of four is compared with each of the others."""
    others = (BASELINE, TARGET_DROPOUT, SOURCE_DROPOUT)
    statements = (
        *(_compare(random, "source_total", MINIMUM_RISK, other, MORE, unconverged) for other in others),
        *(_compare(random, "source_entropy", MINIMUM_RISK, other, NARROWER, unconverged) for other in others),
        _compare(random, "source_total", TARGET_DROPOUT, BASELINE, MORE, unconverged),
        _compare(random, "source_total", SOURCE_DROPOUT, BASELINE, LESS, unconverged),
    )
    text = (
        "random prefixes: MRT has the highest R(source) and the lowest source entropy; target-side word dropout "
        "raises R(source), source-side lowers it"
    )
    return Claim("C10", text, statements)


def _compare(
    curves: Mapping[str, Curves], quantity: str, kind: str, other: str, wanted: Wanted, unconverged: Collection[str]
) -> Statement:
    text = f"{_WORDS[quantity]}, {kind} - {other}"
    missing = [name for name in (kind, other) if name not in curves]
    if not missing and not set(curves[kind].seeds) & set(curves[other].seeds):
        missing = [f"{kind} and {other} of one seed"]
    if missing:
        return Statement(text, NOTHING, wanted, f"no model: {', '.join(missing)}")
    interval = mean_interval(difference(curves[kind], curves[other], quantity))
    doubt = doubt_of_comparison(interval.seeds, [name for name in (kind, other) if name in unconverged])
    return Statement(text, interval, wanted, doubt)


def doubt_of_comparison(seeds: int, unconverged: Collection[str]) -> str:
    """Why kinds of models cannot be compared; empty if they can."""
    if unconverged:
        return f"not converged: {', '.join(unconverged)}"
    return "one seed: models of one kind may differ as much" if seeds < 2 else ""
