"""Lanes run in the caller's own process: the loader without workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from omniloom.data.loader.runner import LaneRunner, Produced
from omniloom.data.loader.watch import OwnWatch
from omniloom.data.pipeline.faults import FaultPolicy
from omniloom.data.pipeline.seeding import caller_random_state
from omniloom.data.pipeline.stream import Stage, State
from omniloom.data.plan.lane import Lane
from omniloom.data.side.lazy import CachePool


class InlineLanes:
    """The same as a pool of workers, without any.

    Args:
        pipeline: root stage of the pipeline.
        policy: what becomes of samples that cannot be used.
        threads: threads that read and decode ahead.
        keep_random_state: put the caller's random numbers back after each batch (user code is seeded by sample).
        watch: reports a sample that takes too long.
    """

    def __init__(
        self,
        pipeline: Stage,
        policy: FaultPolicy,
        *,
        threads: int,
        ahead_bytes: int = 0,
        keep_random_state: bool,
        watch: OwnWatch | None = None,
    ) -> None:
        take_in_hand = watch.board.take_in_hand if watch is not None else None
        self._runner = LaneRunner(pipeline, policy, threads=threads, ahead_bytes=ahead_bytes, take_in_hand=take_in_hand)
        self._keep_random_state = keep_random_state
        self._watch = watch
        self._lanes: dict[int, Lane] = {}
        self._states: Mapping[int, State] = {}
        self.deaths: list[str] = []
        self.pids: list[int] = []

    def start(self, lanes: Sequence[Lane], batches: Mapping[int, int], states: Mapping[int, State]) -> None:
        """Begin at saved places of lanes, out of which so many batches have come."""
        for index in self._lanes:
            self._runner.close(index)
        self._lanes = {lane.index: lane for lane in lanes}
        self._states = states
        self._batches = dict(batches)

    def use_cache(self, cache_pool: CachePool | None) -> None:
        """Give user code a cache pool."""
        self._runner.work.cache = cache_pool

    def fetch(self, lane_index: int) -> Produced:
        """The next batch of a lane."""
        watching = self._watch.watching() if self._watch is not None else nullcontext()
        with watching, caller_random_state() if self._keep_random_state else nullcontext():
            if not self._runner.is_open(lane_index):
                self._runner.open(self._lanes[lane_index], self._states.get(lane_index), self._batches[lane_index])
            produced = self._runner.next(lane_index, self._batches[lane_index])
            self._batches[lane_index] += 1
            return produced

    def close(self) -> None:
        """Forget the lanes, and end the threads that decode ahead."""
        if self._watch is not None:
            self._watch.close()
        for index in self._lanes:
            self._runner.close(index)
        if self._runner.desk.threads is not None:
            self._runner.desk.threads.shutdown(wait=False, cancel_futures=True)
