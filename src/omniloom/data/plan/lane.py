"""Lanes: the fixed streams that a run is made of, and how they are shared by ranks.

Micro-batch ``g`` of the whole job comes from lane ``g % lanes``, and rank ``r`` of ``R`` takes the
micro-batches with ``g % R == r``. So rank ``r`` owns the lanes ``= r (mod R)`` whenever ``R``
divides the number of lanes, and the order of the job depends on neither ranks nor workers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from omniloom.errors import ConfigError, StateError


@dataclass(frozen=True, slots=True)
class Lane:
    """One of the streams of a run.

    Attributes:
        index: its number, from 0.
        count: lanes of the run.
        lap: how often the run has already gone through a data set that ends.
    """

    index: int
    count: int
    lap: int = 0


DIVISORS_WANTED = 12
"""Lanes come in multiples of this, so that a run can go on with 2, 3, 4, 6 or 12 times fewer ranks."""


def default_lanes(world_size: int, num_workers: int) -> int:
    """Lanes of a new run: at least one a worker, dealt evenly to workers, with useful divisors."""
    return math.lcm(world_size * max(1, num_workers), DIVISORS_WANTED)


def rank_lanes(lanes: int, rank: int, world_size: int) -> range:
    """The lanes that a rank owns. Raises ConfigError when the ranks do not divide the lanes."""
    if lanes % world_size:
        raise ConfigError(
            f"{lanes} lanes cannot be dealt to {world_size} data-parallel ranks. "
            f"Use {spoken_list(divisors(lanes))} ranks, or another `lanes=`."
        )
    return range(rank, lanes, world_size)


def check_ranks_divide(lanes: int, world_size: int, *, where: str) -> None:
    """Raise StateError when a saved state with these lanes cannot go on with this many ranks."""
    if lanes % world_size:
        raise StateError(
            f"{where}: saved with {lanes} lanes, which cannot be dealt to {world_size} ranks.\n"
            f"  Use {spoken_list(divisors(lanes))} data-parallel ranks."
        )


def divisors(number: int) -> list[int]:
    """All divisors in ascending order."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def spoken_list(numbers: list[int]) -> str:
    """``1, 2 or 4``, with the middle left out where it is long."""
    words = [str(number) for number in numbers]
    if len(words) > 24:
        words = [*words[:20], "...", *words[-3:]]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


class Deal(NamedTuple):
    """How the rows of a leaf are dealt to lanes, epoch after epoch.

    Every lane gets ``rows // lanes`` rows of an epoch. The ``rows % lanes`` that are left go, one
    each, to lanes that follow one another on a circle; the next epoch goes on from where the last
    one stopped, and each leaf starts elsewhere. So shares differ by at most one row within an
    epoch, and over all epochs as well.

    Attributes:
        rows: rows of the leaf (an "epoch" of the deal).
        lanes: lanes of the run.
        start_lane: the lane that gets the first odd row of epoch 0.
    """

    rows: int
    lanes: int
    start_lane: int

    def section(self, lane: int, epoch: int) -> tuple[int, int]:
        """Positions ``[start, stop)`` of the epoch's order that belong to a lane."""
        base, left = divmod(self.rows, self.lanes)
        first = (self.start_lane + epoch * left) % self.lanes
        start = lane * base + self._odd_rows_before(lane, first, left)
        stop = (lane + 1) * base + self._odd_rows_before(lane + 1, first, left)
        return start, stop

    def dealt(self, lane: int, epochs: int) -> int:
        """Rows that a lane gets in the first ``epochs`` epochs."""
        base, left = divmod(self.rows, self.lanes)
        distance = (lane - self.start_lane) % self.lanes
        return epochs * base + (epochs * left + self.lanes - 1 - distance) // self.lanes

    def dealt_within(self, lane: int, epoch: int, rows: int) -> int:
        """Rows that a lane has of the first ``rows`` of an epoch, were they given out in turn; never more than its own.

        The turn begins where the epoch's odd rows do.
        """
        base, left = divmod(self.rows, self.lanes)
        turns = min(rows // self.lanes, base)
        first = (self.start_lane + epoch * left) % self.lanes
        return turns + ((lane - first) % self.lanes < rows - turns * self.lanes)

    def locate(self, lane: int, drawn: int) -> tuple[int, int]:
        """Epoch and offset within the lane's section of the row that comes after ``drawn`` rows."""
        # dealt(lane, e) is within one of e * rows / lanes, which leaves few epochs to look at.
        low = max(0, (drawn - 1) * self.lanes // self.rows - 1)
        high = -(-(drawn + 2) * self.lanes // self.rows) + 1
        while high - low > 1:  # dealt(lane, e) grows with e: the last e with dealt <= drawn
            middle = (low + high) // 2
            low, high = (middle, high) if self.dealt(lane, middle) <= drawn else (low, middle)
        return low, drawn - self.dealt(lane, low)

    def _odd_rows_before(self, lane: int, first: int, left: int) -> int:
        wrapped = max(0, first + left - self.lanes)
        return min(lane, wrapped) + max(0, min(lane, first + left) - first)
