"""The engine of a loader: what makes its batches, in workers or in the caller's own process."""

from __future__ import annotations

import logging
import sys

from omniloom.data.loader.dataset import Dataset
from omniloom.data.loader.inline import InlineLanes
from omniloom.data.loader.messages import WorkOrder
from omniloom.data.loader.pool import PoolSettings, WorkerPool
from omniloom.data.loader.watch import OwnWatch
from omniloom.data.pipeline.make import make_of
from omniloom.data.side.lazy import CachePool

logger = logging.getLogger("omniloom")

Engine = WorkerPool | InlineLanes


def make_engine(dataset: Dataset, settings: PoolSettings, *, num_workers: int, cache_pool: CachePool | None) -> Engine:
    """An engine for the lanes of a data set; nothing is opened yet.

    Args:
        dataset: what is loaded.
        settings: how workers are run; the watchdog's hold without workers, too.
        num_workers: worker processes; 0: none.
        cache_pool: for user code, or ``None``.
    """
    _tell_of_doubled_batches()
    config, pipeline = dataset.worker_config, dataset.pipeline
    threads = config.threads(num_workers) if make_of(pipeline).ahead else 0
    ahead = config.ahead_bytes(num_workers)
    if num_workers:
        order = WorkOrder(pipeline, config.fault_policy, 0, threads, config.on_worker_start, cache_pool, ahead)
        return WorkerPool(order, settings)
    limit, fail = settings.watchdog_seconds, settings.fail_on_timeout
    lanes = InlineLanes(
        pipeline,
        config.fault_policy,
        threads=threads,
        ahead_bytes=ahead,
        keep_random_state=dataset.user_code,
        watch=OwnWatch(limit, fail=fail) if limit is not None else None,
    )
    lanes.use_cache(cache_pool)
    return lanes


def _tell_of_doubled_batches() -> None:
    """Warn where torch's `DataLoader` runs several copies of a loader, which do not know of each other."""
    data = sys.modules.get("torch.utils.data")
    worker = None if data is None else data.get_worker_info()
    if worker is not None and worker.num_workers > 1:
        logger.warning(
            "this loader is iterated in worker %d of %d of torch's DataLoader, and each of them gives every batch of "
            "the rank. Iterate it in the main process, where it has workers of its own (WorkerConfig(num_workers=)), "
            "or in one worker.", worker.id, worker.num_workers,
        )  # fmt: skip
