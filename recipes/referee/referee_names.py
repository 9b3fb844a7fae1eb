"""What readers call methods, and the order in which tables have them."""

from __future__ import annotations

from collections.abc import Iterable

from judgement.questions import BASELINE

NAMES = {
    BASELINE: "αβ-LRP",
    "attn-lrp": "AttnLRP",
    "alti": "ALTI+",
    "attention": "attention",
    "gradient-norm": "gradient norm",
    "gradient-x-input": "gradient × input",
    "erasure": "erasure",
    "hf_lrp.align": "`hf_lrp.align`",
    "eflomal": "eflomal, this file alone",
    "eflomal-more": "eflomal, with more text",
    "hf-lrp score": "`hf-lrp score`",
    "nearest": "nearest tokens",
    "random-1": "random order",
    "random-2": "random order, again",
    "random-3": "random order, once more",
}


def name_of(method: str) -> str:
    """What readers call a method."""
    return NAMES.get(method, method)


def in_order(methods: Iterable[str]) -> list[str]:
    """Each method once: known ones as they stand above, then others."""
    known = list(NAMES)
    return sorted(dict.fromkeys(methods), key=lambda name: known.index(name) if name in known else -1)
