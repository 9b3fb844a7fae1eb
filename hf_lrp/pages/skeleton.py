"""HTML from `hf_lrp/pages/templates`: one skeleton for all pages, everything escaped, nothing else acts.

A page's policy lets only those scripts run, and those styles count, whose hashes it names: this package's own.
Data for scripts stands in an element that is not run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hf_lrp.data.visible import visible

_IN_ELEMENT = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def render(template: str, *, styles: Sequence[str], scripts: Sequence[str] = (), **values: Any) -> str:
    """A template with these values; texts are escaped, and characters that would act in them are spelled out.

    Args:
        styles, scripts: names of files beside the template, which the page contains.
    """
    style, script = _joined(tuple(styles)), _joined(tuple(scripts))
    scripts_allowed = _hash(script) if script else "'none'"
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src {_hash(style)}",
            f"script-src {scripts_allowed}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    own = {"policy": policy, "style": Markup(style), "script": Markup(script)}
    return render_plain(template, **own, **values)


def render_plain(template: str, **values: Any) -> str:
    """The same for a template that is no page: it has no policy, styles or scripts."""
    return _environment().get_template(template).render(values)


def as_json(data: Any) -> Markup:
    """Data for a `<script type="application/json">`: no text in it can end the element, or acts where it is shown."""
    return Markup(
        json.dumps(_visible(data), ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_IN_ELEMENT)
    )


def _visible(data: Any) -> Any:
    if isinstance(data, str):
        return visible(data)
    if isinstance(data, dict):
        return {visible(name): _visible(value) for name, value in data.items()}
    if isinstance(data, list | tuple) and not all(isinstance(value, int) for value in data):
        return [_visible(value) for value in data]
    return data


@cache
def _joined(names: tuple[str, ...]) -> str:
    folder = files("hf_lrp.pages") / "templates"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("hf_lrp.pages"),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _finalize(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
