"""A process that is killed at a given moment, whatever the speed of the machine."""

import os
import signal
import sys
from fnmatch import fnmatch


def kill_before(pattern: str) -> None:
    """Kill this process, as `kill -9` does, before a file or folder appears that matches the pattern."""

    def watch(event: str, arguments: tuple) -> None:
        new = {"os.rename": 1, "os.mkdir": 0}.get(event)
        if new is not None and fnmatch(str(arguments[new]), pattern):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
