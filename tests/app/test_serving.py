"""The server answers what the app needs, and nothing else: files, uploads, large requests, other hosts."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_app import running

from hf_lrp.app.events import Events
from hf_lrp.app.models import Models
from hf_lrp.app.questions import Limits
from hf_lrp.app.serving import LARGEST_REQUEST, refusal, require_free


def request(method: str, path: str, **headers: str) -> dict[str, object]:
    """A request as servers hand it on."""
    encoded = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "headers": encoded}


@pytest.mark.parametrize("path", ["/", "/config", "/theme.css", "/assets/a/b.js", "/gradio_api/queue/data"])
def test_what_a_browser_needs_is_passed_on(path: str) -> None:
    assert refusal(request("GET", path)) is None and refusal(request("HEAD", path)) is None


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/gradio_api/file=/etc/passwd"),
        ("GET", "/gradio_api/file=https://example.org/"),
        ("GET", "/gradio_api/file/etc/passwd"),
        ("GET", "/gradio_api/proxy=https://example.org/"),
        ("GET", "/gradio_api/runs"),
        ("GET", "/monitoring"),
        ("GET", "/docs"),
        ("GET", "/download/../secret"),
        ("GET", "/config/secret"),
        ("POST", "/"),
        ("POST", "/gradio_api/upload"),
        ("POST", "/gradio_api/run/explain"),
        ("POST", "/gradio_api/call/explain"),
        ("POST", "/gradio_api/component_server"),
        ("POST", "/gradio_api/vibe-edit"),
        ("PUT", "/gradio_api/queue/join"),
        ("DELETE", "/"),
    ],
)
def test_what_it_does_not_need_is_not(method: str, path: str) -> None:
    assert refusal(request(method, path, content_length="2")) == 404


def test_requests_are_limited() -> None:
    ask = "/gradio_api/queue/join"
    assert refusal(request("POST", ask, content_length=str(LARGEST_REQUEST))) is None
    assert refusal(request("POST", ask, content_length=str(LARGEST_REQUEST + 1))) == 413
    assert refusal(request("POST", ask)) == 411 and refusal(request("POST", ask, content_length="-1")) == 411


def test_a_taken_port_is_said_before_anything_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="give another --port"):
        require_free(*taken.getsockname())


@pytest.fixture(scope="module")
def events() -> Events:
    return Events(Models([None]), Limits())


@pytest.fixture(scope="module")
def address(events: Events, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server that runs in this process, which must not look up any other machine."""
    pytest.importorskip("gradio", reason="the app needs gradio: pip install gradio")
    looked_up, look_up = set(), socket.getaddrinfo

    def note(host: object, *args: object, **options: object) -> object:
        looked_up.add(host)
        return look_up(host, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", note)
        with running(events, tmp_path_factory.mktemp("gradio")) as where:
            yield where
    assert looked_up == {"127.0.0.1"}


def test_the_page_loads_nothing_from_elsewhere(address: str) -> None:
    import httpx

    page, styles = httpx.get(address), httpx.get(f"{address}/theme.css")
    assert page.status_code == 200 and "default-src 'self'" in page.headers["content-security-policy"]
    assert "googleapis" not in styles.text
    config = httpx.get(f"{address}/config").json()
    assert config["analytics_enabled"] is False and config["run_history"] is False
    assert not config.get("is_space") and config["enable_queue"]


def test_downloads_come_by_their_key_only(address: str, events: Events) -> None:
    import httpx
    from example_contributions import make_contributions

    key = events.recent.put(make_contributions())
    found = httpx.get(f"{address}/download/{key}/contributions.json")
    assert found.json() == make_contributions().to_dict()
    assert found.headers["content-disposition"] == 'attachment; filename="contributions.json"'
    for path in (f"{key}/other.json", f"{'0' * 64}/contributions.json", key):
        assert httpx.get(f"{address}/download/{path}").status_code == 404


def test_nothing_of_the_server_can_be_read(address: str, tmp_path: Path) -> None:
    import httpx

    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    for path in (f"gradio_api/file={secret}", f"file={secret}", f"static/..{secret}", f"assets/%2e%2e{secret}"):
        answer = httpx.get(f"{address}/{path}")
        assert answer.status_code in (403, 404) and "secret" not in answer.text


FIELDS = ["nothing", None, "Hello.", "", "model", *[""] * 6]  # after the model
QUESTION = {"data": [None, *FIELDS], "fn_index": 0, "session_hash": "visitor"}


def test_questions_from_programs_are_within_the_same_limits(
    address: str, events: Events, capsys: pytest.CaptureFixture[str]
) -> None:
    import httpx

    for model in ("/etc", None):
        question = QUESTION | {"data": [model, *FIELDS]}
        assert httpx.post(f"{address}/gradio_api/queue/join", json=question).status_code == 200
        with httpx.stream("GET", f"{address}/gradio_api/queue/data", params={"session_hash": "visitor"}) as lines:
            told = next(line for line in lines.iter_lines() if "process_completed" in line)
        assert ("is not offered here" if model else "No model is chosen") in told and "Traceback" not in told
    assert events.models.in_memory == [] and capsys.readouterr().err == ""


@pytest.mark.parametrize("changes", [{"fn_index": 99}, {"data": []}, {"data": [{"path": "/etc/passwd"}] * 12}])
def test_what_no_page_asks_is_refused_without_a_word(address: str, changes: dict[str, object]) -> None:
    import httpx

    assert httpx.post(f"{address}/gradio_api/queue/join", json=QUESTION | changes).status_code == 422


def test_who_listens_without_a_question_leaves_no_traceback(address: str, caplog: pytest.LogCaptureFixture) -> None:
    import httpx

    server = logging.getLogger("uvicorn.error")
    server.addHandler(caplog.handler)
    with httpx.stream("GET", f"{address}/gradio_api/queue/data", params={"session_hash": "nobody"}) as lines:
        assert "session_not_found" in next(lines.iter_lines())
    assert httpx.get(f"{address}/config").status_code == 200  # the request before has ended
    server.removeHandler(caplog.handler)
    assert caplog.records == []
