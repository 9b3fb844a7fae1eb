"""The app's server in a thread of this process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hf_lrp.app.events import Events
from hf_lrp.app.serving import make_server


@contextmanager
def running(events: Events, folder: Path) -> Iterator[str]:
    """Serve on a free port; the address is there once the server answers."""
    server = make_server(events, folder, port=0)
    started, startup = threading.Event(), server.startup

    async def tell_when_started(sockets: object = None) -> None:
        await startup(sockets)
        started.set()

    server.startup = tell_when_started
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    started.wait()
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
