"""The way of relevance through the layers for one sentence, as an HTML page that needs nothing else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hf_lrp.data.files import write_atomically
from hf_lrp.data.naming import short_name
from hf_lrp.models.words import plain_tokens
from hf_lrp.pages.skeleton import as_json, render
from hf_lrp.results.inside import HEADS, Inside

if TYPE_CHECKING:
    from hf_lrp.results.contributions import Contributions

TITLE = "The way through the layers"
DIGITS = 4  # of shares
_THINNEST = 0.004  # shares of pairs below this are not drawn
_BLOCKS = ("encoder.feed_forward", "decoder.feed_forward")


def render_flow(contributions: Contributions, title: str = TITLE) -> str:
    """A page with both stacks, layers from bottom to top: choose a predicted word, and see where it came from.

    Args:
        contributions: of one sentence, explained with ``inside=True``, or with ``inside="pairs"``, which also draws
            what goes from position to position. Between words where all steps are there, else between tokens.
        title: of the page.
    """
    c = contributions
    if c.inside is None:
        raise ValueError("These contributions have no inside to draw: explain with inside=True or inside='pairs'.")
    if len(c) == len(c.target_tokens):
        c = c.merge_subwords()
    return render(
        "flow.html",
        styles=("page.css", "flow.css"),
        scripts=("flow.js", "flow_panels.js"),
        title=title,
        about=f"{short_name(c.model)}, prefix: {c.prefix}, {len(c)} {c.level}s, {c.method}",
        flow=as_json(flow_data(c)),
    )


def write_flow(path: str | os.PathLike[str], contributions: Contributions, title: str = TITLE) -> None:
    """Write `render_flow` to a file, which replaces an old one only once all is written."""
    write_atomically(path, render_flow(contributions, title).encode())


def flow_data(c: Contributions) -> dict[str, Any]:
    """Data of the page, by step: shares at positions, sent, through heads and blocks, and from place to place."""
    inside = c.inside
    assert inside is not None
    return {
        "predicted": list(c.labels[2]),
        "steps": list(c.steps),
        "tokens": {side: list(plain_tokens(tokens)) for side, tokens in inside.tokens.items()},
        "positions": {side: _plain(inside[f"{side}.positions"]) for side in inside.tokens},
        "sent": _plain(inside["decoder.sent"]) if "decoder.sent" in inside else None,
        "heads": {
            kind: _plain(inside.heads(kind))  # type: ignore[arg-type]
            for kind, name in HEADS.items()
            if f"{name}.heads" in inside
        },
        "blocks": {name: _plain(inside[f"{name}.through"]) for name in _BLOCKS if f"{name}.through" in inside},
        "past": {f"{name}": _plain(inside[f"{name}.past"]) for name in HEADS.values() if f"{name}.past" in inside},
        "pairs": {side: _pairs(inside, f"{side}.self") for side in inside.tokens if f"{side}.self.to_keys" in inside},
    }


def _pairs(inside: Inside, name: str) -> list[list[list[Any]]]:
    """By step, what goes from one position to another in all heads together: [layer, from, to, share]."""
    together = (inside[f"{name}.to_keys"] + inside[f"{name}.to_values"]).sum(2)  # [T, L, n, n]
    together = together - torch.diag_embed(together.diagonal(dim1=-2, dim2=-1))
    return [
        [
            [*place, round(share, DIGITS)]
            for place, share in zip(where.tolist(), step[tuple(where.T)].tolist(), strict=True)
        ]
        for step in together
        for where in [(step > _THINNEST).nonzero()]
    ]


def _plain(tensor: Tensor) -> Any:
    rounded = (tensor.double() * 10**DIGITS).round() / 10**DIGITS
    return rounded.tolist()
