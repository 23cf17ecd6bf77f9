"""Who is at work on something, told by files: no locks, so that a process that dies holds nobody up."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

STALE_SECONDS = 60.0
"""A ticket of a process that cannot be looked up, as in another container, is worth nothing after so long."""


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks: a number that is given to another process has another begin."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]


def _namespace() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - no file lies there
    except OSError:
        return ""


def mark_of_process() -> str:
    """What tells this process from all others."""
    pid = os.getpid()
    return f"{pid} {_started(pid)} {_namespace()}"


def is_alive(mark: str, *, age_seconds: float) -> bool:
    """Whether the process of a mark still runs.

    Args:
        mark: what `mark_of_process` gave.
        age_seconds: age of the ticket, which decides where the process cannot be looked up.
    """
    pid, _, rest = mark.partition(" ")
    started, _, namespace = rest.partition(" ")
    if not pid.isdecimal() or not namespace:
        return age_seconds < 1.0  # being written just now, or never finished
    if namespace != _namespace():
        return age_seconds < STALE_SECONDS
    return _started(int(pid)) == started


class Tickets:
    """Tickets in a folder of this machine: the first to draw one does the work, the others wait for what it makes.

    Two may come to do the same work where a dead one's ticket is drawn anew; nothing is wrong then but the time.
    """

    def __init__(self) -> None:
        self._mark = ""
        self._pid = -1

    def draw(self, path: str) -> bool:
        """Draw the ticket of a file to be made; false where a living process holds it."""
        if self._pid != os.getpid():
            self._pid, self._mark = os.getpid(), mark_of_process()
        for _ in range(2):
            try:
                descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            except FileExistsError:
                if self._is_held(path):
                    return False
                with contextlib.suppress(OSError):
                    os.unlink(path)  # noqa: PTH108 - texts
                continue
            try:
                os.write(descriptor, self._mark.encode())
            finally:
                os.close(descriptor)
            return True
        return False

    def give_back(self, path: str) -> None:
        """The work is done, or given up."""
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108

    def _is_held(self, path: str) -> bool:
        try:
            mark = Path(path).read_text()
            age = time.time() - os.stat(path).st_mtime  # noqa: PTH116
        except OSError:
            return False
        return is_alive(mark, age_seconds=age)
