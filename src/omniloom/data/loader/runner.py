"""Runs lanes: the part of the loader that a worker process and the caller's own process have in common."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from omniloom.data.pipeline.batch import Map
from omniloom.data.pipeline.desk import Desk, LeafTally
from omniloom.data.pipeline.faults import FaultPolicy
from omniloom.data.pipeline.make import Make
from omniloom.data.pipeline.read_ahead import AheadBudget
from omniloom.data.pipeline.running import Work, at_work
from omniloom.data.pipeline.stream import Stage, State, Stream
from omniloom.data.plan.lane import Lane
from omniloom.data.sample import UNIT_END

Tallies = dict[int, LeafTally]


class EmptyUnit:
    """Stands in for the batch of a unit of an evaluation that gave none: it takes its turn and is not given out."""


@dataclass(slots=True)
class Produced:
    """What a lane gave.

    Attributes:
        batch: the batch; ``None`` at the end; `EmptyUnit` (the class) in place of one.
        state: state of the lane after it.
        tally: counts of what was done for it, by leaf.
        remade: counts of what was done again only to get back to a saved place.
        ended: the lane has no more batches.
    """

    batch: Any
    state: State
    tally: Tallies = field(default_factory=dict)
    remade: Tallies = field(default_factory=dict)
    ended: bool = False


class LaneRunner:
    """The streams of the lanes that this process has open.

    Attributes:
        desk: what the process keeps at hand.
        work: what user code can ask about what it is at work on.

    Args:
        pipeline: root stage of the pipeline.
        policy: what becomes of samples that cannot be used.
        threads: threads that read and cook ahead.
        ahead_bytes: bytes of stores that all lanes here may hold before they are due.
        take_in_hand: called with the numbers of each key before it is worked on.
    """

    def __init__(
        self,
        pipeline: Stage,
        policy: FaultPolicy,
        *,
        threads: int = 0,
        ahead_bytes: int = 0,
        take_in_hand: Callable[[int, int, int, int], None] | None = None,
    ) -> None:
        self._pipeline = pipeline
        executor = ThreadPoolExecutor(threads, "omniloom") if threads else None
        self.desk = Desk(policy, threads=executor, ahead=AheadBudget(ahead_bytes))
        if take_in_hand is not None:
            self.desk.take_in_hand = take_in_hand
        self.work = Work.of(pipeline)
        self._streams: dict[int, Stream] = {}
        self._lanes: dict[int, Lane] = {}
        self._remade: dict[int, Tallies] = {}
        self._gives_single = isinstance(pipeline, Make | Map)  # then each unit of an evaluation is a row
        self._gave: set[int] = set()  # lanes whose running unit has given something

    def open(self, lane: Lane, state: State | None, batches: int = 0) -> None:
        """Open a lane at a saved place, out of which so many batches have come in this lap, or at its start."""
        stream = self._pipeline.open(lane, self.desk)
        if state is not None:
            self.work.batch = batches * lane.count + lane.index
            with at_work(self.work):
                stream.load_state_dict(state)
        self._gave.discard(lane.index)
        if state is not None and (state.get("index") or state.get("part")):
            self._gave.add(lane.index)
        self._streams[lane.index], self._lanes[lane.index] = stream, lane
        self._remade[lane.index] = self.desk.tally.take()

    def close(self, lane_index: int) -> None:
        """Forget a lane."""
        self._streams.pop(lane_index, None)

    def is_open(self, lane_index: int) -> bool:
        """Whether a lane is open here."""
        return lane_index in self._streams

    def next(self, lane_index: int, batches: int = 0) -> Produced:
        """The next batch of an open lane, of which so many have come in this lap."""
        stream = self._streams[lane_index]
        remade = self._remade.pop(lane_index, {})
        self.work.batch = batches * self._lanes[lane_index].count + lane_index
        with at_work(self.work):
            while True:
                item = next(stream, None)
                if item is None:
                    return Produced(None, stream.state_dict(), self.desk.tally.take(), remade, ended=True)
                if item[0] is not UNIT_END:
                    batch = item[1]
                    self._gave.add(lane_index)
                elif self._gives_single and lane_index not in self._gave:
                    batch = EmptyUnit
                else:
                    self._gave.discard(lane_index)
                    continue
                return Produced(batch, stream.state_dict(), self.desk.tally.take(), remade)
