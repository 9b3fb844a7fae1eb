"""`hf-lrp analyze` with small shards: what tests start in processes of their own."""

import sys

import sudden_end

from hf_lrp.commands.cli import main
from hf_lrp.corpus import processes as scheduling

SHARD = 2

if __name__ == "__main__":
    sudden_end.obey()
    scheduling.SHARD = SHARD
    sys.exit(main(["analyze", *sys.argv[1:]]))
