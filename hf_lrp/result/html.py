"""Contributions as HTML: a heat map in a table, without scripts and with nothing loaded from elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hf_lrp.data.files import write_atomically
from hf_lrp.data.pages import render
from hf_lrp.result.quantities import describe_mean

if TYPE_CHECKING:
    from hf_lrp.result.contributions import Contributions

_COLUMNS_WITH_NUMBERS = 30  # with more columns cells are small squares, and shares are shown on hovering only
_POSITIVE, _NEGATIVE = "29,95,184", "190,80,10"


def render_page(contributions: Sequence[Contributions], title: str = "Source and target contributions") -> str:
    """One self-contained page with all the contributions, in light and dark colours."""
    return render("results.html", title=title, results=[_describe(c) for c in contributions])


def write_page(path: str | os.PathLike[str], contributions: Sequence[Contributions]) -> None:
    """Write one page with all the contributions, which replaces an old one only once all is written."""
    write_atomically(path, render_page(contributions).encode())


def render_fragment(contributions: Contributions) -> str:
    """One `Contributions` with its styles, to be put into a page or a notebook."""
    return render("fragment.html", c=_describe(contributions))


def _describe(c: Contributions) -> dict[str, Any]:
    """What the template `contributions.html` shows."""
    source, target, _ = c.labels
    signed = bool(min(c.source.min(), c.target.min()) < 0)
    colors = [f"rgba({_NEGATIVE},.9)"] * signed + [f"rgba({_POSITIVE},0)", f"rgba({_POSITIVE},.9)"]
    dense = len(source) + len(target) > _COLUMNS_WITH_NUMBERS
    return {
        "model": c.model,
        "mean": describe_mean(c.mean()["source_total"]),
        "details": {
            "rule": c.rule,
            "prefix": c.prefix,
            "predicted": c.predict,
            "start token": c.start_token,
            "propagated in": c.dtype,
            "conservation error": f"{c.conservation_error:.1g}",
        },
        "notes": c.notes,
        "others": c.is_written.count(False),
        "lowest": f"{-c.color_limit:.2g}" if signed else "0",
        "highest": f"{c.color_limit:.2g}",
        "gradient": f"linear-gradient(to right,{','.join(colors)})",
        "level": c.level,
        "dense": dense,
        "source": source,
        "target": target,
        "rows": list(_rows(c, dense)),
    }


def _rows(c: Contributions, dense: bool) -> Iterator[dict[str, Any]]:
    """A row per step: the explained token, R(source) as a bar, and a cell per input that is known."""
    source, target, predicted = c.labels
    shares = zip(predicted, c.source.tolist(), c.target.tolist(), strict=True)
    totals, abouts = c.source_total.tolist(), _totals(c)
    known = c.known.sum(1).tolist()
    for row, (name, source_shares, target_shares) in enumerate(shares):
        written, step = known[row], c.steps[row]
        cells = _cells(source, source_shares, c.color_limit, dense)
        yield {
            "step": step,
            "name": name,
            "probability": f"{c.probability[row]:.3g}",
            "logit": f"{c.logits[row]:.4g}",
            "other": "" if c.is_written[row] else target[step - 1],
            "about": abouts[row],
            "total": f"{totals[row]:.3f}",
            "width": f"{100 * min(max(totals[row], 0.0), 1.0):.1f}",
            "cells": cells + _cells(target[:written], target_shares, c.color_limit, dense),
            "later": len(target) - written,
            "later_kind": "later" if written else "later first",
        }


def _cells(labels: Sequence[str], shares: Sequence[float], limit: float, dense: bool) -> list[dict[str, str]]:
    """Cells of one step for the inputs of one side; the colour is given by its opacity."""
    cells = []
    for i, (label, share) in enumerate(zip(labels, shares, strict=False)):
        strength = min(abs(share) / limit, 1.0)
        kinds = ["first"] * (i == 0) + ["strong"] * (strength > 0.6) + ["negative"] * (share < 0)
        cells.append(
            {
                "label": label,
                "kind": " ".join(kinds),
                "opacity": f"{0.9 * strength:.2f}",
                "share": f"{share:.4f}",
                "number": "" if dense else f"{share:.2f}".replace("0.", ".", 1),
            }
        )
    return cells


def _totals(c: Contributions) -> list[str]:
    """What is said on hovering over the bar of R(source), for each step."""
    totals = zip(c.source_total.tolist(), c.target_total.tolist(), c.start.tolist(), strict=True)
    entropies = zip(c.source_entropy.tolist(), c.target_entropy.tolist(), strict=True)
    start = " ".join(c.start_tokens) if c.start_tokens else "the start token"
    return [
        f"R(source) {source:.4f}, R(target) {target:.4f}, raw share of {start} {raw:.4f}; "
        f"entropy of source {source_entropy:.3f}, of target {target_entropy:.3f}"
        for (source, target, raw), (source_entropy, target_entropy) in zip(totals, entropies, strict=True)
    ]
