"""The desk: what a process keeps at hand while it works. Passed to `open`, never ambient."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from omniloom.data.pipeline.faults import FaultPolicy
from omniloom.data.pipeline.read_ahead import AheadBudget
from omniloom.data.sample import SampleKey


def _nobody_looks(*_key: int) -> None:
    return None


@dataclass(slots=True)
class LeafTally:
    """What happened to one leaf's rows since the counts were last taken.

    Attributes:
        read: rows read.
        read_bytes: bytes of their parts.
        yielded: samples that went on to the caller.
        skipped: samples left out, by reason.
        store: what reading from a store came to: ``rows_ahead`` and ``rows_singly``, ``long_ranges`` and
            ``long_range_bytes`` that were fetched ahead, ``spool_peak_bytes``, the most that a process held, and
            what its stores did (see `omniloom.storage.counts`) while the data set was at work.
    """

    read: int = 0
    read_bytes: int = 0
    yielded: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    store: dict[str, int] = field(default_factory=dict)

    def skip(self, reason: str, count: int = 1) -> None:
        """Count samples that are left out."""
        self.skipped[reason] = self.skipped.get(reason, 0) + count

    def take_back(self, reason: str) -> None:
        """Count a sample as left out that had been counted as yielded."""
        self.yielded -= 1
        self.skip(reason)

    def add(self, other: LeafTally) -> None:
        """Add the counts of another tally to this one."""
        self.read += other.read
        self.read_bytes += other.read_bytes
        self.yielded += other.yielded
        for reason, count in other.skipped.items():
            self.skip(reason, count)
        for name, count in other.store.items():
            known = self.store.get(name, 0)
            self.store[name] = max(known, count) if name.endswith("_peak_bytes") else known + count


class Tally:
    """Counts of all leaves since they were last taken; a batch carries them to the caller."""

    def __init__(self) -> None:
        self._leaves: dict[int, LeafTally] = {}

    def leaf(self, dataset: int) -> LeafTally:
        """The counts of one leaf."""
        tally = self._leaves.get(dataset)
        if tally is None:
            tally = self._leaves[dataset] = LeafTally()
        return tally

    def take(self) -> dict[int, LeafTally]:
        """The counts so far; the next ones start at nought."""
        taken, self._leaves = self._leaves, {}
        return taken


@dataclass(slots=True)
class Desk:
    """What a process keeps at hand.

    Attributes:
        policy: what becomes of samples that cannot be used.
        tally: counts since they were last taken.
        poisoned: keys that killed their worker twice; they are sample errors from then on.
        threads: read and cook ahead (decoders let other threads run); user code never runs there.
        ahead: bytes of stores that lanes may hold before they are due.
        take_in_hand: called with the numbers of each key before it is worked on, so that a death can be explained.
    """

    policy: FaultPolicy = field(default_factory=FaultPolicy)
    tally: Tally = field(default_factory=Tally)
    poisoned: frozenset[SampleKey] = frozenset()
    threads: Executor | None = None
    ahead: AheadBudget = field(default_factory=lambda: AheadBudget(0))
    take_in_hand: Callable[[int, int, int, int], None] = _nobody_looks
