"""Outputs of commands: what they show in the terminal and write to files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from hf_lrp.data.files import STANDARD_STREAM, prepare_destination, write_atomically
from hf_lrp.data.visible import visible
from hf_lrp.results.exporting import numbers_of, picture_of

if TYPE_CHECKING:
    from hf_lrp.corpus.calibration import Calibration
    from hf_lrp.results.contributions import Contributions

_TARGET_NAMES = {"model": "translation", "reference": "target", "random": "prefix"}


def show(results: Sequence[Contributions], sources: Sequence[str], targets: Sequence[str]) -> None:
    """Print a table for each sentence: coloured and as wide as the terminal, or plain and 80 columns wide."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.on_broken_pipe = _raise_again  # type: ignore[method-assign]  # rich would exit with 1
    for number, (contributions, source, target) in enumerate(zip(results, sources, targets, strict=True), 1):
        texts = {"source": visible(source), _TARGET_NAMES[contributions.prefix]: visible(target)}
        if len(results) > 1:
            console.print(Text(f"sentence {number} of {len(results)}", style="bold"))
        if console.is_terminal:
            grid = Table.grid(padding=(0, 2, 0, 0))
            for name, text in texts.items():
                grid.add_row(Text(name, style="bold cyan"), Text(text))
            console.print(grid, Text(), contributions.table(), sep="\n")
        else:
            width = max(map(len, texts))
            print(*(f"{name:<{width}}  {text}" for name, text in texts.items()), "", contributions, sep="\n")
        if number < len(results):
            print("\n")


def _raise_again() -> NoReturn:
    """The error that is being handled."""
    raise


class Outputs:
    """The files to write for a number of sentences: one page and one JSON text, but pictures and saved files each."""

    def __init__(
        self,
        count: int,
        *,
        html: str | None = None,
        png: str | None = None,
        json: str | None = None,
        save: str | None = None,
        flow: str | None = None,
    ) -> None:
        self.html, self.json = html, json
        self.png, self.save, self.flow = (_numbered(path, count) for path in (png, save, flow))

    @property
    def paths(self) -> list[str]:
        """All files, without standard output."""
        given = [self.html, *self.png, self.json, *self.save, *self.flow]
        return [path for path in given if path not in (None, STANDARD_STREAM)]

    @property
    def clash(self) -> str | None:
        """A file that two outputs would be written to."""
        real = [os.path.realpath(path) for path in self.paths]
        return next((path for i, path in enumerate(self.paths) if real[i] in real[:i]), None)

    @property
    def to_standard_output(self) -> bool:
        """Whether standard output belongs to JSON."""
        return self.json == STANDARD_STREAM

    def prepare(self) -> None:
        """Create missing folders; raise an OSError if a file could not be written."""
        for path in self.paths:
            prepare_destination(path)

    def write(
        self,
        results: Sequence[Contributions],
        *,
        on_page: Sequence[Contributions] | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        """Write the files, then JSON to standard output.

        Args:
            results: what is written.
            on_page: what is on the page instead, where words are written: pieces, which the page joins itself.
            calibration: what is usual, for the page.
        """
        if self.html is not None:
            from hf_lrp.pages.page import write_page

            write_page(self.html, results if on_page is None else on_page, calibration=calibration)
        for contributions, png in zip(results, self.png, strict=False):
            write_atomically(png, picture_of(contributions))
        for contributions, path in zip(results, self.save, strict=False):
            contributions.save(path)
        for contributions, path in zip(results, self.flow, strict=False):
            from hf_lrp.pages.flow import write_flow

            write_flow(path, contributions)
        if self.json is None:
            return
        numbers = numbers_of(results)
        if self.to_standard_output:
            sys.stdout.buffer.write(numbers)
        else:
            write_atomically(self.json, numbers)

    def report(self) -> None:
        """Say on standard error what was written."""
        for path in self.paths:
            print(f"wrote {path}", file=sys.stderr)


def _numbered(path: str | None, count: int) -> list[str]:
    """One path per sentence: F.png, or F-1.png, F-2.png and so on, with as many digits as the last one has."""
    if path is None:
        return []
    if count == 1:
        return [path]
    whole, digits = Path(path), len(str(count))
    return [str(whole.with_name(f"{whole.stem}-{n:0{digits}}{whole.suffix}")) for n in range(1, count + 1)]
