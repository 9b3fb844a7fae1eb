"""Heat maps of a result or of a difference: blocks of shares, labels of rows, curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from hf_lrp.data.naming import short_name
from hf_lrp.data.visible import visible
from hf_lrp.models.words import plain_tokens
from hf_lrp.pictures.heat_maps import Block, Sheet, draw_sheet
from hf_lrp.pictures.panels import Place
from hf_lrp.results.quantities import describe_mean
from hf_lrp.results.spans import all_tokens

if TYPE_CHECKING:
    from hf_lrp.results.comparison import Comparison
    from hf_lrp.results.contributions import Contributions

_LONGEST_SPAN = 8  # tokens; longer parts of a prompt are one column with their total
_Part = tuple[tuple[str, ...], np.ndarray]  # n labels and shares [T, n] of a part of the prompt


def plot_contributions(contributions: Contributions, place: Place) -> Figure:
    """Draw `Contributions`: rows are steps, labelled with the predicted token.

    Columns are source tokens, prefix tokens that some step knows, and what else has a share: parts of a prompt, or the
    start token where it is kept. All have one colour scale, so that they can be compared; it is symmetric where shares
    are negative. Tokens are drawn literally, with whatever installed fonts have their characters.
    """
    c = contributions
    name = f"{visible(short_name(c.model))}: {describe_mean(c.mean()['source_total'])}"
    about = f"{visible(str(c.method))}, prefix: {c.prefix}, predicted: {c.predict}"
    sheet = Sheet(
        blocks=_blocks(c, _parts(c), c.source.double().numpy(), c.target.double().numpy()),
        rows=c.row_labels,
        marked=tuple(not written for written in c.is_written),
        steps=c.steps,
        curves={"R(source)": c.source_total.double().numpy()},
        title="\n".join((name, about, *_on_wholes(c))),
        scale="share",
    )
    return draw_sheet(sheet, place)


def plot_difference(comparison: Comparison, place: Place) -> Figure:
    """Draw second - first, share by share, of two results with the same target; else as `plot_contributions`.

    Parts of a prompt that both have are compared token by token, or by their totals where their tokens differ.
    """
    first, second = comparison.first, comparison.second
    parts, before = _parts(second), _parts(first)
    differences = {name: _subtract(part, before[name]) for name, part in parts.items() if name in before}
    totals = [c.source_total.double().numpy() for c in (first, second)]
    sheet = Sheet(
        blocks=_blocks(first, differences, comparison.source.double().numpy(), comparison.target.double().numpy()),
        rows=comparison.row_labels,
        marked=tuple(not (a and b) for a, b in zip(first.is_written, second.is_written, strict=True)),
        steps=first.steps,
        curves=dict(zip(comparison.names, totals, strict=True)),
        title="\n".join((comparison.title, *_on_wholes(first))),
        scale="difference of shares",
    )
    return draw_sheet(sheet, place)


def _blocks(c: Contributions, parts: dict[str, _Part], source: np.ndarray, target: np.ndarray) -> tuple[Block, ...]:
    """The parts of the prompt, the source, and the prefix without the columns that no step knows."""
    known = c.known.numpy()
    used = known.any(axis=0)
    prefix = np.ma.masked_array(target, ~known)[:, used]
    words = np.array(plain_tokens(c.target_tokens), dtype=object)[used].tolist()
    blocks = [_part_block(name, *part) for name, part in parts.items()]
    blocks.append(Block(f"source {c.level}s", np.ma.masked_array(source), plain_tokens(c.source_tokens)))
    if words:
        blocks.append(Block(f"prefix {c.level}s", prefix, tuple(words), prefix=True))
    return tuple(blocks)


def _parts(c: Contributions) -> dict[str, _Part]:
    """Everything but source and prefix that has a share of its own."""
    if c.spans:
        prompt = all_tokens(c.spans)
        labels = {name: plain_tokens(span.tokens, prompt) for name, span in c.spans.items()}
        return {name: (labels[name], span.shares.double().numpy()) for name, span in c.spans.items()}
    if c.start_token == "keep":
        return {"start": (("start",), c.start.double().numpy()[:, None])}
    return {}


def _part_block(name: str, labels: Sequence[str], shares: np.ndarray) -> Block:
    """A part of the prompt by its tokens, or as one column where it is long or too narrow for its name."""
    tokens = len(labels)
    shown = visible(name)
    if 1 < tokens <= _LONGEST_SPAN and len(shown) <= 3 * tokens + 2:
        return Block(shown, np.ma.masked_array(shares), tuple(labels))
    column = shown if tokens == 1 else f"{shown} ({tokens})"
    return Block("", np.ma.masked_array(shares.sum(axis=1, keepdims=True)), (column,))


def _subtract(part: _Part, before: _Part) -> _Part:
    (labels, shares), (labels_before, shares_before) = part, before
    if labels == labels_before:
        return labels, shares - shares_before
    return ("total",), shares.sum(axis=1, keepdims=True) - shares_before.sum(axis=1, keepdims=True)


def _on_wholes(c: Contributions) -> tuple[str, ...]:
    """A line for shares with signs, or for where parts of a prompt are shares of another whole than the source."""
    if not c.sums_to_one:
        return ("shares have signs and their sizes sum to 1; R(source) counts sizes",)
    if c.spans and c.start_token == "exclude":
        return ("source and prefix sum to 1; parts of the prompt: of all tokens",)
    return ()
