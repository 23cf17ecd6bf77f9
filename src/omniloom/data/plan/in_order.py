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
        unit_rows: rows that make one unit.
        units: only so many units, where given.
    """

    leaves: tuple[Leaf, ...]
    unit_rows: int
    units: int | None = None

    @property
    def endless(self) -> bool:
        """An evaluation always ends."""
        return False

    @property
    def epoch_rows(self) -> int:
        """Rows of all leaves together."""
        return sum(leaf.rows for leaf in self.leaves)

    @property
    def rows(self) -> int:
        """Rows that are gone through."""
        rows = sum(leaf.rows for leaf in self.leaves)
        return rows if self.units is None else min(rows, self.units * self.unit_rows)

    def open(self, lane: Lane) -> InOrderStream:
        """The keys of one lane."""
        return InOrderStream(self, lane)

    def lane_rows(self, lane: Lane) -> int:
        """Rows that come to a lane."""
        rounds, rest = divmod(self.rows, self.unit_rows * lane.count)
        return rounds * self.unit_rows + min(self.unit_rows, max(0, rest - lane.index * self.unit_rows))

    def keys(self, start: int, stop: int) -> list[SampleKey]:
        """Keys of the rows ``[start, stop)`` of all leaves laid end to end."""
        keys: list[SampleKey] = []
        for dataset, leaf in enumerate(self.leaves):
            keys += (SampleKey(dataset, 0, row) for row in range(max(0, start), min(stop, leaf.rows)))
            start, stop = start - leaf.rows, stop - leaf.rows
        return keys


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
        start = (unit * self._lane.count + self._lane.index) * self._plan.unit_rows
        self._unit, self._index = unit, 0
        self._keys = self._plan.keys(start, min(start + self._plan.unit_rows, self._plan.rows))
