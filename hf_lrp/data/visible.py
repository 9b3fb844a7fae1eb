"""Text as it may reach a terminal or a page: characters that would act, instead of being seen, are spelled out."""

from __future__ import annotations

import html
import unicodedata

# Marks that turn the direction of the text after them, so that a reader sees another order than there is.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_ACTING = ("Cc", "Zl", "Zp", "Cs")  # control characters, line and paragraph separators, halves of characters


def visible(text: str) -> str:
    """The text with control, line break, direction and half characters as escapes, such as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(_escape(char) if _acts(char) else char for char in text)


def markup(text: str) -> str:
    """The text for a page: visible, and with `<`, `&` and quotes escaped."""
    return html.escape(visible(text))


def _acts(char: str) -> bool:
    return not char.isprintable() and (char in _BIDI or unicodedata.category(char) in _ACTING)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()
