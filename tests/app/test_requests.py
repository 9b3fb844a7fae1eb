"""Requests: what a page of the app asks is passed on, anything else is not."""

import asyncio
import json

import pytest

from hf_lrp.app.requests import checked_question, read_body, replay

INPUTS, LANES = {0: 3, 4: 1, 9: 3}, {0: 9}
ASKED = {"data": ["a", None, "b"], "fn_index": 0, "session_hash": "x1"}


def checked(asked: object) -> object:
    found = checked_question(json.dumps(asked).encode(), INPUTS, LANES)
    return None if found is None else json.loads(found)


def test_what_a_browser_sends_is_passed_on_without_the_rest() -> None:
    assert checked(ASKED | {"event_data": {"x": 1}, "trigger_id": 7, "batched": True, "oauth_token": "t"}) == ASKED


@pytest.mark.parametrize(("text", "number"), [("a" * 350, 0), ("a" * 450, 9), ("我" * 150, 9)])
def test_long_questions_have_a_lane_of_their_own(text: str, number: int) -> None:
    found = checked(ASKED | {"data": [text, None, "b"]})
    assert isinstance(found, dict) and found["fn_index"] == number
    assert checked({"data": [text], "fn_index": 4, "session_hash": "x"}) == {
        "data": [text],
        "fn_index": 4,
        "session_hash": "x",
    }


@pytest.mark.parametrize(
    "changes",
    [
        *({"fn_index": number} for number in (1, -1, 99, True, "0", 0.0, None)),
        *({"data": data} for data in ([], ["a"], ["a"] * 4, "abc", None, {"0": "a"})),
        *({"data": ["a", "b", odd]} for odd in (1, True, [], {"path": "/etc/passwd"})),
        *({"session_hash": name} for name in (None, "", 5, "a/b", "x" * 65)),
    ],
)
def test_what_it_does_not_send_is_refused(changes: dict[str, object]) -> None:
    assert checked(ASKED | changes) is None


@pytest.mark.parametrize("body", [b"", b"{", b"[1, 2]", b"null", b"[" * 100_000, b"\xff", b"1" * 5000])
def test_what_is_no_question_is_refused(body: bytes) -> None:
    assert checked_question(body, INPUTS, LANES) is None


def test_a_body_in_parts_is_read_and_given_on_once() -> None:
    parts = [
        {"type": "http.request", "body": b"ab", "more_body": True},
        {"type": "http.request", "body": b"c", "more_body": False},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, object]:
        return parts.pop(0)

    async def run() -> list[dict[str, object]]:
        again = replay(await read_body(receive) + b"!", receive)
        return [dict(await again()), dict(await again())]

    assert asyncio.run(run()) == [
        {"type": "http.request", "body": b"abc!", "more_body": False},
        {"type": "http.disconnect"},
    ]
