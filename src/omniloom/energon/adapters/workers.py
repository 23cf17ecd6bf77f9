"""`WorkerConfig` with the arguments that only Energon's has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha1
from typing import Any

from omniloom.data.loader.config import WorkerConfig as OmniloomWorkerConfig
from omniloom.data.pipeline import running
from omniloom.energon.adapters import debug_log


@dataclass(kw_only=True)
class WorkerConfig(OmniloomWorkerConfig):
    """Rank, world and workers, as `omniloom.WorkerConfig`.

    There is one lane for each worker of the job where ``lanes`` says nothing else: so a pass over the data ends for all
    workers at once, as in Energon. Say ``lanes`` (a multiple of 12, say) to go on with other numbers of ranks.

    Attributes:
        worker_debug_path: where logs of every batch are written, with ``{worker_id}`` and ``{pid}`` in it; ``None``:
            to the standard output.
        worker_log_level: 0: no logs; 1: loaders and their batches, and the rows of each; 2: also the batches of each
            worker of an evaluation.
        restore_error_handler: accepted; what fails in making a sample again is raised.
    """

    worker_debug_path: str | None = None
    worker_log_level: int = 0
    restore_error_handler: Callable[..., None] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lanes is None:
            self.lanes = self.ranks * max(1, self.num_workers)

    def __deepcopy__(self, memo: dict[int, Any]) -> WorkerConfig:
        return self  # the copies of a data set share it, and a process group cannot be copied

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "data_parallel_group": None}  # another process has none of this one's groups

    @property
    def active_worker_batch_index(self) -> int:
        """Number of the micro-batch in the whole job that is being made. Raises StateError where none is."""
        return running.current_batch_index()

    @property
    def active_worker_sample_index(self) -> int:
        """Number of the sample in hand, see `TaskEncoder.current_sample_index`. Raises StateError where none is."""
        return running.current_sample_index()

    def assert_worker(self) -> None:
        """Nothing: what a data set does within a loader it may do anywhere."""

    @staticmethod
    def default_worker_config(num_workers: int = 4, data_parallel_group: Any = None) -> WorkerConfig:
        """The rank and world of torch.distributed, or rank 0 of 1."""
        return WorkerConfig(num_workers=num_workers, data_parallel_group=data_parallel_group)

    def global_worker_id(self, override_local_worker_id: int | None = None) -> int:
        """Number of a worker in the whole job."""
        return self.number * max(1, self.num_workers) + (override_local_worker_id or 0)

    def worker_seed(self, override_local_worker_id: int | None = None) -> int:
        """Energon's 32-bit seed of a worker, for user code that draws of it. omniloom's order does not."""
        text = f"{self.global_worker_id(override_local_worker_id)},{self.seed_offset}"
        return int.from_bytes(sha1(text.encode(), usedforsecurity=False).digest(), "big") & 0xFFFFFFFF

    def should_log(self, level: int) -> bool:
        """Whether lines of a level are written."""
        return level <= self.worker_log_level

    def worker_log(self, data: dict[str, Any]) -> None:
        """Write one line to the log of the running worker, or of the process that iterates."""
        debug_log.write(self, data, worker=debug_log.running_worker(self))

    def rank_worker_id(self) -> int:
        """Number of the running worker within its rank; 0 in the process that iterates."""
        return debug_log.running_worker(self) or 0

    def config(self) -> dict[str, Any]:
        """Rank, world and workers as plain values."""
        group = self.data_parallel_group
        return {
            "rank": self.number,
            "world_size": self.ranks,
            "num_workers": self.num_workers,
            "data_parallel_group": None if group is None else group.size(),
        }
