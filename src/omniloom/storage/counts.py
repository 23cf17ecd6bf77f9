"""What the stores of this process did, for statistics: taken by the loader and carried along with batches."""

from __future__ import annotations

import os
import threading


class Counts:
    """Numbers by name. Any thread may add to them."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[str, int] = {}
        self._total: dict[str, int] = {}

    def add(self, name: str, count: int) -> None:
        """Count something."""
        if not count:
            return
        with self._lock:
            self._since[name] = self._since.get(name, 0) + count
            self._total[name] = self._total.get(name, 0) + count

    def take(self) -> dict[str, int]:
        """What was counted since the last call."""
        if not self._since:
            return {}
        with self._lock:
            taken, self._since = self._since, {}
        return taken

    def total(self) -> dict[str, int]:
        """All that was counted in this process."""
        with self._lock:
            return dict(self._total)


COUNTS = Counts()
"""The counts of this process: ``requests``, ``fetched_bytes``, ``retries_<fault>``, ``long_ranges`` that were fetched
ahead, ``long_range_bytes`` and the ``wanted_bytes`` among them, ``cache_hits`` and ``cache_misses``
(in blocks), ``cache_evictions``, ``cache_write_failures``."""
