"""Code blocks of Markdown pages, and whether a page says that one is not run."""

import re
from pathlib import Path
from typing import NamedTuple

_FENCE = re.compile(
    r"(?P<mark><!-- not run: (?P<reason>[^>]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```", re.DOTALL
)


class CodeBlock(NamedTuple):
    """A block's language (`""`: a shell command or its output), text, line, and why it is not run, if it is not."""

    language: str
    text: str
    line: int
    reason: str | None


def code_blocks(page: Path) -> list[CodeBlock]:
    """All blocks of a page, in order."""
    content = page.read_text(encoding="utf-8")
    return [
        CodeBlock(found["language"], found["text"], content[: found.start("text")].count("\n") + 1, found["reason"])
        for found in _FENCE.finditer(content)
    ]
