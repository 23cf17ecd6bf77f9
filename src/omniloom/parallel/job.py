"""The process group of a program that torchrun started, and the end of such a program."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def is_rank() -> bool:
    """Whether this process is one of several that torchrun (or Slurm, with its variables) started."""
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def job() -> Iterator[None]:
    """The process group that torchrun asks for, if it does."""
    if not is_rank():
        yield
        return
    import torch  # noqa: PLC0415 - the entry point imports this module for every command
    from torch import distributed  # noqa: PLC0415

    distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
    finally:
        distributed.destroy_process_group()


class PlainEnd:
    """Ends a rank after all exit handlers have run, and before the interpreter takes itself apart.

    Threads of gloo and of autograd outlive their group. One that asks for the interpreter's lock while the interpreter
    ends is unwound through C++ that forbids it: "terminate called without an active exception", exit code -6 of a job
    whose work was done, which torchrun and Slurm take for a failure. (1 of 50 runs with torch 2.13.)

    Make it first of all: exit handlers run in reverse order.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        """The code to end with; ``None``: the interpreter ends as ever."""
        if is_rank():
            atexit.register(self._leave)

    def _leave(self) -> None:
        if self.code is None:
            return
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # the reader has gone
                stream.flush()
        os._exit(self.code)
