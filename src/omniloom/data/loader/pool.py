"""The workers of a rank: they share its lanes, in the order in which batches will be wanted.

A lane stays with the worker that has it open as long as that does not leave another one idle; then
the idle one takes the lane over with its state. A worker that dies is started again, and its lanes
go on from the last batch that came out of them, so nothing is lost or doubled.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
import select
import weakref
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from omniloom.data.loader.handle import WorkerHandle
from omniloom.data.loader.messages import Answer, DropLane, Failed, Made, MakeBatch, Poison, WorkOrder
from omniloom.data.loader.processes import StartMethod
from omniloom.data.loader.runner import Produced
from omniloom.data.loader.transport import Parcel
from omniloom.data.loader.watch import exit_cause, spoken
from omniloom.data.pipeline.stream import State
from omniloom.data.plan.lane import Lane
from omniloom.data.sample import SampleKey
from omniloom.errors import WorkerError

logger = logging.getLogger("omniloom")

DEATHS_WITHOUT_A_BATCH = 20
"""So many deaths with no batch between them end the run."""

LEAST_START_SECONDS = 60.0
"""A fresh interpreter on a busy machine, from a slow disk, may take its time."""


@dataclass(frozen=True)
class PoolSettings:
    """How the workers of a rank are run.

    Attributes:
        num_workers: how many there are, at least 1.
        prefetch_factor: batches that each is asked for ahead.
        start_method: ``spawn`` (a fresh interpreter) or ``fork``.
        on_worker_death: ``restart`` or ``raise``.
        watchdog_seconds: a worker that is at one sample for longer is reported with its stack; ``None``: never.
        watchdog_initial_seconds: the same for a worker that has not started yet; ``None``: as long as for a sample, and
            at least a minute.
        fail_on_timeout: end such a worker, which is then dealt with as one that died.
        keep_lanes: moving a lane is dear (windows must be made again): move it only from a worker that is full.
    """

    num_workers: int
    prefetch_factor: int = 2
    start_method: StartMethod = "spawn"
    on_worker_death: str = "restart"
    watchdog_seconds: float | None = 60.0
    watchdog_initial_seconds: float | None = None
    fail_on_timeout: bool = False
    keep_lanes: bool = False

    @property
    def start_seconds(self) -> float | None:
        """A worker that has not started after so long is reported; ``None``: never."""
        if self.watchdog_initial_seconds is not None or self.watchdog_seconds is None:
            return self.watchdog_initial_seconds
        return max(self.watchdog_seconds, LEAST_START_SECONDS)


@dataclass(slots=True)
class _Track:
    """What is known of one lane."""

    lane: Lane
    asked: int
    state: State | None
    worker: WorkerHandle | None = None
    pending: int = 0
    ended: bool = False
    ready: deque[tuple[Made, WorkerHandle, State]] = field(default_factory=deque)


class WorkerPool:
    """Worker processes that make the batches of a rank's lanes.

    Args:
        order: what each worker needs to know; its number is filled in.
        settings: how the workers are run.
    """

    def __init__(self, order: WorkOrder, settings: PoolSettings) -> None:
        self._order = order
        self._settings = settings
        self._workers: list[WorkerHandle] = []
        self._tracks: dict[int, _Track] = {}
        self._turns: list[tuple[int, int]] = []
        self._generation = 0
        self._deaths: Counter[SampleKey] = Counter()
        self._deaths_in_a_row = 0
        self.deaths: list[str] = []
        self._poisoned: frozenset[SampleKey] = frozenset()
        self._finalizer = weakref.finalize(self, _close_all, self._workers)
        _POOLS.add(self)

    def start(self, lanes: Sequence[Lane], batches: Mapping[int, int], states: Mapping[int, State]) -> None:
        """Begin, or begin anew elsewhere, at saved places of the lanes that have not ended.

        Args:
            lanes: the lanes that have not ended.
            batches: by lane index, how many batches have come out of a lane: the fewest has the next turn.
            states: by lane index, its state after them; a lane without one starts at its start.
        """
        self._generation += 1
        for track in self._tracks.values():
            for made, worker, _ in track.ready:
                _discard(made.parcel, worker)
        self._tracks = {lane.index: _Track(lane, batches[lane.index], states.get(lane.index)) for lane in lanes}
        self._turns = [(track.asked, index) for index, track in self._tracks.items()]
        heapq.heapify(self._turns)
        while len(self._workers) < self._settings.num_workers:
            self._workers.append(self._start_worker(len(self._workers)))
        self._listen_to_all()
        self._ask_ahead()

    def fetch(self, lane_index: int) -> Produced:
        """The next batch of a lane.

        Raises:
            WorkerError: a worker died and the settings are to raise, or nothing helps.
            Exception: what user code raised and the fault policy does not swallow.
        """
        track = self._tracks[lane_index]
        while not track.ready:
            self._ask_ahead()
            self._wait()
        made, worker, state = track.ready.popleft()
        self._ask_ahead()
        batch = worker.slabs.unpack(made.parcel) if made.parcel is not None else None
        return Produced(batch, state, made.tally, made.remade, ended=made.parcel is None)

    def close(self) -> None:
        """End all workers."""
        self._finalizer()

    def forget(self) -> None:
        """Leave the workers to the process that this one was forked from."""
        self._finalizer.detach()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.pid for worker in self._workers]

    def _start_worker(self, number: int) -> WorkerHandle:
        return WorkerHandle(replace(self._order, number=number), self._settings.start_method)

    def _ask_ahead(self) -> None:
        """Ask for batches in the order of their turns, as far ahead as the settings say."""
        for each in self._workers:
            each.return_slabs()
        most = self._settings.prefetch_factor * len(self._workers)
        waiting = sum(len(each.queue) for each in self._workers)
        waiting += sum(len(track.ready) for track in self._tracks.values())
        passed_over: list[tuple[int, int]] = []  # their worker is full; they keep their turn
        while waiting < most and self._turns:
            turn = heapq.heappop(self._turns)
            track = self._tracks[turn[1]]
            worker = self._choose(track)
            if worker is None:
                passed_over.append(turn)
                continue
            self._ask(worker, track)
            heapq.heappush(self._turns, (track.asked, track.lane.index))
            waiting += 1
        for turn in passed_over:
            heapq.heappush(self._turns, turn)

    def _choose(self, track: _Track) -> WorkerHandle | None:
        """The worker for a lane's next batch; ``None`` to wait until one has room."""
        depth = max(2, self._settings.prefetch_factor)
        holder = track.worker
        if holder is not None and track.pending:  # its state is known only when the batch before has come
            return holder if len(holder.queue) < depth else None
        chosen: WorkerHandle = min(self._workers, key=lambda worker: (len(worker.queue), worker.number))
        if holder is not None:
            margin = depth - 1 if self._settings.keep_lanes else 0
            if len(holder.queue) <= len(chosen.queue) + margin:
                chosen = holder
        return chosen if len(chosen.queue) < depth else None

    def _ask(self, worker: WorkerHandle, track: _Track) -> None:
        moves = track.worker is not worker
        if moves:
            if track.worker is not None:
                track.worker.ask(DropLane(track.lane.index))
            track.worker = worker
        worker.ask(MakeBatch(self._generation, track.lane, moves, track.state if moves else None, track.asked))
        track.asked += 1
        track.pending += 1

    def _wait(self) -> None:
        """Wait for answers, for a while; deal with what came, and with who died or hangs."""
        came = self._incoming.poll(1_000)
        for descriptor, _ in came:
            worker = self._by_descriptor[descriptor]
            try:
                answers = worker.listen()
            except EOFError:
                self._bury(worker)
                return  # the others are heard next time; the table of workers has changed
            for answer in answers:
                self._take(answer, worker)
        if not came:
            for worker in self._workers:
                self._look_at(worker)

    def _listen_to_all(self) -> None:
        """Make the table of who can be heard."""
        self._by_descriptor = {worker.connection.fileno(): worker for worker in self._workers}
        self._incoming = select.poll()
        for descriptor in self._by_descriptor:
            self._incoming.register(descriptor, select.POLLIN)

    def _take(self, answer: Answer, worker: WorkerHandle) -> None:
        if not isinstance(answer, Made | Failed):
            return
        if worker.queue:
            worker.queue.popleft()
        worker.reported_hang = False
        if answer.generation not in (self._generation, -1):  # asked for before a restore
            if isinstance(answer, Made):
                _discard(answer.parcel, worker)
            return
        if isinstance(answer, Failed):
            answer.error.add_note(f"In worker {worker.number} (pid {worker.pid}):\n{answer.trace}")
            raise answer.error
        self._deaths_in_a_row = 0
        track = self._tracks[answer.lane_index]
        track.pending -= 1
        track.state = answer.change.apply(track.state)
        if track.ended:
            return
        if answer.parcel is None:
            track.ended = True
            self._turns = [turn for turn in self._turns if turn[1] != answer.lane_index]
            heapq.heapify(self._turns)
        track.ready.append((answer, worker, track.state))

    def _look_at(self, worker: WorkerHandle) -> None:
        """Report a worker that is at one sample for too long."""
        settings = self._settings
        limit = settings.watchdog_seconds if worker.ready else settings.start_seconds
        if limit is None or worker.reported_hang or worker.busy_seconds() < limit:
            return
        worker.reported_hang = True
        logger.warning(
            "worker %d (pid %d) has been at %s for more than %g seconds. Its stacks:\n%s",
            worker.number, worker.pid, spoken(worker.key_in_hand()), limit, worker.stacks(),
        )  # fmt: skip
        if settings.fail_on_timeout:
            worker.kill()

    def _bury(self, worker: WorkerHandle) -> None:
        """A worker is gone: say why, start another in its place, and let its lanes go on from their last batch."""
        key = worker.key_in_hand()
        code, for_memory = worker.exit_code(patience_seconds=5.0)
        story = f"worker {worker.number} (pid {worker.pid}) {exit_cause(code, killed_for_memory=for_memory)}"
        story += f" with {spoken(key)} in hand"
        self._deaths_in_a_row += 1
        if self._settings.on_worker_death == "raise":
            raise WorkerError(f"{story}.\n  Set on_worker_death='restart' to go on without it.")
        if self._deaths_in_a_row >= DEATHS_WITHOUT_A_BATCH or (key is None and self._deaths_in_a_row >= 3):
            raise WorkerError(f"{story}; {self._deaths_in_a_row} deaths in a row without a batch. Giving up.")
        if key is not None:
            self._deaths[key] += 1
            if self._deaths[key] == 2:
                self._poisoned |= {key}
                story += "; that is the second death on this sample, which is left alone from now on"
        self.deaths.append(story)
        logger.warning("%s. Starting another one.", story)
        worker.close()
        self._replace(worker)

    def _replace(self, worker: WorkerHandle) -> None:
        self._workers[self._workers.index(worker)] = self._start_worker(worker.number)
        self._listen_to_all()
        if self._poisoned:
            for other in self._workers:
                other.ask(Poison(self._poisoned))
        for track in self._tracks.values():
            if track.worker is worker:
                track.worker = None
                track.asked -= track.pending
                track.pending = 0
        self._turns = [(track.asked, index) for index, track in self._tracks.items() if not track.ended]
        heapq.heapify(self._turns)


_POOLS: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _forget_all() -> None:
    for pool in _POOLS:
        pool.forget()


os.register_at_fork(after_in_child=_forget_all)


def _discard(parcel: Parcel | None, worker: WorkerHandle) -> None:
    if parcel is not None:
        worker.slabs.discard(parcel)


def _close_all(workers: list[WorkerHandle]) -> None:
    for worker in workers:
        with contextlib.suppress(OSError):
            worker.connection.close()  # all leave at once, not one after the other
    for worker in workers:
        worker.close()
    workers.clear()
