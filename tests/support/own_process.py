"""Processes of their own for parts of tests.

They are forked from one that has imported the libraries: a fresh interpreter takes seconds for that. What depends on
how an interpreter starts, such as variables that are read on import, needs a fresh one all the same.
"""

import multiprocessing
from collections.abc import Callable

import torch

_LIBRARIES = ("datasets", "hypothesis", "pytest", "transformers.models.marian.modeling_marian")
multiprocessing.get_context("forkserver").set_forkserver_preload([*_LIBRARIES, "transformers.trainer_seq2seq"])


def exit_code(work: Callable[..., object], *arguments: object) -> int:
    """How a process ends that calls ``work``; minus the number of the signal that killed it."""
    process = multiprocessing.get_context("forkserver").Process(target=work, args=arguments)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def start_together(work: Callable[..., object], *arguments: object, processes: int = 2) -> None:
    """Call ``work(rank, *arguments)`` in each of several processes; an error in one ends all, and is raised."""
    torch.multiprocessing.start_processes(work, arguments, nprocs=processes, start_method="forkserver")
