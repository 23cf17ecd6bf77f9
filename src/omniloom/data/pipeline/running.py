"""What user code is at work on just now, for `TaskEncoder.current_batch_index` and `current_sample_index`.

Nothing in the pipeline asks for it: what a sample becomes depends on its key alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from omniloom.data.pipeline.make import make_of
from omniloom.data.pipeline.seeding import KeySeeds
from omniloom.data.side.lazy import CachePool, NoCachePool
from omniloom.errors import StateError


@dataclass(slots=True)
class Work:
    """What is being worked on.

    Attributes:
        seeds: knows the key that was seeded last.
        rows: rows of each leaf, by position.
        batch: number of the micro-batch in the whole job; ``None`` where no loader runs.
        cache: the loader's cache pool.
    """

    seeds: KeySeeds
    rows: Sequence[int]
    batch: int | None = None
    cache: CachePool | None = None

    @classmethod
    def of(cls, pipeline: Any) -> Work:
        """The work of a pipeline."""
        make = make_of(pipeline)
        return cls(make.seeds, [leaf.rows for leaf in getattr(make.source, "leaves", ())])


_WORK: ContextVar[Work | None] = ContextVar("omniloom_work", default=None)


@contextmanager
def at_work(work: Work) -> Iterator[None]:
    """User code that is called within can ask what it is at work on."""
    token = _WORK.set(work)
    try:
        yield
    finally:
        _WORK.reset(token)


def current_batch_index() -> int:
    """Number of the micro-batch in the whole job that is being made, from 0 in each lap."""
    work = _WORK.get()
    if work is None or work.batch is None:
        raise StateError("current_batch_index is known only while a loader makes a batch")
    return work.batch


def current_sample_index() -> int:
    """``epoch * rows + row`` in its data set of the sample (of a batch or pack: of its first one) in hand."""
    work = _WORK.get()
    if work is None or work.seeds.planted is None:
        raise StateError("current_sample_index is known only while a loader makes a sample, or makes one again")
    key = work.seeds.planted
    return key.epoch * work.rows[key.dataset] + key.row


def current_cache() -> CachePool:
    """The running loader's cache pool; without one, a pool that keeps nothing."""
    work = _WORK.get()
    return NoCachePool() if work is None or work.cache is None else work.cache
