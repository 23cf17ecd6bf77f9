"""What can be known of a worker from outside: the key in hand, since when, its stack, and why it died."""

from __future__ import annotations

import faulthandler
import logging
import mmap
import os
import signal
import struct
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from omniloom.data.loader.transport import shared_memory_file
from omniloom.data.sample import SampleKey
from omniloom.errors import WorkerError

logger = logging.getLogger("omniloom")

_LAYOUT = struct.Struct("<qqqq")  # data set, epoch, row, part
_STACK_BYTES = 1 << 16
_BOARD_BYTES = 4_096
NO_KEY = SampleKey(-1, -1, -1, -1)


class Board:
    """A page of shared memory on which a worker writes the key it takes in hand. It outlives the worker."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _BOARD_BYTES)

    @classmethod
    def private(cls) -> Board:
        """A new board for the threads of this process."""
        board = cls(-1)
        board.clear()
        return board

    @classmethod
    def create(cls) -> tuple[Board, int]:
        """A new board and the descriptor by which another process can map it."""
        descriptor = shared_memory_file(_BOARD_BYTES)
        board = cls(descriptor)
        board.clear()
        return board, descriptor

    @classmethod
    def received(cls, descriptor: int) -> Board:
        """The board of another process; takes over the descriptor."""
        try:
            return cls(descriptor)
        finally:
            os.close(descriptor)

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


def spoken(key: SampleKey | None) -> str:
    """A key in words."""
    return "no sample" if key is None else f"data set {key.dataset}, row {key.row}, epoch {key.epoch}"


class OwnWatch:
    """A thread that looks whether its own process is at one sample for too long while it makes a batch.

    It cannot look while native code holds the interpreter lock; workers are watched from outside, without that gap.

    Args:
        limit_seconds: a sample that takes longer is reported, with the stacks of all threads.
        fail: interrupt it as well, if the main thread is at it; then `WorkerError` is raised there.
    """

    def __init__(self, limit_seconds: float, *, fail: bool) -> None:
        self.board = Board.private()
        self._limit_seconds = limit_seconds
        self._fail = fail
        self._turn = 0
        self._at_work: int | None = None  # ident of the thread that makes a batch
        self._interrupted = False
        end = threading.Event()
        self._finalizer = weakref.finalize(self, end.set)
        arguments = (weakref.ref(self), end, min(1.0, limit_seconds / 4))
        threading.Thread(target=_look_now_and_then, args=arguments, name="omniloom-watch", daemon=True).start()
        self._seen: tuple[int, SampleKey | None] | None = None
        self._seen_seconds = 0.0
        self._reported = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what is done inside. Raises WorkerError where it took too long and was to fail."""
        self._turn += 1
        self._at_work = threading.get_ident()
        try:
            with self._interruptible():
                yield
        except KeyboardInterrupt:
            if not self._interrupted:
                raise
            self._interrupted = False
            raise WorkerError(
                f"{spoken(self.board.read())} took more than {self._limit_seconds:g} seconds. Look at the stacks in "
                "the log; give more time with watchdog_timeout_seconds, or drop fail_on_timeout."
            ) from None
        finally:
            self._at_work = None
            self.board.clear()

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Heed our own interrupt where interrupts are ignored, as in what a script puts into the background."""
        if not (self._fail and threading.current_thread() is threading.main_thread()) or (
            signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
        ):
            yield
            return
        signal.signal(signal.SIGINT, self._heed)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _heed(self, _number: int, _frame: object) -> None:
        if self._interrupted:
            raise KeyboardInterrupt

    def look(self) -> None:
        """Report what has not moved since the limit."""
        worker = self._at_work
        sight = (self._turn, self.board.read())
        if worker is None or sight != self._seen:
            self._seen, self._seen_seconds, self._reported = sight, time.monotonic(), False
            return
        if self._reported or time.monotonic() - self._seen_seconds < self._limit_seconds:
            return
        self._reported = True
        logger.warning(
            "this process has been at %s for more than %g seconds. Its stacks:\n%s",
            spoken(sight[1]), self._limit_seconds, stacks_of_threads(),
        )  # fmt: skip
        if self._fail and worker == threading.main_thread().ident and self._at_work is not None:
            self._interrupted = True
            signal.pthread_kill(worker, signal.SIGINT)  # unlike an exception set from here, it ends a sleep or a read

    def close(self) -> None:
        """End the thread."""
        self._finalizer()


def _look_now_and_then(watch: weakref.ref[OwnWatch], end: threading.Event, period_seconds: float) -> None:
    while not end.wait(period_seconds):
        watched = watch()
        if watched is None:
            return
        watched.look()
        del watched


def stacks_of_threads() -> str:
    """The stacks of all threads but this one."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    return "\n".join(
        f"Thread {names.get(ident, ident)}:\n" + "".join(traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()
        if ident != own
    )
