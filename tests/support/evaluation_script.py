"""`hf-lrp analyze` with small shards: what tests start in processes of their own."""

import sys

from sudden_end import kill_before

from hf_lrp.commands.cli import main
from hf_lrp.corpus import processes as scheduling

SHARD = 2


def analyze(arguments: list[str]) -> int:
    """The command; its exit code."""
    scheduling.SHARD = SHARD
    return main(["analyze", *arguments])


def analyze_until(pattern: str, arguments: list[str]) -> None:
    """The same, killed before a file or folder appears that matches the pattern."""
    kill_before(pattern)
    analyze(arguments)


if __name__ == "__main__":
    sys.exit(analyze(sys.argv[1:]))
