"""Fonts for tokens of all languages: which installed ones have their characters, and what to draw where none has."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from matplotlib import font_manager

from hf_lrp.data.warning import warn

_PREFERRED_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "Microsoft YaHei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Heiti SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "SimHei",
    "Arial Unicode MS",
    "Noto Sans Arabic",
    "Noto Naskh Arabic",
    "Noto Sans Thai",
    "Noto Sans Devanagari",
)


def drawable(groups: Iterable[Sequence[str]]) -> tuple[list[list[str]], dict[str, Any]]:
    """Texts as they can be drawn, and the text properties to draw them with.

    Characters that no installed font has are written as code points (`U+4F60`) instead of empty boxes.
    """
    drawn = [list(group) for group in groups]
    families, missing = _find_fonts(frozenset("".join(text for group in drawn for text in group)))
    if missing:
        _warn_of_missing_fonts(missing)
        run = re.compile("[" + "".join(map(re.escape, sorted(missing))) + "]+")
        drawn = [[run.sub(lambda found: _code_points(found[0]), text) for text in group] for group in drawn]
    return drawn, {"fontfamily": list(families), "parse_math": False, "usetex": False}


def _code_points(characters: str) -> str:
    return "U+" + "·".join(f"{ord(character):04X}" for character in characters)


def _warn_of_missing_fonts(missing: frozenset[str]) -> None:
    shown = " ".join(sorted(missing)[:8]) + (" ..." if len(missing) > 8 else "")
    warn(
        f"No installed font has {len(missing)} of the characters to draw ({shown}); they are drawn as code "
        "points. Install a font that has them, for Chinese, Japanese and Korean for example the Debian and "
        "Ubuntu package fonts-noto-cjk or Noto Sans CJK from https://fonts.google.com/noto, and plot again."
    )


def _find_fonts(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Font families that together have the characters, the usual one first, and what none of them has."""
    families = [font_manager.FontProperties().get_name()]
    needed = {character for character in characters if _is_drawn(character)}
    missing = needed - _characters_of(families[0])
    if missing:
        _notice_new_fonts()
    installed = {entry.name for entry in font_manager.fontManager.ttflist}
    preferred = [name for name in ("DejaVu Sans", *_PREFERRED_FONTS) if name in installed]
    for name in [*preferred, *sorted(installed.difference(preferred))]:
        if not missing:
            break
        found = missing & _characters_of(name)
        if found:
            families.append(name)
            missing -= found
    return tuple(families), frozenset(missing)


def _is_drawn(character: str) -> bool:
    is_variation_selector = "\ufe00" <= character <= "\ufe0f"
    return unicodedata.category(character) not in ("Cc", "Cf", "Zs") and not is_variation_selector


def _notice_new_fonts() -> None:
    """Add fonts that were installed after matplotlib wrote its list of fonts."""
    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in known:
            with contextlib.suppress(OSError, RuntimeError):
                font_manager.fontManager.addfont(path)


@lru_cache(maxsize=1024)
def _characters_of(family: str) -> frozenset[str]:
    """The characters that a font family has; none for fonts of bitmaps, such as colour emoji."""
    faces = [face for face in font_manager.fontManager.ttflist if face.name == family]
    face = min(faces, key=lambda face: (face.style != "normal", face.weight != 400))
    path = font_manager.FontPath(face.fname, face.index) if hasattr(face, "index") else face.fname  # from 3.11 on
    with contextlib.suppress(OSError, RuntimeError):
        font = font_manager.get_font(path)
        if font.scalable:
            return frozenset(map(chr, font.get_charmap()))
    return frozenset()
