"""Reading pages: their elements, and the data that their scripts draw."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

_VOID = {"meta", "br", "link", "img"}


class Page(HTMLParser):
    """Elements with their attributes and texts; checks that they are nested correctly."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.elements:
            self.elements[-1][2].append(data)

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        """Attributes and text of all elements of a kind."""
        return [(attributes, "".join(texts)) for name, attributes, texts in self.elements if name == tag]

    @property
    def policy(self) -> dict[str, str]:
        """The content security policy, by directive."""
        (content,) = (a["content"] for a, _ in self.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
        return dict(part.strip().split(" ", 1) for part in str(content).split(";"))


def read_page(text: str) -> dict[str, Any]:
    """The data of a page of results."""
    data: dict[str, Any] = json.loads(explorer_json(text))
    return data


def explorer_json(text: str) -> str:
    """The data as it stands in the page."""
    (found,) = re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    return str(found)


def hash_of(text: str) -> str:
    """A text as policies name it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
