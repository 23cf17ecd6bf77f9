"""Batch: samples (or packs) are collected and made one value; and Map: one function on each value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from omniloom.data.pipeline.desk import Desk
from omniloom.data.pipeline.faults import FaultLine, Origin
from omniloom.data.pipeline.make import Make
from omniloom.data.pipeline.pack import Pack
from omniloom.data.pipeline.stream import Item, State, Stream, describe
from omniloom.data.plan.lane import Lane
from omniloom.data.sample import UNIT_END, SampleKey
from omniloom.errors import SkipSample

Call = tuple[str, int, Callable[[Any], Any]]
"""Name of a call for messages, its number for seeds (0: it draws nothing), the function."""


@dataclass(frozen=True)
class Map:
    """A function on each value.

    Attributes:
        source: the stage that gives the values.
        call: the user's function.
    """

    source: Make | Pack | Map | Batch
    call: Call

    def open(self, lane: Lane, desk: Desk) -> CallStream:
        """The mapped values of one lane."""
        return CallStream(self.source.open(lane, desk), make_of(self), (self.call,), size=None, desk=desk)

    def __str__(self) -> str:
        return describe(self)


@dataclass(frozen=True)
class Batch:
    """Batches.

    Attributes:
        source: the stage that gives the values.
        size: values in a batch.
        calls: what is done with the list of values, one call after the other.
        drop_last: leave out a batch that is not full.
    """

    source: Make | Pack | Map
    size: int
    calls: tuple[Call, ...]
    drop_last: bool = False

    def open(self, lane: Lane, desk: Desk) -> CallStream:
        """The batches of one lane."""
        source = self.source.open(lane, desk)
        return CallStream(source, make_of(self), self.calls, size=self.size, drop_last=self.drop_last, desk=desk)

    def __str__(self) -> str:
        return describe(self)


def make_of(stage: Make | Pack | Map | Batch) -> Make:
    """The stage of a pipeline that makes samples of keys."""
    while not isinstance(stage, Make):
        stage = stage.source
    return stage


class CallStream(Iterator[Item]):
    """Values, single or collected, after some calls. It has no state of its own."""

    def __init__(
        self,
        source: Stream,
        make: Make,
        calls: tuple[Call, ...],
        *,
        size: int | None,
        drop_last: bool = False,
        desk: Desk,
    ) -> None:
        self._source = source
        self._make = make
        self._calls = calls
        self._size = size
        self._drop_last = drop_last
        self._desk = desk
        self._faults = FaultLine(desk.policy)

    def state_dict(self) -> State:
        """The source's state."""
        return self._source.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place."""
        self._source.load_state_dict(state)

    def __next__(self) -> Item:
        while True:
            keys, value = self._collect() if self._size is not None else self._single()
            if keys[0] is UNIT_END:
                return UNIT_END, None
            done, value = self._call(keys, value)
            if done:
                return keys[0], value

    def _single(self) -> tuple[list[SampleKey], Any]:
        key, value = next(self._source)
        return [key], value

    def _collect(self) -> tuple[list[SampleKey], Any]:
        """Keys and values of the next batch. Raises StopIteration at the end of the source."""
        size = self._size or 1
        keys: list[SampleKey] = []
        values: list[Any] = []
        try:
            while len(values) < size:
                key, value = next(self._source)
                if key is UNIT_END:
                    if not keys:
                        return [UNIT_END], None
                    break
                keys.append(key)
                values.append(value)
        except StopIteration:
            if not keys:
                raise
        if len(values) < size and self._drop_last:
            for key in keys:
                self._desk.tally.leaf(key.dataset).take_back("drop-last")
            return self._collect()
        return keys, values

    def _call(self, keys: list[SampleKey], value: Any) -> tuple[bool, Any]:
        """Whether the calls succeeded, and what they gave."""
        call = ""
        try:
            for call, number, function in self._calls:  # noqa: B007 - named in the message of a failure
                if number:
                    self._make.seeds.plant(keys[0], number)
                value = function(value)
        except SkipSample as skip:
            self._skip(keys, str(skip) or "SkipSample")
            return False, None
        except Exception as error:
            origin = Origin(self._make.leaves[keys[0].dataset].name)
            self._skip(keys, self._faults.failure(error, key=keys[0], call=call, origin=origin, sample=value))
            return False, None
        self._faults.success()
        return True, value

    def _skip(self, keys: list[SampleKey], reason: str) -> None:
        for key in keys:
            self._desk.tally.leaf(key.dataset).take_back(reason)
