"""`WorkerConfig`: which data-parallel rank this is, and how its workers are run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from omniloom.data.loader.processes import StartMethod
from omniloom.data.pipeline.faults import FaultPolicy
from omniloom.data.pipeline.read_ahead import default_budget_bytes
from omniloom.data.plan.counts import check_at_least
from omniloom.data.plan.lane import default_lanes
from omniloom.errors import ConfigError


@dataclass(kw_only=True)
class WorkerConfig:
    """Rank, world and workers. Without arguments it asks torch.distributed, and is rank 0 of 1 where there is none.

    Attributes:
        rank: data-parallel rank.
        world_size: number of data-parallel ranks.
        num_workers: worker processes of a rank; 0 loads in the caller's own process.
        data_parallel_group: process group to gather and scatter states in; the default group where it is ``None``.
        seed_offset: seed of the run: order, blend and augmentation follow it.
        prefetch_factor: batches that each worker is asked for ahead.
        persistent_workers: keep workers from one pass to the next (they always are; ``False`` ends them in between).
        pin_memory: copy batches to page-locked memory; ``None``: no.
        lanes: streams that the run is made of; ``None``: a multiple of world size x workers and of 12. A saved state
            keeps its own.
        decode_threads: threads of each process that read and decode ahead; ``None``: as many cores as there are for
            it, at most 4, and none where it would be one.
        read_ahead_bytes: bytes of stores that the rank's lanes together may hold before they are due; 0: nothing is
            fetched ahead; ``None``: 2 GiB, at most an eighth of the machine's memory shared by the ranks on it.
        start_method: ``spawn`` (a fresh interpreter; takes closures and notebook classes) or ``fork``.
        on_worker_death: ``restart`` or ``raise``.
        faults: what becomes of samples that cannot be used.
        global_error_handler: called as ``handler(error, sample, sources)`` for each of them.
        on_worker_start: called with the worker's number in each worker before it works.
        restore_timeout_seconds: how long a rank that restores its state waits for the others to do so, too.
    """

    rank: int | None = None
    world_size: int | None = None
    num_workers: int = 4
    data_parallel_group: Any = None
    seed_offset: int = 0
    prefetch_factor: int = 2
    persistent_workers: bool = True
    pin_memory: bool | None = None
    lanes: int | None = None
    decode_threads: int | None = None
    read_ahead_bytes: int | None = None
    start_method: StartMethod = "spawn"
    on_worker_death: Literal["restart", "raise"] = "restart"
    faults: FaultPolicy = field(default_factory=FaultPolicy)
    global_error_handler: Callable[[Exception, Any, Any], None] | None = None
    on_worker_start: Callable[[int], None] | None = None
    restore_timeout_seconds: float = 180.0

    def __post_init__(self) -> None:
        if (self.rank is None) != (self.world_size is None):
            raise ConfigError("WorkerConfig: give both `rank` and `world_size`, or neither to ask torch.distributed")
        if self.rank is None:
            self.rank, self.world_size = _distributed_rank(self.data_parallel_group)
        if not 0 <= self.rank < self.ranks:
            raise ConfigError(f"WorkerConfig: rank {self.rank} found, 0 to {self.ranks - 1} expected")
        for name, least in _LEAST.items():
            check_at_least(least, name, getattr(self, name), where="WorkerConfig: ")
        if self.start_method not in ("spawn", "fork") or self.on_worker_death not in ("restart", "raise"):
            raise ConfigError(
                f"WorkerConfig: start_method={self.start_method!r}, on_worker_death={self.on_worker_death!r} found; "
                "'spawn' or 'fork', and 'restart' or 'raise' expected"
            )

    @property
    def ranks(self) -> int:
        """The number of data-parallel ranks."""
        return self.world_size or 1

    @property
    def number(self) -> int:
        """The data-parallel rank."""
        return self.rank or 0

    def threads(self, num_workers: int) -> int:
        """Threads of a process that read and decode ahead."""
        if self.decode_threads is not None:
            return self.decode_threads
        processes = max(1, num_workers) * int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # as torchrun sets it
        cores = len(os.sched_getaffinity(0)) // processes
        return min(4, cores) if cores > 1 else 0

    def ahead_bytes(self, num_workers: int) -> int:
        """Bytes of stores that each process may hold before they are due."""
        rank_bytes = default_budget_bytes() if self.read_ahead_bytes is None else self.read_ahead_bytes
        return rank_bytes // max(1, num_workers)

    @property
    def fault_policy(self) -> FaultPolicy:
        """What becomes of samples that cannot be used, and who is told."""
        handler = self.global_error_handler
        return self.faults if handler is None else replace(self.faults, handler=handler)

    @property
    def run_lanes(self) -> int:
        """Lanes of a new run."""
        return self.lanes if self.lanes is not None else default_lanes(self.ranks, self.num_workers)

    @staticmethod
    def default_worker_config(num_workers: int = 4, data_parallel_group: Any = None) -> WorkerConfig:
        """The rank and world of torch.distributed, or rank 0 of 1."""
        return WorkerConfig(num_workers=num_workers, data_parallel_group=data_parallel_group)

    def global_rank(self) -> int:
        """Rank in the whole job of this rank of the data-parallel group."""
        distributed = running_distributed()
        if distributed is None or self.data_parallel_group is None:
            return self.number
        return int(distributed.get_global_rank(self.data_parallel_group, self.number))


_LEAST = {"num_workers": 0, "prefetch_factor": 1, "lanes": 1, "decode_threads": 0, "read_ahead_bytes": 0}
"""The least value of each setting that is a whole number, or ``None`` where that is allowed."""


def running_distributed() -> Any:
    """The module torch.distributed where a process group runs, else ``None``. Imports nothing."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.distributed


def _distributed_rank(group: Any) -> tuple[int, int]:
    distributed = running_distributed()
    if distributed is None:
        return 0, 1
    return int(distributed.get_rank(group)), int(distributed.get_world_size(group))
