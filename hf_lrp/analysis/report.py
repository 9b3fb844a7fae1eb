"""A comparison as one HTML page: figures, tables and settings, no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hf_lrp.analysis.comparing import WORDS, Comparison, settings_of
from hf_lrp.analysis.run.manifest import PREFIXES
from hf_lrp.analysis.run.summarizing import QUANTITIES
from hf_lrp.data.visible import markup
from hf_lrp.result.intervals import CONFIDENCE, DRAWS, Estimate

_STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #1b1b1f; --rule: #d4d4da; --mark: #eef4fb; }
@media (prefers-color-scheme: dark) { :root { --page: #17181c; --ink: #e4e4e8; --rule: #3c3d45; --mark: #22303f; } }
body { background: var(--page); color: var(--ink); margin: 1.5rem auto; padding: 0 1rem; max-width: 62rem;
  font: 15px/1.45 system-ui, "Noto Sans", "Noto Sans CJK SC", sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; } h3 { font-size: 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 10px; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top; }
thead th { border-bottom: 2px solid var(--rule); }
td { overflow-wrap: anywhere; min-width: 5.5em; }
td.clear { background: var(--mark); font-weight: 600; }
tr.differs td, tr.differs th { background: var(--mark); }
figure { margin: 1.5rem 0 2.5rem; }
figure img { display: block; max-width: 100%; background: #ffffff; padding: 6px; box-sizing: border-box; }
figcaption { max-width: 46rem; margin-top: .4rem; }
.small { opacity: .8; font-size: 13px; }
"""


class Picture(NamedTuple):
    """A figure for the page."""

    stem: str
    caption: str
    svg: bytes


def render_report(comparison: Comparison, pictures: Sequence[Picture]) -> str:
    """One page with everything about a comparison; texts of users are escaped, figures are inside."""
    labels = [run.label for run in comparison.runs]
    title = "Source and target contributions: " + ", ".join(labels)
    body = [f"<h1>{markup(title)}</h1>", _introduction(comparison)]
    body += [f"<p><strong>Note.</strong> {markup(note)}</p>" for note in comparison.notes]
    body += [_means(comparison)]
    if comparison.difference_estimates:
        body.append(_differences(comparison))
    body += ["<h2>Figures</h2>", *map(_figure, pictures), _settings(comparison)]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{markup(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _introduction(comparison: Comparison) -> str:
    first = comparison.runs[0].run
    lengths = "mixed lengths" if first.lengths is None else "{} source and {} target tokens".format(*first.lengths)
    return (
        f"<p>{first.number} sentence pairs, {markup(lengths)}. Means over sentences with {CONFIDENCE:.0%} intervals "
        f"from {DRAWS} bootstrap draws of sentences; entropies in nats. Means over steps are from the second step on, "
        "for at the first there is only the source.</p>"
    )


def _means(comparison: Comparison) -> str:
    found = {(mean.prefix, mean.run, mean.quantity): mean.estimate for mean in comparison.mean_estimates}
    parts = ["<h2>Means</h2>"]
    for prefix in PREFIXES:
        quantities = [name for name in QUANTITIES if any(key[0] == prefix and key[2] == name for key in found)]
        runs = [run.label for run in comparison.runs if prefix in run.tables]
        rows = [[markup(run), *(_interval(found[prefix, run, name]) for name in quantities)] for run in runs]
        if rows:
            parts.append(f"<h3>{prefix} prefixes</h3>")
            parts.append(_table(["run", *(WORDS[name] for name in quantities)], [_row(cells) for cells in rows]))
    return "\n".join(parts)


def _differences(comparison: Comparison) -> str:
    baseline = comparison.runs[0].label
    parts = [
        f"<h2>Differences to {markup(baseline)}</h2>",
        "<p>Each run minus the first, paired by sentence. Marked: the interval excludes 0. With many intervals, some "
        "exclude 0 by chance.</p>",
    ]
    for prefix in PREFIXES:
        found = [difference for difference in comparison.difference_estimates if difference.prefix == prefix]
        quantities = list(dict.fromkeys(difference.quantity for difference in found))
        rows = []
        for run in dict.fromkeys(difference.run for difference in found):
            cells = [f"<th>{markup(run)}</th>"]
            for difference in (item for item in found if item.run == run):
                mark = ' class="clear"' if difference.excludes_zero else ""
                cells.append(f"<td{mark}>{_interval(difference.estimate, '+')}</td>")
            rows.append(f"<tr>{''.join(cells)}</tr>")
        if rows:
            parts.append(f"<h3>{prefix} prefixes</h3>")
            parts.append(_table(["run", *(WORDS[name] for name in quantities)], rows))
    return "\n".join(parts)


def _settings(comparison: Comparison) -> str:
    """Settings of all runs side by side; rows in which they differ are marked."""
    flat = [dict(_flatten(settings_of(run.run))) for run in comparison.runs]
    rows = []
    for name in dict.fromkeys(name for settings in flat for name in settings):
        values = [settings.get(name, "") for settings in flat]
        differs = ' class="differs"' if len(set(values)) > 1 else ""
        cells = "".join(f"<td>{markup(value)}</td>" for value in values)
        rows.append(f"<tr{differs}><th>{markup(name)}</th>{cells}</tr>")
    table = _table(["setting", *(run.label for run in comparison.runs)], rows)
    return f'<h2>Settings</h2>\n<p class="small">From the manifests. Marked: the runs differ.</p>\n{table}'


def _flatten(settings: dict[str, Any], above: str = "") -> Iterable[tuple[str, str]]:
    """Nested settings as pairs of a name such as ``selection.seed`` and a text."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{above}{name}.")
        elif isinstance(value, list):
            yield f"{above}{name}", ", ".join(map(str, value))
        else:
            yield f"{above}{name}", "" if value is None else str(value)


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.svg).decode()
    caption = markup(picture.caption)
    return (
        f'<figure id="{markup(picture.stem)}"><img alt="{caption}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _table(header: Sequence[str], rows: Sequence[str]) -> str:
    cells = "".join(f"<th>{markup(name)}</th>" for name in header)
    return (
        f'<div class="scroll"><table>\n<thead><tr>{cells}</tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table></div>"
    )


def _row(cells: Sequence[str]) -> str:
    """A row of cells that are HTML already; the first is a heading."""
    return f"<tr><th>{cells[0]}</th>{''.join(f'<td>{cell}</td>' for cell in cells[1:])}</tr>"


def _interval(estimate: Estimate, sign: str = "") -> str:
    if estimate.value != estimate.value:  # nan
        return "–"
    return (
        f"{estimate.value:{sign}.3f} <span class='small'>[{estimate.low:{sign}.3f}, {estimate.high:{sign}.3f}]</span>"
    )
