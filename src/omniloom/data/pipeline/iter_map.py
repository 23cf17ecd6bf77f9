"""IterMap: one function on the stream of samples of a lane, which gives another stream.

What the function keeps to itself between its results is no part of the state: a saved place is where the samples of the
last result began, and how many results of them were given. Restoring begins the function anew there. So it is exact for
a function whose results depend on the samples that it took since the result before, one or several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from omniloom.data.pipeline.desk import Desk
from omniloom.data.pipeline.faults import FaultLine, Origin, tolerance_of
from omniloom.data.pipeline.make import make_of
from omniloom.data.pipeline.restore import with_restore_key
from omniloom.data.pipeline.seeding import CALLS, ITER_MAP
from omniloom.data.pipeline.stream import Item, RemakingStream, State, describe
from omniloom.data.plan.lane import Lane
from omniloom.data.sample import UNIT_END, PackKey, SampleKey


@dataclass(frozen=True)
class IterMap:
    """A function on the stream of samples.

    Attributes:
        source: the stage that gives the samples.
        function: gets an iterator of samples, gives one of results. Where data ends, and at the end of each unit of an
            evaluation, the iterator that it gets ends, too.
    """

    source: Any
    function: Callable[[Iterator[Any]], Iterator[Any]]
    makes: ClassVar[type] = PackKey

    def open(self, lane: Lane, desk: Desk) -> IterMapStream:
        """The results of one lane."""
        return IterMapStream(self, lane, desk)

    def make(self, key: PackKey) -> Any:
        """The result of some samples, made anew.

        Raises:
            IndexError: the function gives fewer results.
            Exception: what user code raises.
        """
        seeds = make_of(self).seeds

        def samples() -> Iterator[Any]:
            for one in key.samples:
                sample = self.source.make(one)
                seeds.plant(one, ITER_MAP)
                yield sample
            seeds.plant(key.samples[-1], ITER_MAP)

        results = iter(self.function(samples()))
        for part in range(key.part + 1):
            if part:
                seeds.plant(key.samples[-1], ITER_MAP + part * CALLS)
            made = next(results, _END)
            if made is _END:
                raise IndexError(f"{key.samples[0]} gives no result {key.part}")
        return with_restore_key(made, key)

    def __str__(self) -> str:
        return describe(self)


_END: Any = object()


class IterMapStream(Iterator[Item]):
    """The results of one lane."""

    def __init__(self, stage: IterMap, lane: Lane, desk: Desk) -> None:
        self._stage = stage
        self._desk = desk
        self._make = make_of(stage)
        self._source: RemakingStream = stage.source.open(lane, desk)
        self._faults = FaultLine(desk.policy, {"iter_map_fn": tolerance_of(stage.function)})
        self._over = ""  # what has come to its end: "unit" or "all"
        self._begin()

    def _begin(self) -> None:
        self._results: Iterator[Any] | None = None
        self._place: State = self._source.state_dict()  # before the samples of the last result
        self._next_place = self._place  # before those that were taken since
        self._fresh: list[SampleKey] = []  # taken since the last result
        self._keys: tuple[SampleKey, ...] = ()  # of the last result
        self._part = 0  # results that these have given

    def state_dict(self) -> State:
        """Where the samples of the last result began, and how many results they have given."""
        return {**self._place, "results": self._part} if self._part else self._place

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place: the samples of the last result are made again."""
        self._source.load_state_dict(state)
        self._over = ""
        self._begin()
        for _ in islice(self, state.get("results", 0)):
            pass

    def remake(self, key: PackKey) -> Item | None:
        """The result of a key that came before; ``None``, counted, where it cannot be made now."""
        try:
            return key, self._stage.make(key)
        except Exception as error:
            self._fail(error, key.samples, lost=key.samples)
            return None

    def __next__(self) -> Item:
        while True:
            if self._results is None:
                if self._over:
                    return self._end()
                self._results = iter(self._stage.function(self._samples()))
            if self._part:  # whatever else has drawn since the result before
                self._make.seeds.plant(self._keys[-1], ITER_MAP + self._part * CALLS)
            try:
                made = next(self._results)
            except StopIteration:
                if not self._over:  # the function itself has had enough: it begins anew with what comes next
                    self._results = None
                    continue
                return self._end()
            except Exception as error:
                self._fail(error, tuple(self._fresh) or self._keys, lost=self._fresh)
                self._begin()
                continue
            self._faults.success()
            if self._fresh:
                self._keys, self._fresh, self._part = tuple(self._fresh), [], 0
                self._place = self._next_place
            key = PackKey(self._keys, self._part)
            self._part += 1
            return key, with_restore_key(made, key)

    def _end(self) -> Item:
        over, self._over = self._over, ""
        self._begin()
        if over == "unit":
            return UNIT_END, None
        raise StopIteration

    def _samples(self) -> Iterator[Any]:
        """What the function draws from."""
        while not self._over:
            before = None if self._fresh else self._source.state_dict()
            key, sample = next(self._source, (UNIT_END, _END))
            if key is UNIT_END:
                self._over = "all" if sample is _END else "unit"
                if self._fresh:  # samples that were left out before the end have drawn since
                    self._make.seeds.plant(self._fresh[-1], ITER_MAP)
                return
            if before is not None:
                self._next_place = before
            self._fresh.append(key)  # type: ignore[arg-type]
            self._make.seeds.plant(key, ITER_MAP)  # type: ignore[arg-type]
            yield sample

    def _fail(self, error: Exception, keys: tuple[SampleKey, ...], *, lost: Sequence[SampleKey]) -> None:
        """Deal with a failure at some samples; those of which a result has gone on are not lost."""
        if not keys:
            raise error
        origin = Origin(self._make.leaves[keys[0].dataset].name)
        reason = self._faults.failure(error, key=keys[0], call="iter_map_fn", origin=origin, sample=None)
        for key in lost:
            self._desk.tally.leaf(key.dataset).take_back(reason)
