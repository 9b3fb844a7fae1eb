"""HTML from the templates in `hf_lrp/templates`: one skeleton for all pages, everything escaped, nothing that acts."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hf_lrp.data.visible import visible


def render(template: str, **values: Any) -> str:
    """A template with these values; texts are escaped, and characters that would act in them are spelled out."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("hf_lrp"),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["isolate"] = _isolate
    return environment


def _finalize(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _isolate(token: str) -> Markup:
    """The token between marks that keep right-to-left text from reordering what stands around it."""
    return Markup("\u2068{}\u2069").format(visible(token))
