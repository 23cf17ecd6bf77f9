"""When a run has to stop early: a signal, or the end of its time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch
from torch import distributed

SLURM_END = "SLURM_JOB_END_TIME"
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)  # Slurm's --signal sends what it is told, USR1 as a rule


class StopWatch:
    """Knows whether any rank was told to stop, or time is up.

    Args:
        limit_seconds: of the run, from now; 0: none. Under Slurm the end of the job counts too.
        margin_seconds: stop so long before the end, for the last checkpoint.
    """

    def __init__(self, *, limit_seconds: float = 0.0, margin_seconds: float = 120.0) -> None:
        ends = [time.time() + limit_seconds] if limit_seconds else []
        if os.environ.get(SLURM_END, "").isdecimal():
            ends.append(float(os.environ[SLURM_END]))
        self._end = min(ends) - (margin_seconds if SLURM_END in os.environ else 0.0) if ends else None
        self._signal: str | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take signals as wishes to stop at the next step; a second Ctrl-C ends at once."""
        before = {number: signal.signal(number, self._noted) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def reason(self, *, group: distributed.ProcessGroup | None) -> str | None:
        """Why the run is to stop now, or ``None``: what any rank says holds for all. All ranks call it."""
        own = self._signal or ("the time limit" if self._end is not None and time.time() >= self._end else None)
        if group is None:
            return own
        said = torch.tensor(int(own is not None))
        distributed.all_reduce(said, op=distributed.ReduceOp.MAX, group=group)
        return own or ("another rank was told to" if int(said) else None)

    def _noted(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._signal = signal.Signals(number).name
