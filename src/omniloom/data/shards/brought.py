"""Rows of a store that are read as a whole before they are due: files of a folder, entries and their images."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from concurrent.futures import Future
from typing import Any

from omniloom.data.sample import RawSample

MOST_ROWS = 512
MOST_BYTES = 256 << 20
"""Rows, and bytes of their parts, that a source holds at most; beyond that, rows are read when they are due."""


class RowShelf:
    """Rows that were read ahead, each until it is taken as often as it was asked for (epochs of small sets overlap).

    A copy of it in another process is empty.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: OrderedDict[int, Future[RawSample]] = OrderedDict()
        self._wanted: dict[int, int] = {}
        self._sizes: dict[int, int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return RowShelf, ()

    @property
    def held_bytes(self) -> int:
        """Bytes of the rows that are here."""
        return sum(self._sizes.values())

    def begin(self, row: int) -> Future[RawSample] | None:
        """A place for a row that is read now; ``None`` where it is here already, or there is no room."""
        with self._lock:
            if row in self._rows:
                self._wanted[row] += 1
                return None
            if self.held_bytes >= MOST_BYTES:
                return None
            if len(self._rows) >= MOST_ROWS:
                oldest = next((number for number, one in self._rows.items() if one.done()), None)
                if oldest is None:
                    return None
                self._forget(oldest)  # one that nobody took: the plan went elsewhere
            coming: Future[RawSample] = Future()
            self._rows[row], self._wanted[row] = coming, 1
            return coming

    def finish(self, row: int, coming: Future[RawSample], sample: RawSample) -> None:
        """The row has been read."""
        with self._lock:
            if self._rows.get(row) is coming:
                self._sizes[row] = sum(map(len, sample.parts.values()))
        coming.set_result(sample)

    def take(self, row: int) -> RawSample | None:
        """A row, waited for where it is being read; ``None`` where nobody reads it. Raises what reading it raised."""
        with self._lock:
            coming = self._rows.get(row)
            if coming is None:
                return None
            self._wanted[row] -= 1
            if not self._wanted[row]:
                self._forget(row)
        found = coming.result()
        return found._replace(parts=dict(found.parts))

    def _forget(self, row: int) -> None:
        self._rows.pop(row, None)
        self._sizes.pop(row, None)
        self._wanted.pop(row, None)


class BroughtRows(ABC):
    """What a source does to have its rows read ahead where they lie in a store (see `read_ahead.FarRows`)."""

    brought_at_a_time = 16

    def __init__(self) -> None:
        self._shelf = RowShelf()

    @property
    @abstractmethod
    def is_far(self) -> bool:
        """Whether the rows lie in a store."""

    @abstractmethod
    def read_now(self, row: int) -> RawSample:
        """The parts of a row, asked for now."""

    def read(self, row: int) -> RawSample:
        """The parts of a row: as `read_now`, or what that gave before. Raises as `read_now`."""
        return (self._shelf.take(row) if self.is_far else None) or self.read_now(row)

    @property
    def brings(self) -> bool:
        """Whether `bring` does anything."""
        return self.is_far

    def bring(self, row: int) -> None:
        """Read a row before it is due."""
        coming = self._shelf.begin(row)
        if coming is None:
            return
        try:
            self._shelf.finish(row, coming, self.read_now(row))
        except BaseException as error:
            coming.set_exception(error)  # whoever takes the row is told

    def opened_by(self, row: int) -> int:
        """The row itself: nothing is shared with others."""
        return row

    def knows_places(self, row: int) -> bool:
        """There is nothing to be known: a row is brought as a whole."""
        return True

    def places(self, row: int) -> tuple[tuple[str, int, int], ...]:
        """None: see `bring`."""
        return ()
