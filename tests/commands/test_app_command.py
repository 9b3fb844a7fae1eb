"""`hf-lrp app`: what it refuses before it loads anything, and what it serves."""

import argparse
import socket
import sys
from typing import Any

import pytest

from hf_lrp.app.events import Events
from hf_lrp.app.models import EMBEDDED
from hf_lrp.commands.cli import main


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_the_whole_hub_is_for_this_machine_only(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["app", "--hub", "--host", host])
    assert stop.value.code == 2 and "list the models instead" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["0", "65536", "http"])
def test_ports_are_numbers(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["app", "--port", port])
    assert "is not a port from 1 to 65535" in capsys.readouterr().err


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert main(["app"]) == 1
    assert 'pip install "gradio' in capsys.readouterr().err


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What would be served."""
    found: dict[str, Any] = {}

    def serve(events: Events, **options: Any) -> None:
        found.update(events=events, **options)

    monkeypatch.setattr("hf_lrp.app.serving.serve", serve)
    monkeypatch.setattr("hf_lrp.app.layout.import_gradio", lambda: argparse.Namespace())
    return found


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def test_it_serves_what_the_options_say(served: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    limits = ["--max-tokens", "9", "--max-memory", "1GB", "--kept-models", "1", "--queue", "3"]
    assert main(["app", "--port", port, *limits]) == 0
    events = served["events"]
    assert events.models.labels == [EMBEDDED] == events.models.in_memory and not events.models.hub
    assert (events.limits.tokens, events.limits.memory) == (9, "1GB")
    assert (events.limits.models, events.models.kept, events.limits.waiting) == (1, 1, 3)
    assert served["host"] == "127.0.0.1" and f"http://127.0.0.1:{port}" in capsys.readouterr().err


def test_a_taken_port_is_an_error(served: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["app", "--port", str(taken.getsockname()[1])]) == 1
    assert "give another --port" in capsys.readouterr().err and not served
