"""Batch: samples (or packs) are collected and made one value; and Map: one function on each value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from omniloom.data.pipeline.calls import Call, CallError, gives_many, results, tolerances, whole
from omniloom.data.pipeline.desk import Desk
from omniloom.data.pipeline.faults import FaultLine, Origin
from omniloom.data.pipeline.make import make_of
from omniloom.data.pipeline.restore import BatchKey, with_restore_key
from omniloom.data.pipeline.seeding import KeySeeds
from omniloom.data.pipeline.stream import Item, RemakingStream, Stage, State, Stream, describe
from omniloom.data.plan.lane import Lane
from omniloom.data.sample import UNIT_END, ItemKey, SampleKey, first_sample, samples_of
from omniloom.errors import SkipSample


@dataclass(frozen=True)
class Map:
    """A function on each value.

    Attributes:
        source: the stage that gives the values.
        call: the user's function; not a generator function.
    """

    source: Any
    call: Call
    makes: ClassVar[type] = SampleKey

    def open(self, lane: Lane, desk: Desk) -> MapStream:
        """The mapped values of one lane."""
        return MapStream(self.source.open(lane, desk), CallLine(self, (self.call,), desk))

    @property
    def seeds(self) -> KeySeeds:
        """The seeds of its samples."""
        return make_of(self).seeds

    @property
    def leaves(self) -> tuple[Any, ...]:
        """The work of each leaf."""
        return make_of(self).leaves

    def make(self, key: SampleKey) -> Any:
        """The value of a key, made anew."""
        return made_again((self.call,), self, key, self.source.make(key))

    def __str__(self) -> str:
        return describe(self)


@dataclass(frozen=True)
class Batch:
    """Batches.

    Attributes:
        source: the stage that gives the values.
        size: values in a batch.
        calls: what is done with the list of values, one call after the other. Generator functions give several.
        drop_last: leave out a batch that is not full.
    """

    source: Any
    size: int
    calls: tuple[Call, ...]
    drop_last: bool = False
    makes: ClassVar[type] = BatchKey

    def open(self, lane: Lane, desk: Desk) -> BatchStream:
        """The batches of one lane."""
        stream = ManyBatchStream if gives_many(self.calls) else BatchStream
        return stream(self.source.open(lane, desk), self, CallLine(self, self.calls, desk))

    def make(self, key: BatchKey) -> Any:
        """The batch of some keys, made anew."""
        return batch_again(self.calls, self, key)

    def __str__(self) -> str:
        return describe(self)


class CallLine:
    """The calls of a stage in one lane: their faults are dealt with, and what they fail at is counted.

    Args:
        stage: the stage.
        calls: the calls.
        desk: what the process keeps at hand.
    """

    def __init__(self, stage: Stage, calls: tuple[Call, ...], desk: Desk) -> None:
        self._make = make_of(stage)
        self._calls = calls
        self._desk = desk
        self._faults = FaultLine(desk.policy, tolerances(calls))

    def call(self, keys: list[ItemKey], value: Any) -> tuple[bool, Any]:
        """Whether the calls succeeded, and what they gave."""
        call = ""
        try:
            for call, number, function in self._calls:
                if number:
                    self._make.seeds.plant(first_sample(keys[0]), number)
                value = whole(function(value), call=call)
        except SkipSample as skip:
            self.leave_out(keys, str(skip) or "SkipSample")
            return False, None
        except Exception as error:
            self._fail(keys, error, call, value)
            return False, None
        self._faults.success()
        return True, value

    def call_many(self, keys: list[ItemKey], value: Any) -> Iterator[Any]:
        """What the calls give, where generator functions are among them."""
        part = 0
        try:
            for result in results(self._calls, self._make.seeds, first_sample(keys[0]), value):
                self._faults.success()
                yield with_restore_key(result, BatchKey(tuple(keys), part))
                part += 1
        except CallError as failed:
            lost = [] if part else keys  # what has come of them has gone on
            if isinstance(failed.__cause__, SkipSample):
                self.leave_out(lost, str(failed.__cause__) or "SkipSample")
            elif isinstance(failed.__cause__, Exception):
                self._fail(keys, failed.__cause__, failed.call, failed.value, lost=lost)

    def leave_out(self, keys: list[ItemKey], reason: str) -> None:
        """Count the samples of some values as left out."""
        for key in keys:
            for sample in samples_of(key):
                self._desk.tally.leaf(sample.dataset).take_back(reason)

    def _fail(
        self, keys: list[ItemKey], error: Exception, call: str, value: Any, *, lost: list[ItemKey] | None = None
    ) -> None:
        key = first_sample(keys[0])
        origin = Origin(self._make.leaves[key.dataset].name)
        reason = self._faults.failure(error, key=key, call=call, origin=origin, sample=value)
        self.leave_out(keys if lost is None else lost, reason)


class MapStream(Iterator[Item]):
    """Values after a call. It has no state of its own."""

    def __init__(self, source: RemakingStream, line: CallLine) -> None:
        self._source = source
        self._line = line

    def state_dict(self) -> State:
        """The source's state."""
        return self._source.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place."""
        self._source.load_state_dict(state)

    def __next__(self) -> Item:
        while True:
            key, value = next(self._source)
            if key is UNIT_END:
                return UNIT_END, None
            done, value = self._line.call([key], value)
            if done:
                return key, value

    def remake(self, key: SampleKey) -> Item | None:
        """The value of a key that came before; ``None``, counted, where it cannot be made now."""
        item = self._source.remake(key)
        if item is None:
            return None
        done, value = self._line.call([key], item[1])
        return (key, value) if done else None


class BatchStream(Iterator[Item]):
    """Batches. It has no state of its own."""

    def __init__(self, source: Stream, batch: Batch, line: CallLine) -> None:
        self._source = source
        self._size = batch.size
        self._drop_last = batch.drop_last
        self._line = line

    def state_dict(self) -> State:
        """The source's state."""
        return self._source.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place."""
        self._source.load_state_dict(state)

    def __next__(self) -> Item:
        while True:
            keys, values = self._collect()
            if keys[0] is UNIT_END:
                return UNIT_END, None
            done, value = self._line.call(keys, values)
            if done:
                return keys[0], value

    def _collect(self) -> tuple[list[ItemKey], list[Any]]:
        """Keys and values of the next batch. Raises StopIteration at the end of the source."""
        while True:
            keys, values = self._collect_some()
            if len(values) == self._size or not self._drop_last or keys[0] is UNIT_END:
                return keys, values
            self._line.leave_out(keys, "drop-last")

    def _collect_some(self) -> tuple[list[ItemKey], list[Any]]:
        """The same, full or not."""
        size = self._size
        keys: list[ItemKey] = []
        values: list[Any] = []
        try:
            while len(values) < size:
                key, value = next(self._source)
                if key is UNIT_END:
                    if not keys:
                        return [UNIT_END], []
                    break
                keys.append(key)
                values.append(value)
        except StopIteration:
            if not keys:
                raise
        return keys, values


class ManyBatchStream(BatchStream):
    """Batches, where the calls may make several of one list of values, or none."""

    def __init__(self, source: Stream, batch: Batch, line: CallLine) -> None:
        super().__init__(source, batch, line)
        self._made: Iterator[Item] = iter(())
        self._before: State = {}
        self._taken = 0

    def state_dict(self) -> State:
        """The source's state before the running values, and how many batches of them were taken."""
        if self._taken:
            return {**self._before, "batch_part": self._taken}
        return super().state_dict()

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place. The batches of the running values are made again, as many as they give now."""
        super().load_state_dict(state)
        self._made, self._taken = iter(()), 0
        if state.get("batch_part"):
            self._begin_batches()
            for _ in islice(self._made, state["batch_part"]):
                self._taken += 1

    def __next__(self) -> Item:
        while True:
            item = next(self._made, None)
            if item is not None:
                self._taken += 1
                return item
            if self._begin_batches() is UNIT_END:
                return UNIT_END, None

    def _begin_batches(self) -> ItemKey:
        """Collect the next values, and begin to make their batches; gives the key of the first value."""
        self._before, self._taken = self._source.state_dict(), 0
        keys, values = self._collect()
        if keys[0] is not UNIT_END:
            self._made = self._batches_of(keys, values)
        return keys[0]

    def _batches_of(self, keys: list[ItemKey], values: list[Any]) -> Iterator[Item]:
        for value in self._line.call_many(keys, values):
            yield keys[0], value


def made_again(calls: tuple[Call, ...], stage: Stage, key: ItemKey, value: Any, *, part: int = 0) -> Any:
    """A result of the calls on a value, made anew.

    Raises:
        IndexError: the calls give fewer results.
        Exception: what the user's function raises.
    """
    try:
        made = results(calls, make_of(stage).seeds, first_sample(key), value)
        for number, result in enumerate(made):
            if number == part:
                return result
    except CallError as failed:
        raise failed.__cause__ or failed from None
    raise IndexError(f"{first_sample(key)} gives no part {part}")


def batch_again(calls: tuple[Call, ...], stage: Any, key: BatchKey) -> Any:
    """The batch of some keys, made anew by the stages before and the calls."""
    values = [_value_of(stage.source, item) for item in key.items]
    made = made_again(calls, stage, key.items[0], values, part=key.part)
    return with_restore_key(made, key) if gives_many(calls) else made


def _value_of(stage: Any, key: ItemKey) -> Any:
    while not isinstance(key, stage.makes):
        stage = stage.source
    return stage.make(key)
