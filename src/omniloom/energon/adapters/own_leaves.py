"""Leaves of data sets of a user's own: of none of the engine's, and of several put together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from omniloom.data.pipeline.faults import Origin
from omniloom.data.pipeline.make import Make
from omniloom.data.pipeline.stream import State
from omniloom.data.plan.lane import Lane
from omniloom.data.sample import UNIT_END, SampleKey
from omniloom.energon.adapters.own_stage import OwnStage
from omniloom.errors import SampleError


@dataclass
class NoRows:
    """The leaf that stands for a data set of a user's own which holds none of the engine's."""

    name: str

    def read(self, row: int) -> Any:
        """It has no rows to read."""
        raise SampleError(f"{self.name}: row {row} is made by its own __iter__ alone", reason="no-rows")

    def cook(self, raw: Any, key: SampleKey) -> Any:
        """It has no rows to cook."""
        raise SampleError(f"{self.name}: row {key.row} is made by its own __iter__ alone", reason="no-rows")

    def origin(self, row: int) -> Any:
        """It lies nowhere."""
        return Origin(self.name)


@dataclass(frozen=True)
class Shifted:
    """A plan whose leaves are some of those of several data sets: their positions are shifted.

    Attributes:
        plan: the plan of the one data set.
        by: leaves of the data sets before it.
    """

    plan: Any
    by: int

    @property
    def leaves(self) -> Any:
        """The leaves of the plan."""
        return self.plan.leaves

    def open(self, lane: Lane) -> ShiftedStream:
        """The keys of one lane."""
        return ShiftedStream(self.plan.open(lane), self.by)


class ShiftedStream(Iterator[SampleKey]):
    """Keys with shifted positions of leaves."""

    def __init__(self, keys: Any, by: int) -> None:
        self._keys, self._by = keys, by

    def __next__(self) -> SampleKey:
        return self._shifted(next(self._keys))

    def peek(self, count: int) -> list[SampleKey]:
        """Keys that come next, without drawing them."""
        return [self._shifted(key) for key in self._keys.peek(count)]

    def tell(self, dataset: int, tokens: int) -> None:
        """The length of a sample."""
        self._keys.tell(dataset - self._by, tokens)

    def state_dict(self) -> State:
        """The place after the key that came last."""
        state: State = self._keys.state_dict()
        return state

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place."""
        self._keys.load_state_dict(state)

    def _shifted(self, key: SampleKey) -> SampleKey:
        return key if key is UNIT_END else key._replace(dataset=key.dataset + self._by)


def shifted(pipeline: Any, whole: Make, by: int) -> Any:
    """The pipeline of one of several data sets, whose keys are positions among the leaves of all."""
    if isinstance(pipeline, OwnStage):
        return pipeline.moved(lambda one: shifted(one, whole, by), by)
    if not isinstance(pipeline, Make):
        return replace(pipeline, source=shifted(pipeline.source, whole, by))
    return replace(pipeline, source=Shifted(pipeline.source, by), leaves=whole.leaves, cooks=whole.cooks)
