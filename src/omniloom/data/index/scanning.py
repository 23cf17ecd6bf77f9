"""Scans shards, many at a time and in order; a finished scan is kept on disk and not repeated."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from omniloom.data.index.layout import WORK_FOLDER
from omniloom.data.index.parallel_work import in_order
from omniloom.data.shards.archive_file import FileMark, mark_at, open_archive
from omniloom.data.shards.keys import KeyRule
from omniloom.data.shards.parts_table import ScanSummary, read_parts_table, read_summary, write_parts_table
from omniloom.data.shards.scan import DuplicatePolicy, ShardScan, scan_shard
from omniloom.data.shards.tar_index import encode_tar_index, tar_index_path
from omniloom.errors import ObjectChangedError, ShardError, StorageError
from omniloom.storage.files import replace_file
from omniloom.storage.node_copy import StoredFile
from omniloom.storage.urls import is_url

if TYPE_CHECKING:
    from omniloom.data.shards.remote_archive import Transfer


class ScanRequest(NamedTuple):
    """What a worker is to do with one shard.

    Attributes:
        shard: its name.
        path: the archive, by path or URL.
        rule: how names are split.
        on_duplicate: the duplicate policy.
        new_table: where the parts table goes if the shard has to be scanned.
        old_tables: parts tables of earlier runs, usable while the shard is unchanged.
        new_index: where the index goes if the present one is missing or differs.
        present_index: the present one; ``None``: beside the archive.
    """

    shard: str
    path: str
    rule: KeyRule
    on_duplicate: DuplicatePolicy
    new_table: str
    old_tables: tuple[str | StoredFile, ...]
    new_index: str
    present_index: str | None = None


class ScanDone(NamedTuple):
    """A shard whose scan is on disk.

    Attributes:
        shard: its name.
        summary: what its parts table says in short.
        table: the parts table.
        index_waits: a new index waits at ``new_index``; else the present one is right.
        reused: the scan is that of an earlier run.
        transfer: what reading the shard cost, where it lies in a store.
        in_store: the table came from the data set's sidecar in a store, which has it and the index already.
    """

    shard: str
    summary: ScanSummary
    table: str
    index_waits: bool
    reused: bool
    transfer: Transfer | None = None
    in_store: bool = False


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
        before = mark_at(request.path)
    except OSError as error:
        reason = "missing-shard" if error.errno == errno.ENOENT else "unreadable"
        message = f"{request.shard}: cannot be read: {error.strerror or error}. Bring it back or leave it out."
        return ShardFault(request.shard, reason, None, message)
    return reused_scan(request, before) or _scan_anew(request, before)


def _scan_anew(request: ScanRequest, before: FileMark) -> ScanDone | ShardFault:
    try:
        archive = open_archive(request.path, shard=request.shard)
        try:
            scan = scan_shard(
                request.path, shard=request.shard, rule=request.rule, on_duplicate=request.on_duplicate, archive=archive
            )
        finally:
            archive.close()
        after = before if is_url(request.path) else mark_at(request.path)  # a store's reads see to it themselves
    except ShardError as error:
        return ShardFault(request.shard, error.reason, error.offset_bytes, str(error))
    except ObjectChangedError as error:
        return ShardFault(request.shard, "changed", None, f"{request.shard}: changed while it was read: {error}")
    except (StorageError, OSError) as error:
        return ShardFault(request.shard, "unreadable", None, f"{request.shard}: cannot be read: {error}")
    if before != after:
        message = f"{request.shard}: changed while it was read. Run the command again once nobody writes to it."
        return ShardFault(request.shard, "changed", None, message)
    done = leave_scan(request, scan, mtime_ns=before.mtime_ns)
    return done._replace(transfer=getattr(archive, "transfer", None))


def reused_scan(request: ScanRequest, mark: FileMark) -> ScanDone | None:
    """The scan of an earlier run, where the shard is as it was; ``None`` where it has to be read."""
    for candidate in request.old_tables:
        if isinstance(candidate, StoredFile):
            with contextlib.suppress(StorageError):
                candidate.fetch()
        table = candidate.path if isinstance(candidate, StoredFile) else candidate
        summary = _usable(table, request, mark)
        if summary is None:
            continue
        try:
            index_waits = _leave_index(request, read_parts_table(table))
        except ShardError:
            continue
        in_store = isinstance(candidate, StoredFile) and WORK_FOLDER not in candidate.url
        return ScanDone(request.shard, summary, table, index_waits, True, None, in_store)
    return None


def scan_all(
    requests: Sequence[ScanRequest], *, executor: Executor | None, num_workers: int
) -> Iterator[ScanDone | ShardFault]:
    """Scan shards, or find that earlier scans still hold; in the order of the requests.

    Args:
        requests: the shards.
        executor: does the work; its workers see the shards and need see nothing else of this machine.
        num_workers: without an executor, processes at most; threads, for shards in a store.
    """
    if executor is None:
        in_threads = bool(requests) and is_url(requests[0].path)
        yield from in_order(scan_one, requests, executor=None, num_workers=num_workers, in_threads=in_threads)
        return
    known: dict[str, ScanDone] = {}
    for request in requests:
        with contextlib.suppress(OSError):
            done = reused_scan(request, mark_at(request.path)) if _has_tables(request) else None
            if done is not None:
                known[request.shard] = done
    waiting = [request for request in requests if request.shard not in known]
    coming = in_order(scan_apart, [_for_elsewhere(one) for one in waiting], executor=executor, num_workers=num_workers)
    for request in requests:
        yield known[request.shard] if request.shard in known else _take_in(request, next(coming))


class ScannedApart(NamedTuple):
    """What a worker without this machine's disk sends back.

    Attributes:
        outcome: as `scan_one` gives it, with paths of the worker.
        table: content of the parts table; empty for a fault.
        index_file: content of the index; empty for a fault.
    """

    outcome: ScanDone | ShardFault
    table: bytes
    index_file: bytes


def scan_apart(request: ScanRequest) -> ScannedApart:
    """Scan a shard in a process that may run anywhere: files are made in a folder of its own and sent back."""
    import tempfile  # noqa: PLC0415 - slow to import

    with tempfile.TemporaryDirectory(prefix="omniloom-scan-") as folder:
        own = request._replace(new_table=f"{folder}/table", new_index=f"{folder}/index", present_index=f"{folder}/none")
        outcome = scan_one(own)
        if isinstance(outcome, ShardFault):
            return ScannedApart(outcome, b"", b"")
        return ScannedApart(outcome, Path(own.new_table).read_bytes(), Path(own.new_index).read_bytes())


def _for_elsewhere(request: ScanRequest) -> ScanRequest:
    path = request.path if is_url(request.path) else os.path.abspath(request.path)  # noqa: PTH100 - many
    return request._replace(path=path, old_tables=(), new_table="", new_index="")


def _take_in(request: ScanRequest, found: ScannedApart) -> ScanDone | ShardFault:
    if isinstance(found.outcome, ShardFault):
        return found.outcome
    replace_file(request.new_table, found.table)
    waits = _leave_index_bytes(request, found.index_file)
    return found.outcome._replace(table=request.new_table, index_waits=waits)


def _has_tables(request: ScanRequest) -> bool:
    return any(isinstance(one, StoredFile) or os.path.exists(one) for one in request.old_tables)  # noqa: PTH110


def leave_scan(request: ScanRequest, scan: ShardScan, *, mtime_ns: int) -> ScanDone:
    """Write the table of a scan, and its index where the present one differs.

    Raises:
        StorageError: they cannot be written.
    """
    summary = write_parts_table(request.new_table, scan, mtime_ns=mtime_ns, on_duplicate=request.on_duplicate)
    return ScanDone(request.shard, summary, request.new_table, _leave_index(request, scan), False)


def _usable(table: str, request: ScanRequest, mark: FileMark) -> ScanSummary | None:
    """The summary of an earlier scan, if the shard and the rules are the same."""
    if not os.path.exists(table):  # noqa: PTH110
        return None
    try:
        summary = read_summary(table)
    except ShardError:
        return None
    fields = summary.fields
    same_shard = fields["size_bytes"] == mark.size_bytes and summary.mtime_ns == mark.mtime_ns
    same_policy = not fields["dropped_duplicates"] or summary.on_duplicate == request.on_duplicate
    return summary if same_shard and same_policy and fields["rule"] == request.rule else None


def _leave_index(request: ScanRequest, scan: ShardScan) -> bool:
    """Write the index to the work folder, unless the one next to the shard is the same."""
    return _leave_index_bytes(request, encode_tar_index(scan.offsets))


def _leave_index_bytes(request: ScanRequest, content: bytes) -> bool:
    present = Path(request.present_index or tar_index_path(request.path))
    try:
        if present.stat().st_size == len(content) and present.read_bytes() == content:
            return False
    except OSError:
        pass
    replace_file(request.new_index, content)
    return True
