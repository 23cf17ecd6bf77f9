"""Bytes that are on their way or here already, before anybody asks for them: what a read-ahead fills.

Rows that are coming say which ranges they will read (`want`). When one of them is asked for, it is fetched together
with its neighbours that are wanted, too, whoever wants them: all lanes of a process share one spool. A reader of a
store takes what it needs by its exact range and finds it here, or asks the store itself. So a read-ahead can only make
reads quicker: what is read, and in which order, does not depend on it.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future

from omniloom.storage.counts import COUNTS
from omniloom.storage.open import open_store
from omniloom.storage.store import Range

CONNECTIONS = 16
"""Long ranges that a process fetches at a time."""

LONG_RANGE_BYTES = 8 << 20
"""The longest range that is fetched at once."""

GAP_SHARE = 1 / 4
"""Bytes of a long range that nobody wants, at most, as a share of those that are wanted."""

GAP_BYTES = 16 << 10
"""The same where that is less: a request costs more than so many bytes."""

_Place = tuple[str, int, int]


class _Entry:
    """A range that rows want: not asked for yet, on its way, or here."""

    __slots__ = ("coming", "data", "wanted")

    def __init__(self) -> None:
        self.wanted = 0  # rows that have not let go of it
        self.coming: Future[None] | None = None
        self.data: bytes | None = None


_Task = tuple[Future[None], str, int, int, list[Range]]


class Spool:
    """Ranges of objects, fetched ahead. A range is here once, however many rows want it, until the last lets go.

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
        self._entries: dict[_Place, _Entry] = {}
        self._unasked: dict[str, list[Range]] = {}  # by object, sorted
        self._abandoned: deque[_Place] = deque()
        self._waiting: list[tuple[int, int, _Task]] = []
        self._serial = itertools.count()
        self._more = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []

    def want(self, places: Iterable[_Place]) -> None:
        """Say that ranges will be read, soon or later; each has to be let go of as often (see `let_go`)."""
        with self._lock:
            self._drop_abandoned()
            for place in places:
                entry = self._entries.get(place)
                if entry is None:
                    entry = self._entries[place] = _Entry()
                    insort(self._unasked.setdefault(place[0], []), place[1:])
                entry.wanted += 1

    def ask_for(self, place: _Place, *, longest_bytes: int = LONG_RANGE_BYTES, turn: int = 0) -> None:
        """Fetch a range that is wanted, in the background, with its wanted neighbours, unless it was asked for before.

        Args:
            place: URL, first byte, and the byte after the last one.
            longest_bytes: what the long range does not grow beyond.
            turn: what waits with a lower number is fetched first.
        """
        entry = self._entries.get(place)
        if entry is not None and entry.coming is not None:
            return  # as with most: a neighbour was asked for
        with self._lock:
            entry = self._entries.get(place)
            if entry is None or entry.coming is not None:
                return
            url = place[0]
            start, stop, ranges = self._cut_out(url, place[1:], longest_bytes)
            coming: Future[None] = Future()
            for first, last in ranges:
                self._entries[url, first, last].coming = coming
            wanted_bytes = sum(last - first for first, last in ranges)
            self.held_bytes += wanted_bytes
            self.peak_bytes = max(self.peak_bytes, self.held_bytes)
            heapq.heappush(self._waiting, (turn, next(self._serial), (coming, url, start, stop, ranges)))
            if len(self._threads) < CONNECTIONS:
                thread = threading.Thread(target=self._work, name="omniloom-ahead", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._more.notify()
        COUNTS.add("long_ranges", 1)
        COUNTS.add("long_range_bytes", stop - start)
        COUNTS.add("wanted_bytes", wanted_bytes)

    def take(self, url: str, start: int, stop: int) -> bytes | None:
        """A range that is wanted, waited for where it is not here yet; ``None`` where nobody wants it.

        Raises:
            StorageError: it could not be had.
        """
        entry = self._entries.get((url, start, stop))
        if entry is None or entry.data is not None:
            return None if entry is None else entry.data
        if entry.coming is None:
            self.ask_for((url, start, stop))
        if entry.coming is not None:
            entry.coming.result()
        return entry.data

    def let_go(self, places: Iterable[_Place]) -> None:
        """Say that a row which wanted these ranges is done with them, or will not be read."""
        with self._lock:
            for place in places:
                self._drop(place)

    def abandon(self, places: Iterable[_Place]) -> None:
        """The same for finalizers, which may run anywhere, even while this thread holds the lock."""
        self._abandoned.extend(places)
        if self._lock.acquire(blocking=False):
            try:
                self._drop_abandoned()
            finally:
                self._lock.release()

    def _drop_abandoned(self) -> None:
        while self._abandoned:
            self._drop(self._abandoned.popleft())

    def _drop(self, place: _Place) -> None:
        entry = self._entries.get(place)
        if entry is None:
            return
        entry.wanted -= 1
        if entry.wanted:
            return
        del self._entries[place]
        if entry.coming is not None:
            self.held_bytes -= place[2] - place[1]
        else:
            unasked = self._unasked[place[0]]
            del unasked[bisect_left(unasked, place[1:])]
            if not unasked:
                del self._unasked[place[0]]

    def _cut_out(self, url: str, place: Range, longest_bytes: int) -> tuple[int, int, list[Range]]:
        """A long range around a wanted one, and the wanted ones in it, which are unasked for no more."""
        unasked = self._unasked[url]
        first = bisect_left(unasked, place)
        last = first + 1
        (start, stop), spare = place, 0
        wanted = stop - start
        for ranges, step in ((range(last, len(unasked)), 1), (range(first - 1, -1, -1), -1)):
            for at in ranges:
                begin, end = unasked[at]
                gap = max(0, begin - stop if step > 0 else start - end)
                longer = max(stop, end) - min(start, begin)
                added = longer - (stop - start) - gap
                if longer > longest_bytes or spare + gap > max(GAP_BYTES, (wanted + added) * GAP_SHARE):
                    break
                start, stop, spare, wanted = min(start, begin), max(stop, end), spare + gap, wanted + added
                first, last = min(first, at), max(last, at + 1)
        members = unasked[first:last]
        del unasked[first:last]
        if not unasked:
            del self._unasked[url]
        return start, stop, members

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._waiting:
                    self._more.wait()
                _, _, task = heapq.heappop(self._waiting)
            self._bring(*task)

    def _bring(self, coming: Future[None], url: str, start: int, stop: int, ranges: list[Range]) -> None:
        try:
            if any((url, first, last) in self._entries for first, last in ranges):  # else dropped before its turn
                data = open_store(url).read(url, start, stop)
                for first, last in ranges:
                    entry = self._entries.get((url, first, last))
                    if entry is not None and entry.coming is coming:
                        # A copy of each, so that they are given up one by one.
                        entry.data = data[first - start : last - start]
            coming.set_result(None)
        except Exception as error:
            coming.set_exception(error)


SPOOL = Spool()
"""The spool of this process."""
