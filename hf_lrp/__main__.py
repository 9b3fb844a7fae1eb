"""`python -m hf_lrp COMMAND ...`, which is `hf-lrp COMMAND ...`; for `accelerate launch -m hf_lrp`."""

import sys

from hf_lrp.commands.cli import main

sys.exit(main())
