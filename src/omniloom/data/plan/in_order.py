"""Evaluation's plan: rows in the order of their split, in units that are dealt to lanes one by one.

A unit is what makes one micro-batch (or the window of packs of one). Unit ``u`` goes to lane
``u % lanes``, so that micro-batch ``b`` of the whole job goes to rank ``b % ranks`` on any number of
ranks and workers, and every row comes once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omniloom.data.plan.lane import Lane
from omniloom.data.plan.plan import Leaf
from omniloom.data.sample import UNIT_END, SampleKey


@dataclass(frozen=True)
class InOrder:
    """All rows of some leaves, one leaf after the other.

    Attributes:
        leaves: the leaves; only their rows count here.
        unit_rows: rows that make one unit; the last unit of a pass over the leaves may have fewer.
        units: only so many units, where given.
        passes: how often the leaves are gone through; ``None``: for ever, or as long as ``units`` says.
    """

    leaves: tuple[Leaf, ...]
    unit_rows: int
    units: int | None = None
    passes: int | None = 1

    @property
    def endless(self) -> bool:
        """Whether it never ends."""
        return self.passes is None and self.units is None and self.epoch_rows > 0

    @property
    def epoch_rows(self) -> int:
        """Rows of all leaves together."""
        return sum(leaf.rows for leaf in self.leaves)

    @property
    def pass_units(self) -> int:
        """Units of one pass."""
        return -(-self.epoch_rows // self.unit_rows)

    @property
    def total_units(self) -> int | None:
        """Units that are gone through; ``None`` without end."""
        if self.passes is None and self.units is None:
            return None if self.epoch_rows else 0
        ends = [] if self.units is None else [self.units]
        ends += [] if self.passes is None and self.epoch_rows else [self.pass_units * (self.passes or 0)]
        return min(ends)

    def open(self, lane: Lane) -> InOrderStream:
        """The keys of one lane."""
        return InOrderStream(self, lane)

    def lane_rows(self, lane: Lane) -> int | None:
        """Rows that come to a lane; ``None`` without end."""
        units = self.lane_units(lane)
        if units is None:
            return None
        missing = self.pass_units * self.unit_rows - self.epoch_rows  # of the last unit of a pass
        short = sum(unit % self.pass_units == self.pass_units - 1 for unit in self._units_of(lane)) if missing else 0
        return units * self.unit_rows - short * missing

    def lane_units(self, lane: Lane) -> int | None:
        """Units that come to a lane; ``None`` without end."""
        return None if self.total_units is None else len(self._units_of(lane))

    def unit_keys(self, unit: int) -> list[SampleKey]:
        """Keys of the rows of a unit; none after the last one."""
        if self.total_units is not None and unit >= self.total_units:
            return []
        epoch, within = divmod(unit, self.pass_units)
        start = within * self.unit_rows
        stop = start + self.unit_rows
        keys: list[SampleKey] = []
        for dataset, leaf in enumerate(self.leaves):
            keys += (SampleKey(dataset, epoch, row) for row in range(max(0, start), min(stop, leaf.rows)))
            start, stop = start - leaf.rows, stop - leaf.rows
        return keys

    def _units_of(self, lane: Lane) -> range:
        return range(lane.index, self.total_units or 0, lane.count)


class InOrderStream(Iterator[SampleKey]):
    """The keys of one lane; `UNIT_END` after each unit."""

    def __init__(self, plan: InOrder, lane: Lane) -> None:
        self._plan = plan
        self._lane = lane
        self._keys: list[SampleKey] = []
        self._unit = self._index = 0
        self._begin(0)

    def __next__(self) -> SampleKey:
        if not self._keys:
            raise StopIteration
        if self._index == len(self._keys):
            self._begin(self._unit + 1)
            return UNIT_END
        key = self._keys[self._index]
        self._index += 1
        return key

    def peek(self, count: int) -> list[SampleKey]:
        """Keys that come next, without drawing them: as many of ``count`` as the running unit holds."""
        return self._keys[self._index : self._index + count]

    def state_dict(self) -> dict[str, Any]:
        """The lane's unit, and how far it is into it."""
        return {"unit": self._unit, "index": self._index}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved place."""
        self._begin(state["unit"])
        self._index = state["index"]

    def _begin(self, unit: int) -> None:
        self._unit, self._index = unit, 0
        self._keys = self._plan.unit_keys(unit * self._lane.count + self._lane.index)
