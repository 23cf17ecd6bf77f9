"""What the caller and a worker say to each other."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from omniloom.data.loader.runner import Tallies
from omniloom.data.loader.transport import Parcel
from omniloom.data.pipeline.faults import FaultPolicy
from omniloom.data.pipeline.stream import Stage, State
from omniloom.data.plan.lane import Lane
from omniloom.data.sample import SampleKey
from omniloom.data.side.lazy import CachePool


@dataclass(frozen=True)
class WorkOrder:
    """What a worker needs to know once.

    Attributes:
        pipeline: root stage of the pipeline.
        policy: what becomes of samples that cannot be used.
        number: the worker's number within its rank.
        threads: threads that read and decode ahead.
        on_start: called once in the worker before any work, or ``None``.
        cache_pool: for user code, or ``None``.
        ahead_bytes: bytes of stores that the worker's lanes may hold before they are due.
    """

    pipeline: Stage
    policy: FaultPolicy
    number: int
    threads: int = 0
    on_start: Callable[[int], None] | None = None
    cache_pool: CachePool | None = None
    ahead_bytes: int = 0


# The caller says:


class MakeBatch(NamedTuple):
    """Make the next batch of a lane, of which ``batches`` have come in this lap.

    With ``reopen``, from a saved place (``None``: from its start).
    """

    generation: int
    lane: Lane
    reopen: bool
    state: State | None
    batches: int = 0


class DropLane(NamedTuple):
    """Another worker has taken the lane over."""

    lane_index: int


class FreeSlabs(NamedTuple):
    """No tensor is left over these slabs."""

    slabs: tuple[int, ...]


class Poison(NamedTuple):
    """These keys killed their worker twice: leave them alone."""

    keys: frozenset[SampleKey]


# A worker says:


class Ready(NamedTuple):
    """The worker has started. The descriptors of its board and its stack file follow."""

    pid: int


class NewSlab(NamedTuple):
    """There is a new slab. Its descriptor follows."""

    slab: int
    size_bytes: int


class RetireSlab(NamedTuple):
    """A slab is not used any more."""

    slab: int


class StateChange(NamedTuple):
    """What changed in a lane's state since its last batch from this worker; all of it after the first."""

    whole: bool
    changed: State
    removed: tuple[str, ...] = ()

    @classmethod
    def between(cls, old: State | None, new: State) -> StateChange:
        """The change from one state to another."""
        if old is None:
            return cls(True, new)
        changed = {name: value for name, value in new.items() if name not in old or not _same(old[name], value)}
        return cls(False, changed, tuple(name for name in old if name not in new))

    def apply(self, old: State | None) -> State:
        """The state after the change."""
        if self.whole or old is None:
            return self.changed
        return {name: value for name, value in (old | self.changed).items() if name not in self.removed}


class Made(NamedTuple):
    """A batch of a lane, or its end."""

    generation: int
    lane_index: int
    parcel: Parcel | None
    change: StateChange
    tally: Tallies
    remade: Tallies


class Failed(NamedTuple):
    """The run cannot go on: an error that the fault policy does not swallow."""

    generation: int
    lane_index: int
    error: Exception
    trace: str


def send(connection: Connection[Any, Any], message: Any) -> None:
    """Send a message. `Connection.send` would make a pickler with a table of its own each time."""
    connection.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def receive(connection: Connection[Any, Any]) -> Any:
    """The next message. Raises EOFError when the other side is gone."""
    return pickle.loads(connection.recv_bytes())


Answer = Ready | NewSlab | RetireSlab | Made | Failed
Request = MakeBatch | DropLane | FreeSlabs | Poison


def _same(old: Any, new: Any) -> bool:
    return old is new or old == new
