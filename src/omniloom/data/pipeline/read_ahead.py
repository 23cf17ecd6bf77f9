"""Reading ahead of a plan: rows that a lane will draw are fetched from stores, in few long ranges, before they are due.

A second stream of the plan runs before the lane's own and says which rows come. Of these, as many as the lane's
budget of bytes holds make the horizon, and what they will read is wanted of the process's spool. When a row comes near,
it is asked for: the spool fetches it together with its neighbours that lanes of the process want, too, so that a run
of the plan becomes one request. The reader of the archive finds the row in the spool. Rows are read by the same code in
the same order as without all this.
"""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from omniloom.data.plan.lane import Lane
from omniloom.data.sample import UNIT_END, SampleKey
from omniloom.storage.counts import COUNTS
from omniloom.storage.spool import CONNECTIONS, LONG_RANGE_BYTES, SPOOL

if TYPE_CHECKING:
    from omniloom.data.pipeline.desk import Desk
    from omniloom.data.pipeline.make import Make

FIRST_RANGE_BYTES = 1 << 20
FIRST_ROWS = 64
"""Bytes of the longest range for the first rows of a lane, for which somebody waits."""

MOST_ROWS = 2048
"""Rows that a lane looks ahead at most."""

BLOCKS_BROUGHT = 64
"""Row groups and the like that are remembered as brought; one that was given up since is brought when it is read."""

LEAD_SECONDS = 4.0
"""Rows that a lane draws in so long are asked for ahead: a few failures and waits are not felt."""

RATE_SECONDS = 1.0
"""How often it is seen how fast a lane draws."""

MOST_ROWS_NEAR = 1024
"""Rows that are asked for ahead at most."""

FEWEST_ROWS_NEAR = 16
"""Rows that are always asked for ahead, however small the budget."""

ROWS_A_LOOK = 128
"""Keys of the plan that are taken in one look ahead, at least."""

LOOKS_AHEAD = 8
"""A lane looks ahead so often while it draws the rows that are asked for."""

NEAR_SHARE = 1 / 3
"""Share of the horizon's bytes that is asked for; the rest is there to be fetched along with it."""

LARGEST_ROW_SHARE = 1 / 4
"""A row with a larger share of its lane's budget is read when it is due."""

Place = tuple[str, int, int]
"""An object, the first byte of a range, and the byte after its last one."""


class FarRows(Protocol):
    """Rows that lie in a store."""

    def places(self, row: int) -> Sequence[Place]:
        """The ranges that reading a row asks for; none where they are not known beforehand. May ask the store."""

    def opened_by(self, row: int) -> Hashable:
        """What has to be opened before the places of a row are known: the same for all rows of a shard."""

    def make_ready(self, row: int) -> None:
        """Open and check what a row lies in, while its bytes are on their way. May ask the store."""

    def knows_places(self, row: int) -> bool:
        """Whether `places` answers at once, without a request."""


class _Ahead:
    """A row that is coming."""

    __slots__ = ("finding", "is_asked", "key", "places", "size_bytes", "turn")

    def __init__(self, key: SampleKey, turn: int) -> None:
        self.key = key
        self.turn = turn
        self.places: Sequence[Place] = ()
        self.size_bytes = 0
        self.finding: Future[Any] | None = None
        self.is_asked = False


class AheadBudget:
    """Bytes that the lanes of a process may hold ahead, shared evenly by those that are open.

    Args:
        total_bytes: of all lanes together; 0: nothing is read ahead.

    Attributes:
        held_bytes: of the rows that lanes look ahead to. A lane that opens waits until others have drawn what they
            took while they were fewer; the row that is due next is taken in any case.
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.held_bytes = 0
        self._lanes: weakref.WeakSet[ReadAhead] = weakref.WeakSet()
        self._threads: ThreadPoolExecutor | None = None
        self._opening: dict[Hashable, Future[Any]] = {}
        self._brought: dict[Hashable, None] = {}
        self._bringers: dict[int, ThreadPoolExecutor] = {}  # by how many they bring at a time

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
            opening.add_done_callback(lambda _: self._opened(key, rows, row))
        return opening

    def bring(self, rows: Any, row: int, epoch: int) -> None:
        """Have what a row lies in fetched in the background; blocks that were brought of late are here."""
        key = id(rows), rows.opened_by(row), epoch
        if key in self._brought:
            return
        self._brought[key] = None
        if len(self._brought) > BLOCKS_BROUGHT:
            del self._brought[next(iter(self._brought))]
        at_a_time = rows.brought_at_a_time
        if at_a_time not in self._bringers:
            self._bringers[at_a_time] = ThreadPoolExecutor(at_a_time, "omniloom-bring")
        self._bringers[at_a_time].submit(rows.bring, row)  # what is wrong shows when the row is read

    def _opened(self, key: Hashable, rows: FarRows, row: int) -> None:
        self._opening.pop(key, None)
        if self._threads is not None:
            with contextlib.suppress(RuntimeError):  # of an interpreter that is ending
                self._threads.submit(rows.make_ready, row)


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
        self._bringing = {i for i, rows in far.items() if getattr(rows, "brings", False)}
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
        self._let_go_of_all()
        self._scout: Iterator[SampleKey] | None = None
        self._scouted: deque[_Ahead] = deque()  # rows whose places are still being looked up, and those after them
        self._horizon: deque[_Ahead] = deque()
        self._not_near: deque[_Ahead] = deque()  # the end of the horizon that is not asked for yet
        self._horizon_bytes = self._not_near_bytes = 0
        self._rows_a_look = self._rows_till_look = 0
        self._lane_bytes = self._budget.lane_bytes
        self._last: _Ahead | None = None

    def due(self, key: SampleKey) -> None:
        """The plan has drawn a key: its row is read next. See that it is on its way, and those after it."""
        if self._last is not None:
            last, self._last = self._last, None
            self._let_go(last)
        row = self._row_of(key)
        self._drawn += 1
        self._rows_till_look -= 1
        if self._rows_till_look < 0:
            self._look_ahead(row)
        self._last = row
        if key[0] not in self._far:
            return
        if not row.is_asked:
            self._ask_for(row)
        self._count(key[0], "rows_ahead" if row.places or key[0] in self._bringing else "rows_singly", 1)

    def _row_of(self, key: SampleKey) -> _Ahead:
        """The row of a key that is due; what was expected before it is given up."""
        if self._scout is None:
            self._begin_after(key)
        while self._horizon or self._scouted:
            row = self._next_row()
            if row.key == key:
                return row
            self._let_go(row)
        self.restart()
        self._begin_after(key)
        return self._next_row()

    def _next_row(self) -> _Ahead:
        if not self._horizon:
            self._join_horizon([self._place(self._scouted.popleft())])
        row = self._horizon.popleft()
        self._horizon_bytes -= row.size_bytes
        if self._not_near and self._not_near[0] is row:
            self._not_near.popleft()
            self._not_near_bytes -= row.size_bytes
        return row

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
        self._turns += 1
        row = _Ahead(key, self._turns)
        rows = self._far.get(key[0])
        if rows is None:
            row.is_asked = True
        elif rows.knows_places(key[2]):
            row.places = rows.places(key[2])
        else:
            row.finding = self._budget.open_place(rows, key[2])
        return row

    def _look_ahead(self, due: _Ahead) -> None:
        """Look further ahead, as far as rows and bytes allow, and ask for what has come near."""
        self._lane_bytes = self._budget.lane_bytes
        is_first = not self._rows_a_look
        self._extend(ROWS_A_LOOK + self._rows_a_look)
        if not due.is_asked:
            self._ask_for(due)  # before all others
        self._rows_a_look = self._rows_till_look = self._ask_for_near() // LOOKS_AHEAD
        if is_first:  # while the first rows are on their way, so that the next ones are asked for in long ranges
            self._extend(MOST_ROWS)
        for name, count in COUNTS.take().items():  # counted with the data set that is at work just now
            self._count(due.key[0], name, count)
        counts = self._desk.tally.leaf(due.key[0]).store
        counts["spool_peak_bytes"] = max(counts.get("spool_peak_bytes", 0), SPOOL.peak_bytes)

    def _extend(self, most_keys: int) -> None:
        scout, scouted = self._scout, self._scouted
        joining: list[_Ahead] = []
        room = MOST_ROWS - len(self._horizon) - len(scouted)
        size_bytes = self._horizon_bytes
        most_bytes = min(self._lane_bytes, size_bytes + self._budget.total_bytes - self._budget.held_bytes)
        while size_bytes < most_bytes:
            row = scouted[0] if scouted else None
            starved = len(scouted) >= FEWEST_ROWS_NEAR > len(self._horizon) + len(joining)  # at the start
            if row is not None and (row.finding is None or starved or row.finding.done()):
                joining.append(self._place(scouted.popleft()))
                size_bytes += row.size_bytes
                continue
            most_keys -= 1
            room -= 1
            if room < 0 or len(scouted) >= MOST_ROWS // 4 or most_keys < 0 or scout is None:
                break
            key = next(scout, None)
            if key is None:
                break
            scouted.append(self._scouted_row(key))
        self._join_horizon(joining)

    def _place(self, row: _Ahead) -> _Ahead:
        """A row with the places where it lies, waited for if it has to be. What is wrong shows when it is read."""
        if row.finding is not None:
            finding, row.finding = row.finding, None
            if finding.exception() is None:
                row.places = self._far[row.key[0]].places(row.key[2])
        row.size_bytes = 1
        for place in row.places:
            row.size_bytes += place[2] - place[1]
        if row.size_bytes > self._lane_bytes * LARGEST_ROW_SHARE:
            row.places, row.size_bytes = (), 1
        return row

    def _join_horizon(self, rows: list[_Ahead]) -> None:
        SPOOL.want(place for row in rows for place in row.places)
        self._horizon.extend(rows)
        self._not_near.extend(rows)
        size_bytes = sum(row.size_bytes for row in rows)
        self._horizon_bytes += size_bytes
        self._not_near_bytes += size_bytes
        self._budget.held_bytes += size_bytes

    def _ask_for_near(self) -> int:
        """Ask for the rows of the horizon that are near, as fast as they went of late; gives how many there are."""
        now = time.monotonic()
        if now - self._since > (RATE_SECONDS if self._rate else RATE_SECONDS / 4):
            self._rate, self._since, self._drawn = self._drawn / (now - self._since), now, 0
        most = min(max(FEWEST_ROWS_NEAR, int(self._rate * LEAD_SECONDS)), MOST_ROWS_NEAR)
        near = len(self._horizon) - len(self._not_near)
        near_bytes = self._horizon_bytes - self._not_near_bytes
        while self._not_near and near < most:
            row = self._not_near[0]
            if near >= FEWEST_ROWS_NEAR and near_bytes > self._lane_bytes * NEAR_SHARE:
                break
            self._not_near.popleft()
            self._not_near_bytes -= row.size_bytes
            near, near_bytes = near + 1, near_bytes + row.size_bytes
            if not row.is_asked:
                self._ask_for(row)
        return near

    def _ask_for(self, row: _Ahead) -> None:
        row.is_asked = True
        if row.key[0] in self._bringing:
            self._budget.bring(self._far[row.key[0]], row.key[2], row.key[1])
        for place in row.places:
            longest_bytes = LONG_RANGE_BYTES if row.turn > FIRST_ROWS else FIRST_RANGE_BYTES
            SPOOL.ask_for(place, longest_bytes=longest_bytes, turn=row.turn)

    def _let_go(self, row: _Ahead) -> None:
        self._budget.held_bytes -= row.size_bytes
        if row.places:
            SPOOL.let_go(row.places)

    def _count(self, dataset: int, name: str, count: int) -> None:
        counts = self._desk.tally.leaf(dataset).store
        counts[name] = counts.get(name, 0) + count

    def _let_go_of_all(self) -> None:
        rows = [*getattr(self, "_horizon", ())]
        if getattr(self, "_last", None) is not None:
            rows.append(self._last)
        self._budget.held_bytes -= sum(row.size_bytes for row in rows)
        SPOOL.abandon(place for row in rows for place in row.places)

    def __del__(self) -> None:
        if SPOOL is not None:  # as it is when the interpreter ends
            self._let_go_of_all()


def _keys_until_end(stream: Any) -> Iterator[SampleKey]:
    for key in stream:
        if key is not UNIT_END:
            yield key
