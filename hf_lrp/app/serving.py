"""The app's server: Gradio behind a guard that lets through what the app needs, and nothing else."""

from __future__ import annotations

import os
import re
import socket
import tempfile
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_lrp.app.events import Events
from hf_lrp.app.layout import LONG, SHORT, build, import_gradio, own_file
from hf_lrp.app.requests import Receive, checked_question, read_body, replay
from hf_lrp.app.views import FILES

if TYPE_CHECKING:
    import uvicorn

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# What a browser needs to show the app and to ask. Gradio has more: files, uploads, proxies, histories, programs.
_GET = re.compile(
    r"/|/config/?|/theme\.css|/favicon\.ico|/robots\.txt|/manifest\.json|/(assets|static|svelte)/[^?]*"
    r"|/download/[0-9a-f]+/[a-z.]+|/gradio_api/(theme\.css|info|startup-events|queue/data|app_id/?|heartbeat/\w+)"
)
_POST = re.compile(r"/gradio_api/(queue/join/?|reset/?|cancel)")
_ASK, _LISTEN = "/gradio_api/queue/join", "/gradio_api/queue/data"
LARGEST_REQUEST = 2**18  # bytes; texts are far smaller
# The browser loads from this server only, whatever Gradio asks it for. Its page needs inline scripts.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self'"
)


class Guard:
    """Refuses what the app does not need: other addresses, all of Gradio's access to files, large or odd requests.

    Args:
        app: the ASGI application behind it.
        inputs: by the number of an event of its page, how many inputs it has.
        lanes: by the number of an event, that of the same one for questions that take long.
    """

    def __init__(self, app: Any, inputs: Mapping[int, int], lanes: Mapping[int, int]) -> None:
        self.app, self.inputs, self.lanes = app, inputs, lanes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with an error."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        status = refusal(scope) if scope["type"] == "http" else 404
        if status is None and scope["path"].rstrip("/") == _ASK:
            question = checked_question(await read_body(receive), self.inputs, self.lanes)
            status, receive = (422, receive) if question is None else (None, replay(question, receive))
        if status is None:
            await self._pass_on(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.app(scope, receive, _with_policy(send))
        except RuntimeError:
            # Gradio answers who listens for an unknown session, and then fails, with two tracebacks.
            if scope["path"] != _LISTEN:
                raise
            await send({"type": "http.response.body", "body": b""})


def refusal(scope: Scope) -> int | None:
    """The error that a request is answered with; None for those that are passed on."""
    path, method = scope["path"], scope["method"]
    if method in ("GET", "HEAD"):
        return None if _GET.fullmatch(path) else 404
    if method != "POST" or not _POST.fullmatch(path):
        return 404
    length = dict(scope["headers"]).get(b"content-length", b"")
    if not length.isdigit():
        return 411
    return 413 if int(length) > LARGEST_REQUEST else None


def _with_policy(send: Send) -> Send:
    headers = [
        (b"content-security-policy", POLICY.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    ]

    async def send_with_policy(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *headers]}
        await send(message)

    return send_with_policy


def make_server(events: Events, folder: Path, *, host: str = "127.0.0.1", port: int = 7860) -> uvicorn.Server:
    """A server that can be run: `server.run()`.

    Args:
        events: what the app does.
        folder: an empty one for what Gradio keeps.
        host: the address to listen on; by default only this machine reaches it.
        port: the port; 0: a free one.
    """
    gr = import_gradio()
    os.environ["GRADIO_TEMP_DIR"] = str(folder)  # where its components keep files
    import uvicorn
    from fastapi import FastAPI

    no_docs: dict[str, Any] = {"docs_url": None, "redoc_url": None, "openapi_url": None}
    page = build(events).queue(max_size=events.limits.waiting, api_open=False)
    look = {"primary_hue": "blue", "font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
    app = FastAPI(**no_docs)
    app.add_api_route("/download/{key}/{name}", _downloads(events))
    gr.mount_gradio_app(
        app,
        page,
        "/",
        server_name=host,
        server_port=port,
        footer_links=[],
        run_history=False,
        app_kwargs=no_docs,
        allowed_paths=[],
        show_error=False,
        max_file_size=1,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
        theme=gr.themes.Default(**look),  # fonts that no browser downloads
        css=own_file("page.css"),
        head=f"<script>{own_file('page.js')}</script>",
    )
    events_of_page = {number: event for number, event in page.fns.items() if event.fn is not None}
    inputs = {number: len(event.inputs) for number, event in events_of_page.items()}
    [long] = [number for number, event in events_of_page.items() if event.concurrency_id == LONG]
    lanes = {number: long for number, event in events_of_page.items() if event.concurrency_id == SHORT}
    return uvicorn.Server(uvicorn.Config(Guard(app, inputs, lanes), host=host, port=port, log_level="warning"))


def require_free(host: str, port: int) -> None:
    """Raise an OSError where nothing can listen on an address, before models are loaded for it."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        raise OSError(
            f"cannot listen on {host}, port {port} ({error.strerror}): give another --port, or --host"
        ) from error


def serve(events: Events, *, host: str = "127.0.0.1", port: int = 7860) -> None:
    """Run the app until it is interrupted."""
    with tempfile.TemporaryDirectory() as folder:
        make_server(events, Path(folder), host=host, port=port).run()


def _downloads(events: Events) -> Callable[[str, str], Any]:
    from fastapi import Response

    def download(key: str, name: str) -> Response:
        try:
            content = events.recent.file(key, name)
        except ValueError:
            return Response(status_code=404)
        return Response(
            content, media_type=FILES[name], headers={"Content-Disposition": f'attachment; filename="{name}"'}
        )

    download.__annotations__ = {"key": str, "name": str, "return": Response}  # the route reads them; Response is local
    return download
