"""Bytes that are on their way or here already, before anybody asks for them: what a read-ahead fills.

A reader of a store takes what it needs by its exact range and finds it here, or asks the store itself. So a read-ahead
can only make reads quicker: what is read, and in which order, does not depend on it.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from omniloom.storage.open import open_store
from omniloom.storage.store import Range

CONNECTIONS = 16
"""Long ranges that a process fetches at a time."""

_Place = tuple[str, int, int]


class _Run:
    """A long range on its way; its rows are cut out when it has come."""

    __slots__ = ("future",)

    def __init__(self, future: Future[None]) -> None:
        self.future = future


_Task = tuple[_Run, str, int, int, tuple[Range, ...]]


class Spool:
    """Ranges of objects, fetched ahead. Each may be taken as often as it was fetched, by any thread.

    Attributes:
        held_bytes: bytes that are here or on their way.
        peak_bytes: the most there ever were.
    """

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self.held_bytes = 0
        self.peak_bytes = 0
        self._lock = threading.Lock()
        self._entries: dict[_Place, list[_Run | bytes]] = {}
        self._waiting: list[tuple[int, int, _Task]] = []
        self._serial = itertools.count()
        self._more = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []

    def fetch(self, url: str, start: int, stop: int, ranges: Sequence[Range], *, turn: int = 0) -> None:
        """Fetch a long range in the background and keep the ranges in it.

        Args:
            url: the object.
            start: first byte of the long range.
            stop: byte after its last one.
            ranges: the ranges that will be taken; what lies between them is forgotten.
            turn: what waits with a lower number is fetched first.
        """
        size_bytes = sum(last - first for first, last in ranges)
        with self._lock:
            done: Future[None] = Future()
            run = _Run(done)
            for first, last in ranges:
                self._entries.setdefault((url, first, last), []).append(run)
            self.held_bytes += size_bytes
            self.peak_bytes = max(self.peak_bytes, self.held_bytes)
            heapq.heappush(self._waiting, (turn, next(self._serial), (run, url, start, stop, tuple(ranges))))
            if len(self._threads) < CONNECTIONS:
                thread = threading.Thread(target=self._work, name="omniloom-ahead", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._more.notify()

    def take(self, url: str, start: int, stop: int) -> bytes | None:
        """A range that was fetched, waited for if it is on its way; ``None`` where nobody fetched it.

        Raises:
            StorageError: it could not be had.
        """
        place = (url, start, stop)
        if place not in self._entries:
            return None
        with self._lock:
            waiting = self._entries.get(place)
            found = waiting[0] if waiting else None
        if found is None:
            return None
        if isinstance(found, _Run):
            found.future.result()
        return self._pop(place)

    def drop(self, url: str, start: int, stop: int) -> None:
        """Forget a range that nobody will take, if it is there."""
        self._pop((url, start, stop))

    def _pop(self, place: _Place) -> bytes | None:
        with self._lock:
            waiting = self._entries.get(place)
            if not waiting:
                return None
            found = waiting.pop(0)
            if not waiting:
                del self._entries[place]
            self.held_bytes -= place[2] - place[1]
        return found if isinstance(found, bytes) else None

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._waiting:
                    self._more.wait()
                _, _, task = heapq.heappop(self._waiting)
            self._bring(*task)

    def _bring(self, run: _Run, url: str, start: int, stop: int, ranges: tuple[Range, ...]) -> None:
        try:
            if all((url, first, last) not in self._entries for first, last in ranges):
                run.future.set_result(None)  # dropped before its turn came
                return
            data = open_store(url).read(url, start, stop)
            with self._lock:
                for first, last in ranges:
                    waiting = self._entries.get((url, first, last), [])
                    if run in waiting:  # a copy of each row, so that the rows are given up one by one
                        waiting[waiting.index(run)] = data[first - start : last - start]
            run.future.set_result(None)
        except Exception as error:
            run.future.set_exception(error)


SPOOL = Spool()
"""The spool of this process."""
