"""Scans shards, many at a time and in order; a finished scan is kept on disk and not repeated."""

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
from typing import NamedTuple, Protocol, TypeVar

from omniloom.data.shards.keys import KeyRule
from omniloom.data.shards.parts_table import ScanSummary, read_parts_table, read_summary, write_parts_table
from omniloom.data.shards.scan import DuplicatePolicy, ShardScan, scan_shard
from omniloom.data.shards.tar_index import encode_tar_index, tar_index_path
from omniloom.errors import ShardError, StorageError, WorkerError
from omniloom.storage.files import replace_file

# Far more than any pool has workers, so that one long shard does not stop the others; results are small.
_WINDOW = 1_024


class _OfShard(Protocol):
    @property
    def shard(self) -> str: ...


Request = TypeVar("Request", bound=_OfShard)
Result = TypeVar("Result")


class ScanRequest(NamedTuple):
    """What a worker is to do with one shard.

    Attributes:
        shard: its name.
        path: the archive.
        rule: how names are split.
        on_duplicate: the duplicate policy.
        new_table: where the parts table goes if the shard has to be scanned.
        old_tables: parts tables of earlier runs, usable while the shard is unchanged.
        new_index: where the index goes if the present one is missing or differs.
    """

    shard: str
    path: str
    rule: KeyRule
    on_duplicate: DuplicatePolicy
    new_table: str
    old_tables: tuple[str, ...]
    new_index: str


class ScanDone(NamedTuple):
    """A shard whose scan is on disk.

    Attributes:
        shard: its name.
        summary: what its parts table says in short.
        table: the parts table.
        index_waits: a new index waits at ``new_index``; else the present one is right.
        reused: the scan is that of an earlier run.
    """

    shard: str
    summary: ScanSummary
    table: str
    index_waits: bool
    reused: bool


class ShardFault(NamedTuple):
    """A shard that cannot be used.

    Attributes:
        shard: its name.
        reason: short stable word, such as ``truncated``.
        offset_bytes: byte where the fault was seen, if one is to blame.
        message: the whole story.
    """

    shard: str
    reason: str
    offset_bytes: int | None
    message: str


def scan_one(request: ScanRequest) -> ScanDone | ShardFault:
    """Scan a shard, or find that an earlier scan still holds. Runs in any process that sees the files.

    Raises:
        StorageError: the parts table or the index cannot be written; then no other shard can be finished either.
    """
    try:
        before = os.stat(request.path)  # noqa: PTH116
    except OSError as error:
        reason = "missing-shard" if isinstance(error, FileNotFoundError) else "unreadable"
        message = f"{request.shard}: cannot be read: {error.strerror}. Bring it back or leave it out."
        return ShardFault(request.shard, reason, None, message)
    for table in request.old_tables:
        summary = _usable(table, request, before)
        if summary is not None:
            try:
                index = _leave_index(request, read_parts_table(table))
            except ShardError:
                continue
            return ScanDone(request.shard, summary, table, index, True)
    try:
        scan = scan_shard(request.path, shard=request.shard, rule=request.rule, on_duplicate=request.on_duplicate)
        after = os.stat(request.path)  # noqa: PTH116
    except ShardError as error:
        return ShardFault(request.shard, error.reason, error.offset_bytes, str(error))
    except (StorageError, OSError) as error:
        return ShardFault(request.shard, "unreadable", None, f"{request.shard}: cannot be read: {error}")
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        message = f"{request.shard}: changed while it was read. Run the command again once nobody writes to it."
        return ShardFault(request.shard, "changed", None, message)
    return leave_scan(request, scan, mtime_ns=before.st_mtime_ns)


def leave_scan(request: ScanRequest, scan: ShardScan, *, mtime_ns: int) -> ScanDone:
    """Write the table of a scan, and its index where the present one differs.

    Raises:
        StorageError: they cannot be written.
    """
    summary = write_parts_table(request.new_table, scan, mtime_ns=mtime_ns, on_duplicate=request.on_duplicate)
    return ScanDone(request.shard, summary, request.new_table, _leave_index(request, scan), False)


def in_order(
    work: Callable[[Request], Result], requests: Sequence[Request], *, executor: Executor | None, num_workers: int
) -> Iterator[Result]:
    """Do the same work on each request, in parallel, and yield the results in the order of the requests.

    Args:
        work: a function of a module, so that other processes find it.
        requests: what to do it on; each has a ``shard``.
        executor: where to do it; ``None`` makes processes here.
        num_workers: how many processes at most; with 0 or 1 the work is done in this one.

    Raises:
        WorkerError: a process was killed.
    """
    if executor is not None:
        yield from _through(executor, work, requests)
        return
    workers = min(num_workers, len(requests), os.cpu_count() or 1)
    if workers <= 1:
        yield from map(work, requests)
        return
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context(start_method()), initializer=_begin_worker
    )
    try:
        yield from _through(pool, work, requests)
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
                waiting.append((request, executor.submit(work, request)))
            if not waiting:
                return
            request, future = waiting.popleft()
            try:
                yield future.result()
            except BrokenExecutor as error:
                raise WorkerError(
                    f"a process died while it read {request.shard} or a shard near it: {error}. Was it killed for "
                    "memory? What is finished is kept; run the command again, with fewer workers if need be."
                ) from error
    finally:
        for _, future in waiting:
            future.cancel()


def _begin_worker() -> None:
    """Leave Ctrl-C to the main process, and end when that is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(100_000)  # columns of millions of names, and no cycles among them
    parent = multiprocessing.parent_process()
    if parent is not None:
        sentinel = parent.sentinel
        threading.Thread(target=lambda: (wait([sentinel]), os._exit(1)), daemon=True).start()


def _usable(table: str, request: ScanRequest, status: os.stat_result) -> ScanSummary | None:
    """The summary of an earlier scan, if the shard and the rules are the same."""
    if not os.path.exists(table):  # noqa: PTH110
        return None
    try:
        summary = read_summary(table)
    except ShardError:
        return None
    fields = summary.fields
    same_shard = fields["size_bytes"] == status.st_size and summary.mtime_ns == status.st_mtime_ns
    same_policy = not fields["dropped_duplicates"] or summary.on_duplicate == request.on_duplicate
    return summary if same_shard and same_policy and fields["rule"] == request.rule else None


def _leave_index(request: ScanRequest, scan: ShardScan) -> bool:
    """Write the index to the work folder, unless the one next to the shard is the same."""
    content = encode_tar_index(scan.offsets)
    present = Path(tar_index_path(request.path))
    try:
        if present.stat().st_size == len(content) and present.read_bytes() == content:
            return False
    except OSError:
        pass
    replace_file(request.new_index, content)
    return True
