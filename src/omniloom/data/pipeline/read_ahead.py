"""Reading ahead of a plan: rows that a lane will draw are fetched from stores, in few long ranges, before they are due.

A second stream of the plan runs before the lane's own and says which rows come. Of these, as many as the lane's
budget of bytes holds make the horizon. When a row of the horizon comes near, it is fetched together with its
neighbours in the object that lie in the horizon, too: a run of the plan becomes one request. What was fetched waits in
the process's spool, where the reader of the archive finds it. Rows are read by the same code in the same order as
without all this.
"""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from omniloom.data.plan.lane import Lane
from omniloom.data.sample import UNIT_END, SampleKey
from omniloom.storage.counts import COUNTS
from omniloom.storage.spool import CONNECTIONS, SPOOL

if TYPE_CHECKING:
    from omniloom.data.pipeline.desk import Desk
    from omniloom.data.pipeline.make import Make

GAP_BYTES = 64 << 10
"""Bytes between two rows that are fetched along and thrown away rather than asked around, at least."""

GAP_SHARE = 1 / 4
"""The same as a share of the bytes that are wanted."""

LONG_RANGE_BYTES = 8 << 20
"""The longest range that is fetched at once."""

FIRST_RANGE_BYTES = 1 << 20
FIRST_ROWS = 64
"""The same for the first rows of a lane, for which somebody waits."""

MOST_ROWS = 2048
"""Rows that a lane looks ahead at most."""

LEAD_SECONDS = 4.0
"""Rows that a lane draws in so long are fetched ahead: a few failures and waits are not felt."""

MOST_ROWS_NEAR = 1024
"""Rows that are fetched ahead at most."""

ROWS_A_LOOK = 128
"""Rows that are looked at for each that is read, until the horizon is full."""

FEWEST_ROWS_NEAR = 16
"""Rows that are always fetched ahead, however small the budget."""

NEAR_SHARE = 1 / 3
"""Share of the horizon's bytes that is fetched; the rest is there to be fetched along with it."""

LARGEST_ROW_SHARE = 1 / 4
"""A row with a larger share of its lane's budget is read when it is due."""


class Place(NamedTuple):
    """Where bytes of a row lie.

    Attributes:
        url: the object.
        start: first byte.
        stop: byte after the last one.
    """

    url: str
    start: int
    stop: int


class FarRows(Protocol):
    """Rows that lie in a store."""

    def places(self, row: int) -> Sequence[tuple[str, int, int]]:
        """The ranges that reading a row asks for; none where they are not known beforehand. May ask the store."""

    def opened_by(self, row: int) -> Hashable:
        """What has to be opened before the places of a row are known: the same for all rows of a shard."""

    def knows_places(self, row: int) -> bool:
        """Whether `places` answers at once, without a request."""


class _Ahead:
    """A row that is coming."""

    __slots__ = ("at_bytes", "finding", "is_placed", "key", "places", "turn", "waiting")

    def __init__(self, key: SampleKey) -> None:
        self.key = key
        self.places: tuple[Place, ...] = ()
        self.finding: Future[Any] | None = None
        self.waiting: set[Place] = set()  # in the horizon, not asked for yet
        self.at_bytes = 0
        self.turn = 0
        self.is_placed = False


class AheadBudget:
    """Bytes that the lanes of a process may hold ahead, shared evenly by those that are open.

    Args:
        total_bytes: of all lanes together; 0: nothing is read ahead.
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._lanes: weakref.WeakSet[ReadAhead] = weakref.WeakSet()
        self._threads: ThreadPoolExecutor | None = None
        self._opening: dict[Hashable, Future[Any]] = {}

    @property
    def lane_bytes(self) -> int:
        """The share of one lane."""
        return self.total_bytes // max(1, len(self._lanes))

    def join(self, lane: ReadAhead) -> None:
        """Count a lane as long as it lives."""
        self._lanes.add(lane)

    def open_place(self, rows: FarRows, row: int) -> Future[Any]:
        """Open what tells where a row lies, in the background, once for all who ask for it meanwhile."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(CONNECTIONS, "omniloom-find")
        key = id(rows), rows.opened_by(row)
        opening = self._opening.get(key)
        if opening is None:
            opening = self._opening[key] = self._threads.submit(rows.places, row)
            opening.add_done_callback(lambda _: self._opening.pop(key, None))
        return opening


def default_budget_bytes() -> int:
    """What a rank holds ahead where nobody says: 2 GiB, at most an eighth of the memory shared by the ranks here."""
    ranks_here = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(2 << 30, memory // 8 // ranks_here)


class ReadAhead:
    """What a lane fetches ahead.

    Args:
        make: the stage whose rows are read.
        lane: the lane.
        keys: its plan's stream.
        desk: what the process keeps at hand.
        far: by position, the leaves whose rows lie in a store.
    """

    def __init__(self, make: Make, lane: Lane, keys: Any, desk: Desk, far: dict[int, FarRows]) -> None:
        self._make, self._lane, self._keys, self._desk, self._far = make, lane, keys, desk, far
        self._budget: AheadBudget = desk.ahead
        self._budget.join(self)
        self._turns = 0
        self._since, self._drawn, self._rate = time.monotonic(), 0, 0.0
        self.restart()

    @classmethod
    def of(cls, make: Make, lane: Lane, keys: Any, desk: Desk) -> ReadAhead | None:
        """The read-ahead of a lane; ``None`` where all its leaves are on this machine, or there is no budget."""
        if not desk.ahead.total_bytes:
            return None
        far = {i: rows for i, leaf in enumerate(make.leaves) if (rows := getattr(leaf, "far_rows", None)) is not None}
        return cls(make, lane, keys, desk, far) if far else None

    def restart(self) -> None:
        """Forget what was ahead; begin from the place of the plan's stream when the next row is due."""
        self._drop_all()
        self._scout: Iterator[SampleKey] | None = None
        self._scouted: deque[_Ahead] = deque()
        self._horizon: deque[_Ahead] = deque()
        self._not_near: deque[_Ahead] = deque()
        self._unasked: dict[tuple[str, int], list[tuple[int, int, int, _Ahead]]] = {}
        self._end_bytes = 0
        self._last: _Ahead | None = None

    def due(self, key: SampleKey) -> None:
        """The plan has drawn a key: its row is read next. See that it is on its way, and those after it."""
        self._finish_last()
        row = self._row_of(key)
        self._extend()
        self._last = row
        if row is None or key.dataset not in self._far:
            return
        self._place(row)
        self._ask_for_all(row)
        self._fetch_near()
        self._count(key.dataset, "rows_ahead" if row.places else "rows_singly", 1)
        for name, count in COUNTS.take().items():  # counted with the data set that is at work just now
            self._count(key.dataset, name, count)

    def _row_of(self, key: SampleKey) -> _Ahead | None:
        """The row of a key that is due; what was expected before it is given up."""
        if self._scout is None:
            self._begin_after(key)
        while self._horizon or self._scouted:
            row = self._horizon.popleft() if self._horizon else self._scouted.popleft()
            if row.key == key:
                return row
            self._give_up(row)
        self.restart()
        self._begin_after(key)
        return self._scouted.popleft()

    def _begin_after(self, key: SampleKey) -> None:
        """Start a second stream of the plan where the first one is."""
        if getattr(self._make.source, "moves", False):
            # What comes after the running block hangs on what will have been drawn till then.
            self._scout = iter(self._keys.peek(MOST_ROWS))
        else:
            scout = self._make.source.open(self._lane)
            scout.load_state_dict(self._keys.state_dict())
            self._scout = _keys_until_end(scout)
        self._scouted.append(self._scouted_row(key))

    def _scouted_row(self, key: SampleKey) -> _Ahead:
        row = _Ahead(key)
        row.turn = self._turns = self._turns + 1
        rows = self._far.get(key.dataset)
        if rows is not None:
            if rows.knows_places(key.row):
                row.places = tuple(Place(*one) for one in rows.places(key.row))
            else:
                row.finding = self._budget.open_place(rows, key.row)
        return row

    def _extend(self) -> None:
        """Look further ahead, as far as rows and bytes allow."""
        lane_bytes = self._budget.lane_bytes
        if self._scout is None:
            return
        most_keys = ROWS_A_LOOK  # a little at a time: the first rows do not wait until all is looked at
        while len(self._horizon) + len(self._scouted) < MOST_ROWS and self._held_bytes() < lane_bytes:
            row = self._scouted[0] if self._scouted else None
            starved = len(self._scouted) >= FEWEST_ROWS_NEAR > len(self._horizon)  # at the start, or after a jump
            if row is not None and (row.finding is None or starved or row.finding.done()):
                self._scouted.popleft()
                self._place(row)
                self._join_horizon(row)
                continue
            most_keys -= 1
            if len(self._scouted) >= MOST_ROWS // 4 or most_keys < 0 or (key := next(self._scout, None)) is None:
                return
            self._scouted.append(self._scouted_row(key))

    def _held_bytes(self) -> int:
        return self._end_bytes - (self._horizon[0].at_bytes if self._horizon else self._end_bytes)

    def _place(self, row: _Ahead) -> None:
        """Where a row lies, waited for if it has to be. What is wrong with it shows when it is read."""
        if row.is_placed:
            return
        row.is_placed = True
        if row.finding is not None:
            finding, row.finding = row.finding, None
            if finding.exception() is None:
                found = self._far[row.key.dataset].places(row.key.row)
                row.places = tuple(Place(*one) for one in found)
        if sum(place.stop - place.start for place in row.places) > self._budget.lane_bytes * LARGEST_ROW_SHARE:
            row.places = ()
        row.waiting = set(row.places)

    def _join_horizon(self, row: _Ahead) -> None:
        row.at_bytes = self._end_bytes
        self._end_bytes += sum(place.stop - place.start for place in row.places) or 1
        self._horizon.append(row)
        self._not_near.append(row)
        for place in row.waiting:
            insort(
                self._unasked.setdefault((place.url, row.key.epoch), []),
                (place.start, place.stop, id(row), row),
                key=_by_place,
            )

    def _fetch_near(self) -> None:
        near_bytes = self._budget.lane_bytes * NEAR_SHARE
        most = self._rows_near()
        begin = self._horizon[0].at_bytes if self._horizon else self._end_bytes
        rows_near = len(self._horizon) - len(self._not_near)
        while self._not_near and rows_near < most:
            if rows_near >= FEWEST_ROWS_NEAR and self._not_near[0].at_bytes - begin > near_bytes:
                return
            rows_near += 1
            self._ask_for_all(self._not_near.popleft())

    def _rows_near(self) -> int:
        """Rows that this lane draws in the time that fetching is ahead, as fast as it drew them of late."""
        now = time.monotonic()
        self._drawn += 1
        if now - self._since > 1.0:
            self._rate, self._since, self._drawn = self._drawn / (now - self._since), now, 0
        return min(max(FEWEST_ROWS_NEAR, int(self._rate * LEAD_SECONDS)), MOST_ROWS_NEAR)

    def _ask_for_all(self, row: _Ahead) -> None:
        for place in row.places:
            if place in row.waiting:
                self._ask_for(place, row)

    def _ask_for(self, place: Place, row: _Ahead) -> None:
        """Fetch a place, and its neighbours that are wanted soon, in one request."""
        group = place.url, row.key.epoch  # rows of other epochs are wanted much later
        waiting = self._unasked.get(group, [])
        middle = bisect_left(waiting, (place.start, place.stop, id(row)), key=_by_place)
        found = middle < len(waiting) and _by_place(waiting[middle]) == (place.start, place.stop, id(row))
        longest = LONG_RANGE_BYTES if row.turn > FIRST_ROWS else FIRST_RANGE_BYTES
        first, last = middle, middle + found
        start, stop = place.start, place.stop
        wanted = stop - start
        while first > 0 and start - waiting[first - 1][1] <= max(GAP_BYTES, wanted * GAP_SHARE):
            if stop - waiting[first - 1][0] > longest:
                break
            first -= 1
            wanted += waiting[first][1] - waiting[first][0]
            start = min(start, waiting[first][0])
        while last < len(waiting) and waiting[last][0] - stop <= max(GAP_BYTES, wanted * GAP_SHARE):
            if waiting[last][1] - start > longest:
                break
            wanted += waiting[last][1] - waiting[last][0]
            stop = max(stop, waiting[last][1])
            last += 1
        members = waiting[first:last] if found else [(place.start, place.stop, id(row), row), *waiting[first:last]]
        del waiting[first:last]
        if not waiting:
            self._unasked.pop(group, None)
        for member in members:
            member[3].waiting.discard(Place(place.url, member[0], member[1]))
        SPOOL.fetch(place.url, start, stop, [(member[0], member[1]) for member in members], turn=row.turn)
        self._count(row.key.dataset, "long_ranges", 1)
        self._count(row.key.dataset, "long_range_bytes", stop - start)
        self._peak(row.key.dataset)

    def _finish_last(self) -> None:
        """What the last row did not take, because it was left out or failed, is forgotten."""
        if self._last is not None:
            self._give_up(self._last)
            self._last = None

    def _give_up(self, row: _Ahead) -> None:
        for place in row.places:
            if place in row.waiting:
                self._forget(place, row)
            else:
                SPOOL.drop(*place)
        row.waiting = set()

    def _forget(self, place: Place, row: _Ahead) -> None:
        waiting = self._unasked.get((place.url, row.key.epoch), [])
        at = bisect_left(waiting, (place.start, place.stop, id(row)), key=_by_place)
        if at < len(waiting) and waiting[at][3] is row:
            del waiting[at]

    def _count(self, dataset: int, name: str, count: int) -> None:
        counts = self._desk.tally.leaf(dataset).store
        counts[name] = counts.get(name, 0) + count

    def _peak(self, dataset: int) -> None:
        counts = self._desk.tally.leaf(dataset).store
        counts["spool_peak_bytes"] = max(counts.get("spool_peak_bytes", 0), SPOOL.peak_bytes)

    def _drop_all(self) -> None:
        for row in [*getattr(self, "_horizon", ()), *([self._last] if getattr(self, "_last", None) else ())]:
            for place in row.places:
                if place not in row.waiting:
                    SPOOL.drop(*place)

    def __del__(self) -> None:
        with contextlib.suppress(TypeError, AttributeError):  # of an interpreter that is ending
            self._drop_all()


def _by_place(entry: tuple[Any, ...]) -> tuple[int, int, int]:
    return entry[0], entry[1], entry[2]


def _keys_until_end(stream: Any) -> Iterator[SampleKey]:
    for key in stream:
        if key is not UNIT_END:
            yield key
