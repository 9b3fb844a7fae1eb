"""Contributions as HTML: a heat map in a table, without scripts and with nothing loaded from elsewhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from hf_lrp.data.files import write_atomically
from hf_lrp.data.visible import markup
from hf_lrp.result.quantities import describe_mean

if TYPE_CHECKING:
    from hf_lrp.result.contributions import Contributions

_COLUMNS_WITH_NUMBERS = 30  # with more columns cells are small squares, and shares are shown on hovering only
_POSITIVE, _NEGATIVE = "29,95,184", "190,80,10"

_PAGE_STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #1b1b1f; }
@media (prefers-color-scheme: dark) { :root { --page: #17181c; --ink: #e4e4e8; } }
body { background: var(--page); color: var(--ink); margin: 1.5rem; }
h1 { font: 600 1.4rem system-ui, sans-serif; margin: 0 0 1rem; }
"""
# The table is also shown in notebooks, whose dark theme the browser does not know of: it takes over the
# colours around it.
_TABLE_STYLE = """
.hf-lrp { --ground: var(--page, var(--jp-layout-color0, var(--vscode-editor-background, Canvas)));
  font: 13px/1.35 system-ui, "Noto Sans", "Noto Sans CJK SC", "Noto Sans Arabic", sans-serif;
  margin: 0 0 2rem; }
.hf-lrp p { margin: .2rem 0; }
.hf-lrp .about { font-size: 15px; font-weight: 600; }
.hf-lrp .detail { opacity: .75; }
.hf-lrp .key { display: inline-block; vertical-align: middle; width: 120px; height: 10px; margin: 0 5px; }
.hf-lrp .scroll { overflow: auto; max-height: 88vh; width: fit-content; max-width: 100%; margin-top: .6rem; }
.hf-lrp table { border-collapse: separate; border-spacing: 1px; margin: 0; font-size: inherit; }
.hf-lrp th, .hf-lrp td { padding: 2px 4px; border: 0; text-align: center; white-space: nowrap; }
.hf-lrp th { font-weight: 500; background: var(--ground); position: sticky; z-index: 1; }
.hf-lrp thead th { top: 0; vertical-align: bottom; }
.hf-lrp thead th.side { text-align: left; position: static; font-weight: 400; opacity: .75; }
.hf-lrp th.token { left: 0; text-align: right; z-index: 2; max-width: 16em;
  overflow: hidden; text-overflow: ellipsis; }
.hf-lrp thead th.token { z-index: 3; }
.hf-lrp .written { opacity: .65; }
.hf-lrp th.input span { writing-mode: vertical-rl; display: inline-block; max-height: 14em;
  overflow: hidden; }
.hf-lrp .first { border-left: 8px solid var(--ground); }
.hf-lrp td { min-width: 2.1em; font-size: 11px; font-variant-numeric: tabular-nums;
  background: rgba(29,95,184,var(--a)); }
.hf-lrp td.negative { background: rgba(190,80,10,var(--a)); }
.hf-lrp td.strong { color: #fff; }
.hf-lrp td.later { background: rgba(128,128,128,.13); }
.hf-lrp .total { text-align: left; font-size: 12px; }
.hf-lrp td.total { background: none; }
.hf-lrp .bar { display: inline-block; vertical-align: middle; width: 70px; height: 9px; margin-right: 6px;
  background: rgba(128,128,128,.25); border-radius: 2px; overflow: hidden; }
.hf-lrp .bar i { display: block; height: 100%; background: rgb(29,95,184); }
.hf-lrp .dense td { min-width: 15px; height: 15px; padding: 0; }
.hf-lrp .dense td.total { padding: 0 4px; }
.hf-lrp .dense th { padding: 0 3px; }
.hf-lrp .dense th.input { padding: 0; font-size: 12px; }
"""


def render_page(contributions: Sequence[Contributions], title: str = "Source and target contributions") -> str:
    """One self-contained page with all the contributions, in light and dark colours."""
    body = "\n".join(_section(c) for c in contributions)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{markup(title)}</title>\n<style>{_PAGE_STYLE}{_TABLE_STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{markup(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def write_page(path: str | os.PathLike[str], contributions: Sequence[Contributions]) -> None:
    """Write one page with all the contributions, which replaces an old one only once all is written."""
    write_atomically(path, render_page(contributions).encode())


def render_fragment(contributions: Contributions) -> str:
    """One `Contributions` with its styles, to be put into a page or a notebook."""
    return f"<style>{_TABLE_STYLE}</style>\n{_section(contributions)}"


def _section(c: Contributions) -> str:
    return f'<section class="hf-lrp">\n{_summary(c)}\n<div class="scroll">\n{_table(c)}\n</div>\n</section>'


def _summary(c: Contributions) -> str:
    details = {
        "rule": c.rule,
        "prefix": c.prefix,
        "predicted": c.predict,
        "start token": c.start_token,
        "propagated in": c.dtype,
        "conservation error": f"{c.conservation_error:.1g}",
    }
    mean = describe_mean(c.mean()["source_total"])
    lines = [f'<p class="about">{markup(c.model)}: {mean}</p>']
    detail = " · ".join(f"{name}: {value}" for name, value in details.items())
    lines.append(f'<p class="detail">{markup(detail)}</p>')
    lines += [f'<p class="detail">note: {markup(note)}</p>' for note in c.notes]
    others = c.is_written.count(False)
    if others:
        steps = f"{others} of {len(c)} steps"
        lines.append(f'<p class="detail">≠: at {steps} the explained token is not the written one</p>')
    lines.append(_color_key(c))
    return "\n".join(lines)


def _color_key(c: Contributions) -> str:
    signed = bool(min(c.source.min(), c.target.min()) < 0)
    colors = [f"rgba({_NEGATIVE},.9)"] * signed + [f"rgba({_POSITIVE},0)", f"rgba({_POSITIVE},.9)"]
    lowest = f"{-c.color_limit:.2g}" if signed else "0"
    gradient = f"linear-gradient(to right,{','.join(colors)})"
    return (
        f'<p>contribution {lowest}<span class="key" style="background:{gradient}">'
        f"</span>{c.color_limit:.2g} or more; hover over a cell for its value</p>"
    )


def _table(c: Contributions) -> str:
    source, target, predicted = c.labels
    dense = len(source) + len(target) > _COLUMNS_WITH_NUMBERS
    headers = "".join(_header(label, i == 0) for side in (source, target) for i, label in enumerate(side))
    written_before = c.known.sum(1).tolist()
    shares = zip(predicted, c.source.tolist(), c.target.tolist(), _total_cells(c), strict=True)
    limit = c.color_limit
    rows = []
    for row, (name, source_shares, target_shares, total) in enumerate(shares):
        written, step = written_before[row], c.steps[row]
        cells = _cells(name, source, source_shares, limit, dense)
        cells += _cells(name, target[:written], target_shares, limit, dense)
        if written < len(target):
            later = "later" if written else "later first"
            cells += f'<td class="{later}" colspan="{len(target) - written}"></td>'
        about = f"step {step}: {_isolate(name)}, "
        about += f"probability {c.probability[row]:.3g}, logit {c.logits[row]:.4g}"
        other = "" if c.is_written[row] else target[step - 1]
        about += f"; written is {_isolate(other)}" if other else ""
        mark = f' <i class="written">≠ {escape(other)}</i>' if other else ""
        name_cell = f'<th class="token" dir="auto" title="{escape(about)}">{escape(name)}{mark}</th>'
        rows.append(f"<tr>{name_cell}{total}{cells}</tr>")
    return (
        f'<table class="{"dense" if dense else "roomy"}">\n<thead>\n'
        '<tr><th class="token side"></th><th class="side"></th>'
        f'<th class="side first" colspan="{len(source)}">source {c.level}s</th>'
        f'<th class="side first" colspan="{len(target)}">prefix {c.level}s</th></tr>\n'
        f'<tr><th class="token">predicted</th><th class="total">R(source)</th>{headers}</tr>\n</thead>\n'
        "<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>"
    )


def _header(label: str, first: bool) -> str:
    text = escape(label)
    kind = "input first" if first else "input"
    return f'<th class="{kind}" title="{text}"><span dir="auto">{text}</span></th>'


def _cells(predicted: str, labels: Sequence[str], shares: Sequence[float], limit: float, dense: bool) -> str:
    """Cells of one step for the inputs of one side; the colour is given by its opacity, `--a`."""
    cells = []
    for i, (label, share) in enumerate(zip(labels, shares, strict=False)):
        strength = min(abs(share) / limit, 1.0)
        classes = ["first"] * (i == 0) + ["strong"] * (strength > 0.6) + ["negative"] * (share < 0)
        attribute = f' class="{" ".join(classes)}"' if classes else ""
        title = escape(f"{_isolate(label)} → {_isolate(predicted)}: {share:.4f}")
        number = "" if dense else f"{share:.2f}".replace("0.", ".", 1)
        cells.append(f'<td{attribute} style="--a:{0.9 * strength:.2f}" title="{title}">{number}</td>')
    return "".join(cells)


def _total_cells(c: Contributions) -> list[str]:
    """The cell with the bar of R(source), for each step."""
    totals = zip(c.source_total.tolist(), c.target_total.tolist(), c.start.tolist(), strict=True)
    entropies = zip(c.source_entropy.tolist(), c.target_entropy.tolist(), strict=True)
    opening = markup(" ".join(c.start_tokens)) if c.start_tokens else "the start token"
    cells = []
    for (source, target, start), (source_entropy, target_entropy) in zip(totals, entropies, strict=True):
        title = (
            f"R(source) {source:.4f}, R(target) {target:.4f}, raw share of {opening} {start:.4f}; "
            f"entropy of source {source_entropy:.3f}, of target {target_entropy:.3f}"
        )
        width = 100 * min(max(source, 0.0), 1.0)
        bar = f'<span class="bar"><i style="width:{width:.1f}%"></i></span>'
        cells.append(f'<td class="total" title="{title}">{bar}{source:.3f}</td>')
    return cells


def _isolate(token: str) -> str:
    """The token between marks that keep right-to-left text from reordering what stands around it."""
    return f"\u2068{token}\u2069"
