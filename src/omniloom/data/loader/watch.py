"""What can be known of a worker from outside: the key in hand, since when, its stack, and why it died."""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from omniloom.data.loader.transport import shared_memory_file
from omniloom.data.sample import SampleKey

_LAYOUT = struct.Struct("<qqqq")  # data set, epoch, row, part
_STACK_BYTES = 1 << 16
_BOARD_BYTES = 4_096
NO_KEY = SampleKey(-1, -1, -1, -1)


class Board:
    """A page of shared memory on which a worker writes the key it takes in hand. It outlives the worker."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _BOARD_BYTES)

    @classmethod
    def create(cls) -> tuple[Board, int]:
        """A new board and the descriptor by which another process can map it."""
        descriptor = shared_memory_file(_BOARD_BYTES)
        board = cls(descriptor)
        board.clear()
        return board, descriptor

    @property
    def take_in_hand(self) -> Callable[[int, int, int, int], None]:
        """Writes the numbers of the key that is worked on from now. It is called for every sample, so it is native."""
        return partial(_LAYOUT.pack_into, self._memory, 0)

    def clear(self) -> None:
        """Write that no key is in hand."""
        self.take_in_hand(*NO_KEY)

    def read(self) -> SampleKey | None:
        """The key in hand, if any."""
        key = SampleKey(*_LAYOUT.unpack_from(self._memory, 0))
        return None if key == NO_KEY else key


class StackFile:
    """Shared memory into which a process dumps the stacks of its threads when it gets SIGUSR1."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def register(cls) -> StackFile:
        """Make this process dump its stacks on SIGUSR1, even where it is stuck in native code."""
        descriptor = shared_memory_file(0)
        faulthandler.register(signal.SIGUSR1, file=descriptor, all_threads=True)
        return cls(descriptor)

    def ask(self, pid: int, *, patience_seconds: float = 2.0) -> str:
        """The stacks of a process that registered this file."""
        before = os.fstat(self.descriptor).st_size
        try:
            os.kill(pid, signal.SIGUSR1)
        except ProcessLookupError:
            return "(the process is gone)"
        deadline = time.monotonic() + patience_seconds
        size = before
        while time.monotonic() < deadline:
            time.sleep(0.05)
            last, size = size, os.fstat(self.descriptor).st_size
            if size > before and size == last:
                break
        start = max(before, size - _STACK_BYTES)
        return os.pread(self.descriptor, size - start, start).decode(errors="replace") or "(no answer)"

    def close(self) -> None:
        """Forget the file."""
        os.close(self.descriptor)


def out_of_memory_kills() -> int:
    """How many processes the kernel has killed for memory, on this machine or in this control group."""
    count = 0
    for path, word in ((Path("/proc/vmstat"), "oom_kill"), (Path("/sys/fs/cgroup/memory.events"), "oom_kill")):
        try:
            text = path.read_text()
        except OSError:
            continue
        count += sum(int(line.split()[1]) for line in text.splitlines() if line.split()[0] == word)
    return count


def exit_cause(exit_code: int, *, killed_for_memory: bool) -> str:
    """Why a process ended, in words."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    if killed_for_memory and exit_code == -signal.SIGKILL:
        return f"was killed by {name} (the kernel ran out of memory)"
    return f"was killed by {name}"
