"""Say what hf-lrp runs on: versions, devices, threads, and whether its compiled part is in use.

For reports of problems and of speed. HF_LRP_COMPILED=off switches the
compiled part off; plain, avx2 or avx512 chooses an instruction set.
"""

from __future__ import annotations

import argparse

EXAMPLES = """
  hf-lrp env
  HF_LRP_COMPILED=off hf-lrp env
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def run(args: argparse.Namespace) -> None:
    """Print a line for each."""
    from hf_lrp.environment import describe_environment

    described = describe_environment()
    width = max(map(len, described))
    for name, value in described.items():
        print(f"{name:{width}}  {value}")
