"""Peak memory of a process and everything it started: the sum of their proportional set sizes (PSS)."""

from __future__ import annotations

import threading
from pathlib import Path

PROC = Path("/proc")


def tree(root_pid: int) -> list[int]:
    """The process and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        # The command name stands in parentheses and may itself hold spaces and parentheses.
        parent = int(stat.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(entry.name))
    found, pending = [], [root_pid]
    while pending:
        pid = pending.pop()
        found.append(pid)
        pending += children.get(pid, [])
    return found


def pss_bytes(pid: int) -> int:
    """Proportional set size of one process; 0 when it has ended."""
    try:
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


class PeakMemory:
    """Samples the summed PSS of a process tree from outside, in a thread of the runner."""

    def __init__(self, pid: int, *, interval_seconds: float = 0.02) -> None:
        self._pid = pid
        self._interval_seconds = interval_seconds
        self._peak_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(self._interval_seconds):
            self._peak_bytes = max(self._peak_bytes, sum(pss_bytes(pid) for pid in tree(self._pid)))

    def stop(self) -> int:
        """End sampling and return the highest sum seen, in bytes."""
        self._ended.set()
        self._thread.join()
        return self._peak_bytes
