"""The page of `hf-lrp score`: pairs with their numbers, flagged words underlined on both sides."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from hf_lrp.data.files import write_atomically
from hf_lrp.pages.skeleton import render

TITLE = "Translations and their sources"
MOST_ON_PAGE = 1000
STYLES = ("page.css", "report.css", "scores.css")
LEFT_OUT = {
    "coverage": "the link heads nowhere look at it: {value:.2f}",
    "erasure": "without it, the translation's log-probability falls by {value:.2f}",
}
WITHOUT_SUPPORT = {
    "log-probability": "its log-probability is {value:.2f}",
    "ratio": "its log-probability is {value:+.2f} above its mean with other sources",
}


def render_scores(
    rows: Sequence[Mapping[str, Any]], sentences: int, rarity: tuple[float, float], measures: tuple[str, str]
) -> str:
    """The page of some rows of `hf_lrp.corpus.scoring.score_corpus`, least covered sources first, 1,000 at most.

    Args:
        sentences: how many translations of the model say what is usual.
        rarity: what is flagged of source and target words.
        measures: what source and target words are measured by.
    """
    order = sorted(range(len(rows)), key=lambda n: (rows[n]["coverage"], n))[:MOST_ON_PAGE]
    entries = [_entry(n + 1, rows[n], measures) for n in order]
    return render(
        "scores.html",
        styles=STYLES,
        scripts=("scores.js",),
        title=TITLE,
        entries=entries,
        number=len(rows),
        sentences=sentences,
        rarity=[f"{100 * share:g} %" for share in rarity],
        source_share=any(row["source_total"] is not None for row in rows),
    )


def write_scores(
    path: str | os.PathLike[str],
    rows: Sequence[Mapping[str, Any]],
    sentences: int,
    rarity: tuple[float, float],
    measures: tuple[str, str],
) -> None:
    """Write `render_scores` to a file, which replaces an old one only once all is written."""
    write_atomically(path, render_scores(rows, sentences, rarity, measures).encode())


def _entry(number: int, row: Mapping[str, Any], measures: tuple[str, str]) -> dict[str, Any]:
    flags = sum(word["flagged"] for side in ("source_words", "target_words") for word in row[side])
    return {
        "number": number,
        "flags": flags,
        "coverage": row["coverage"],
        "coverage_rank": _percent(row["coverage_rank"]),
        "log_probability": row["log_probability"],
        "log_probability_rank": _percent(row["log_probability_rank"]),
        "source_total": row["source_total"],
        "source": _marked(row["source"], row["source_words"], LEFT_OUT[measures[0]]),
        "translation": _marked(row["translation"], row["target_words"], WITHOUT_SUPPORT[measures[1]]),
    }


def _percent(rank: float) -> str:
    return f"{100 * rank:.0f} %"


def _marked(text: str, words: Sequence[Mapping[str, Any]], reason: str) -> list[tuple[str, str | None]]:
    """The text in parts, each with the reason for its flag, or None."""
    parts: list[tuple[str, str | None]] = []
    at = 0
    for word in words:
        if not word["flagged"] or word["span"] is None or word["span"][0] < at:
            continue
        start, stop = word["span"]
        rank = f"{100 * word['rank']:.1f} % of the words in the model's own translations have less"
        parts += [(text[at:start], None), (text[start:stop], f"{reason.format(value=word['value'])}; {rank}")]
        at = stop
    return [part for part in (*parts, (text[at:], None)) if part[0]]
