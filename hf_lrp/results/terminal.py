"""Contributions as a table for the terminal: one line per step, with the tokens that contribute most."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hf_lrp.data.visible import visible
from hf_lrp.results.quantities import describe_mean

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

    from hf_lrp.results.contributions import Contributions

Cell = tuple[str, float | None]  # a piece of a line, and how strongly it is coloured: 0 to 1, negative, or not at all
Input = tuple[str, float]  # an input token and its share
_PLAIN_WIDTH = 80
_LABEL_WIDTH = 14
_TWO_LABELS_WIDTH = 20  # of an explained and a written token
_WORDS_WIDTH = 30  # of two contrasted words


def summarize(contributions: Contributions) -> list[str]:
    """Two lines on what was explained and how, then the notes."""
    c = contributions
    mean = describe_mean(c.mean()["source_total"])
    steps = f"{len(c)} steps" if len(c) == len(c.target_tokens) else f"{len(c)} of {len(c.target_tokens)} steps"
    others = c.is_written.count(False)
    lines = [
        f"{c.model}: {len(c.source_tokens)} source {c.level}s, {steps}, {mean}",
        f"{c.method}, prefix {c.prefix}, predict {c.predict}, start token {c.start_token}, {c.dtype}, {_sum(c)}",
        *(f"note: {note}" for note in (*c.notes, *(each.note for each in c.contrasted if each.note))),
        *([f"≠: at {others} of {len(c)} steps the explained token is not the written one"] if others else []),
    ]
    return [visible(line) for line in lines]


def _sum(c: Contributions) -> str:
    if math.isnan(c.conservation_error):
        return "shares sum to 1" if c.sums_to_one else "shares of both signs whose sizes sum to 1"
    return f"conservation error {c.conservation_error:.1g}"


def plain_table(contributions: Contributions) -> str:
    """A table in plain text, 80 columns wide: `str(contributions)`."""
    heading = [line for text in summarize(contributions) for line in _wrap(text, _PLAIN_WIDTH)]
    tables = [_table_rows(contributions, _PLAIN_WIDTH), *_part_tables(contributions, _PLAIN_WIDTH)]
    rows = [["", *("".join(text for text, _ in row).rstrip() for row in table)] for table in tables]
    return "\n".join([*heading, *(line for table in rows for line in table)])


class TerminalTable:
    """The same table for `rich`, as wide as the console; the higher a share, the stronger its colour."""

    def __init__(self, contributions: Contributions) -> None:
        self.contributions = contributions

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        heading, *details = summarize(self.contributions)
        yield Text(heading, style="bold")
        yield Text("\n".join(details), style="dim")
        width = options.max_width
        for table in (_table_rows(self.contributions, width), *_part_tables(self.contributions, width)):
            yield Text()
            for row in table:
                cells = ((text, _style(strength)) for text, strength in row)
                yield Text.assemble(*cells, no_wrap=True, overflow="crop")


def _table_rows(contributions: Contributions, width: int) -> list[list[Cell]]:
    """The header and one row per step, at most `width` columns wide."""
    c = contributions
    predicted = _row_labels(c)
    source, prefix = _top_inputs(c)
    totals = list(zip(c.probability.tolist(), c.source_total.tolist(), c.target_total.tolist(), strict=True))
    largest = float(max(c.source.abs().max(), c.target.abs().max())) or 1.0
    label_width = max(map(_cells, (*predicted, "predicted")))
    rest = max(width - label_width - 26, 24)
    source_width = rest * 4 // 7
    header = f"step {_pad('predicted', label_width)}    p R(src) R(tgt)  "
    header += f"{_pad('top source', source_width)}   top prefix"
    rows: list[list[Cell]] = [[(header, None)]]
    for i, (probability, source_total, target_total) in enumerate(totals):
        row: list[Cell] = [(f"{c.steps[i]:>4} {_pad(predicted[i], label_width)} ", None)]
        row.append((f"{probability:4.2f} {source_total:6.3f} {target_total:6.3f}  ", None))
        row += _fit(source[i], source_width, largest)
        row += [(" | ", None), *_fit(prefix[i], rest - source_width - 3, largest)]
        rows.append(row)
    return rows


def _part_tables(contributions: Contributions, width: int) -> list[list[list[Cell]]]:
    """Raw shares of the parts of a prompt, one row per step; more tables where a width has no room for all parts."""
    c = contributions
    if not c.spans:
        return []
    predicted = _row_labels(c)
    label_width = max(map(_cells, (*predicted, "shares")))
    columns = [(_shorten(visible(name), _LABEL_WIDTH), total.tolist()) for name, total in c.part_totals.items()]
    largest = max(abs(share) for _, shares in columns for share in shares) or 1.0
    tables: list[list[list[Cell]]] = []
    room = 0
    for title, shares in columns:
        column = max(_cells(title), 6) + 2
        if column > room:
            room = max(width - label_width - 5, column)
            labels = ["raw shares", *(f"{s:>4} {p}" for s, p in zip(c.steps, predicted, strict=True))]
            tables.append([[(_pad(label, label_width + 5), None)] for label in labels])
        tables[-1][0].append((" " * (column - _cells(title)) + title, None))
        for row, share in zip(tables[-1][1:], shares, strict=True):
            text = _percent(share)
            row += [(" " * (column - len(text)), None), (text, share / largest)]
        room -= column
    return tables


def _row_labels(c: Contributions) -> list[str]:
    """The predicted token of each step, shortened, with the written one where it is another: `cat≠dog`."""
    _, target, predicted = c.labels
    labels = []
    for label, step, same in zip(predicted, c.steps, c.is_written, strict=True):
        if same:
            labels.append(_shorten(label, _width_of_label(c)))
            continue
        written = target[step - 1]
        half = _TWO_LABELS_WIDTH // 2
        short = _shorten(label, max(half, _TWO_LABELS_WIDTH - 1 - _cells(written)))
        labels.append(f"{short}≠{_shorten(written, _TWO_LABELS_WIDTH - 1 - _cells(short))}")
    return labels


def _width_of_label(c: Contributions) -> int:
    """Words that were asked about are shown whole; the piece of a word that the table explains is in a note."""
    if c.contrasted:
        return _WORDS_WIDTH
    return _TWO_LABELS_WIDTH if c.predict == "contrastive" else _LABEL_WIDTH


def _top_inputs(contributions: Contributions) -> tuple[list[list[Input]], list[list[Input]]]:
    """Source and prefix tokens of each step with their shares, the largest first.

    Tokens that occur more than once carry their position: `the#3`. Those without any share are left out.
    """

    def rank(shares: list[list[float]], labels: Sequence[str]) -> list[list[Input]]:
        count = Counter(labels)
        names = [f"{label}#{i + 1}" if count[label] > 1 else label for i, label in enumerate(labels)]
        rows = [[(name, share) for name, share in zip(names, row, strict=True) if share] for row in shares]
        return [sorted(row, key=lambda item: -abs(item[1])) for row in rows]

    source, target, _ = contributions.labels
    return rank(contributions.source.tolist(), source), rank(contributions.target.tolist(), target)


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%" if abs(share) >= 0.0995 else f"{100 * share:.1f}%"


def _fit(inputs: Sequence[tuple[str, float]], width: int, largest: float) -> list[Cell]:
    """As many inputs as fit into `width` columns, filled up with blanks; a long label is shortened."""
    cells: list[Cell] = []
    used = 0
    for label, share in inputs:
        percent = _percent(share)
        text = f"{_shorten(label, min(_LABEL_WIDTH, width - len(percent) - 1))} {percent}"
        if used + _cells(text) > width:
            break
        cells += [(text, share / largest), ("  ", None)]
        used += _cells(text) + 2
    return [*cells[:-1], (" " * (width - max(used - 2, 0)), None)]


def _style(strength: float | None) -> str:
    """A style out of the 16 colours that every terminal has."""
    if strength is None:
        return ""
    if strength < 0:
        return "white on red"
    styles = ((0.66, "bold white on blue"), (0.33, "black on cyan"), (0.1, ""))
    return next((style for limit, style in styles if strength >= limit), "dim")


def _cells(text: str) -> int:
    """How many terminal columns a text takes."""
    return sum(map(_width, text))


def _width(char: str) -> int:
    """East Asian characters take two columns, combining marks none."""
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 1 + (unicodedata.east_asian_width(char) in "WF")


def _pad(text: str, width: int) -> str:
    return text + " " * (width - _cells(text))


def _shorten(text: str, width: int) -> str:
    """The text within `width` columns, cut with `…` where it is longer; nothing where there are no columns."""
    used, kept = 0, 0  # columns, and characters that fit beside the `…`
    for number, char in enumerate(text, 1):
        used += _width(char)
        if used > width:
            return text[:kept] + "…" if width > 0 else ""
        if used < width:
            kept = number
    return text


def _wrap(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and _cells(f"{lines[-1]} {word}") > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines
