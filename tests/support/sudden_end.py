"""A process that is killed at a given moment, whatever the speed of the machine."""

import os
import signal
import sys
from fnmatch import fnmatch

VARIABLE = "KILL_BEFORE_WRITING"


def obey() -> None:
    """Kill this process, as `kill -9` does, before a file or folder appears that matches the variable's pattern."""
    pattern = os.environ.get(VARIABLE)
    if pattern is None:
        return

    def watch(event: str, arguments: tuple) -> None:
        new = {"os.rename": 1, "os.mkdir": 0}.get(event)
        if new is not None and fnmatch(str(arguments[new]), pattern):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
