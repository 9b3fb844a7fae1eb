"""Requests of browsers: the page's own events, with texts; anything else is refused before Gradio reads it.

Gradio would look a function up by any number, and copy files for data that say they are some.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

LONG = 400  # bytes of all texts; an everyday sentence with its translation and the labels of models has about 250
_SESSION = re.compile(r"\w{1,64}", re.ASCII)


async def read_body(receive: Receive) -> bytes:
    """All of a request's content; the server that hands it on holds it to its declared length."""
    parts = []
    while (message := await receive())["type"] == "http.request":
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    return b"".join(parts)


def replay(body: bytes, receive: Receive) -> Receive:
    """``receive`` for an application that is to read this body instead."""
    unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def first_the_body() -> Message:
        return unread.pop() if unread else await receive()

    return first_the_body


def checked_question(body: bytes, inputs: Mapping[int, int], lanes: Mapping[int, int]) -> bytes | None:
    """The question without what the app does not need, in its lane; None for what no page of the app sends.

    Args:
        body: what was posted to the queue, as JSON.
        inputs: by the number of an event, how many inputs it has.
        lanes: by the number of an event, that of the same one for questions that take long.
    """
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(asked, dict):
        return None
    number, data, session = (asked.get(name) for name in ("fn_index", "data", "session_hash"))
    if type(number) is not int or not isinstance(data, list) or len(data) != inputs.get(number):
        return None
    if not all(value is None or isinstance(value, str) for value in data):
        return None
    if not isinstance(session, str) or not _SESSION.fullmatch(session):
        return None
    if takes_long(data):
        number = lanes.get(number, number)
    return json.dumps({"data": data, "fn_index": number, "session_hash": session}).encode()


def takes_long(data: Sequence[str | None]) -> bool:
    """Whether a question has so much text that it is answered apart from short ones, which need not wait for it."""
    return sum(len(text.encode("utf-8", "replace")) for text in data if text is not None) > LONG
