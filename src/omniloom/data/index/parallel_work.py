"""The same work on each of many shards: in processes here, or wherever an executor does it; in order, none lost."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from multiprocessing.connection import wait
from pathlib import Path
from typing import Protocol, TypeVar

from omniloom.errors import WorkerError

# Far more than any pool has workers, so that one long shard does not stop the others; results are small.
_WINDOW = 1_024
_LOSSES_IN_A_ROW = 3
"""Pools of this machine that may break without one shard being finished."""


class _OfShard(Protocol):
    @property
    def shard(self) -> str: ...


Request = TypeVar("Request", bound=_OfShard)
Result = TypeVar("Result")


def in_order(
    work: Callable[[Request], Result],
    requests: Sequence[Request],
    *,
    executor: Executor | None,
    num_workers: int,
    in_threads: bool = False,
) -> Iterator[Result]:
    """Do the same work on each request, in parallel, and yield the results in the order of the requests.

    Where a process of this machine is killed, a new one does its work again; how an executor does that is its affair.

    Args:
        work: a function of a module, so that other processes find it.
        requests: what to do it on; each has a ``shard``.
        executor: where to do it; ``None`` makes processes here.
        num_workers: how many processes at most; with 0 or 1 the work is done in this one.
        in_threads: make threads instead, for work that waits for a network.

    Raises:
        WorkerError: processes were killed again and again, or an executor lost its workers.
    """
    if executor is not None:
        yield from _through(executor, work, requests)
        return
    workers = min(num_workers, len(requests)) if in_threads else min(num_workers, len(requests), os.cpu_count() or 1)
    if workers <= 1:
        yield from map(work, requests)
        return
    if in_threads:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - local work needs none

        with ThreadPoolExecutor(workers, "omniloom-shards") as threads:
            yield from _through(threads, work, requests)
        return
    yield from _in_processes(work, requests, workers)


def _in_processes(work: Callable[[Request], Result], requests: Sequence[Request], workers: int) -> Iterator[Result]:
    done = losses = 0
    while True:
        pool = ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context(start_method()),
            initializer=begin_worker,
            initargs=(dict(os.environ),),
        )
        try:
            for result in _through(pool, work, requests[done:]):
                done += 1
                losses = 0
                yield result
            return
        except WorkerError:
            losses += 1
            if losses >= _LOSSES_IN_A_ROW:
                raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def start_method() -> str:
    """How to start processes: by fork where this process has a single thread to the last, else by a fork server."""
    tasks = Path("/proc/self/task")
    if sys.platform == "linux" and threading.active_count() == 1 and tasks.is_dir() and len(list(tasks.iterdir())) == 1:
        return "fork"
    return "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


def _through(executor: Executor, work: Callable[[Request], Result], requests: Iterable[Request]) -> Iterator[Result]:
    waiting: deque[tuple[Request, Future[Result]]] = deque()
    coming = iter(requests)
    try:
        while True:
            while len(waiting) < _WINDOW and (request := next(coming, None)) is not None:
                waiting.append((request, _submitted(executor, work, request)))
            if not waiting:
                return
            request, future = waiting.popleft()
            try:
                result = future.result()
            except Exception as error:
                if isinstance(error, BrokenExecutor) or type(error).__name__ in LOST_WORKERS:
                    raise _lost(request, error) from error
                raise
            yield result
    finally:
        for _, future in waiting:
            future.cancel()


LOST_WORKERS = frozenset(("KilledWorker", "WorkerCrashedError", "NodeDiedError"))
"""How dask and ray name the loss of a worker that they have given up on."""


def _submitted(executor: Executor, work: Callable[[Request], Result], request: Request) -> Future[Result]:
    try:
        return executor.submit(work, request)
    except BrokenExecutor as error:
        raise _lost(request, error) from error


def _lost(request: _OfShard, error: Exception) -> WorkerError:
    return WorkerError(
        f"a process died while it read {request.shard} or a shard near it: {error}. Was it killed for "
        "memory? What is finished is kept; run the command again, with fewer workers if need be."
    )


def begin_worker(environment: dict[str, str]) -> None:
    """Leave Ctrl-C to the main process, and end when that is gone.

    Args:
        environment: that of the main process now. A fork server has the one of when it was started, which may be older
            than the credentials.
    """
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(100_000)  # columns of millions of names, and no cycles among them
    parent = multiprocessing.parent_process()
    if parent is not None:
        sentinel = parent.sentinel
        threading.Thread(target=lambda: (wait([sentinel]), os._exit(1)), daemon=True).start()
