"""A share of a preparation, for machines that do not talk to each other: every n-th shard is scanned, and left.

Each of ``n`` processes scans the shards ``i``, ``i + n``, ... and leaves what it found in ``.nv-meta/.partial`` of the
data set, on a disk that all see or in the store. An ordinary preparation then finds all of it there and has nothing
left to read but the shards of those that were lost.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from omniloom.data.index.layout import PARTS_FOLDER, WORK_FOLDER, meta_path, parts_path
from omniloom.data.index.parallel_work import in_order
from omniloom.data.index.prepare import DEFAULT_WORKERS, places, shard_names
from omniloom.data.index.scanning import ScanDone, ScanRequest, ShardFault, scan_all, scan_one
from omniloom.data.index.shard_share import ShardRange
from omniloom.data.index.stage import Stage
from omniloom.data.shards.keys import KeyRule
from omniloom.data.shards.scan import DuplicatePolicy
from omniloom.data.shards.tar_index import tar_index_path
from omniloom.storage.node_copy import StoredFile
from omniloom.storage.open import open_store
from omniloom.storage.urls import is_url, join_url, relative_to


class RangeScanned(NamedTuple):
    """What came of a share.

    Attributes:
        shards: shards of the share.
        shards_total: shards of the data set.
        samples: samples of the share.
        reused: shards whose earlier scan still held.
        faults: shards that cannot be used.
    """

    shards: int
    shards_total: int
    samples: int
    reused: int
    faults: tuple[ShardFault, ...]


def scan_shard_range(
    root: str | os.PathLike[str],
    *,
    share: ShardRange,
    shards: Sequence[str] | None = None,
    exclude: str | None = None,
    num_workers: int = DEFAULT_WORKERS,
    executor: Executor | None = None,
    rule: KeyRule = "first-dot",
    on_duplicate: DuplicatePolicy = "error",
    skip_bad_shards: bool = False,
    meta_path: str | os.PathLike[str] | None = None,
) -> RangeScanned:
    """Scan a share of the shards of a folder and leave the scans for `prepare_dataset`.

    Arguments and errors as of `prepare_dataset`, to which the same have to be given afterwards; ``share`` says which
    shards. A shard that cannot be used is listed; whether that is an error is decided at the end.
    """
    shard_root, target = places(root, meta_path)
    names = shard_names(shard_root, shards, exclude, target=target, skip=skip_bad_shards)
    chosen = names[share.number :: share.shares]
    with tempfile.TemporaryDirectory(prefix="omniloom-range-") as folder:
        range_of = _Range(Stage(target, shard_root, Path(folder), _left(target)), folder)
        requests = [range_of.request(name, rule, on_duplicate) for name in chosen]
        outcomes = list(range_of.run(requests, executor, num_workers))
    done = [one for one in outcomes if isinstance(one, ScanDone)]
    return RangeScanned(
        shards=len(chosen),
        shards_total=len(names),
        samples=sum(one.summary.samples for one in done),
        reused=sum(one.reused for one in done),
        faults=tuple(one for one in outcomes if isinstance(one, ShardFault)),
    )


def _left(target: str) -> dict[str, int]:
    """Names and sizes of what a store has of the sidecar."""
    if not is_url(target):
        return {}
    return {relative_to(entry.url, target): entry.size_bytes for entry in open_store(target).scan(target)}


@dataclass(frozen=True)
class _Range:
    stage: Stage
    folder: str

    def request(self, shard: str, rule: KeyRule, on_duplicate: DuplicatePolicy) -> ScanRequest:
        old: tuple[str | StoredFile, ...]
        if is_url(self.stage.target):
            new, old = parts_path(f"{self.folder}/tables", shard), self.stage.elsewhere().old_tables(shard)
        else:
            new = parts_path(meta_path(self.stage.target, WORK_FOLDER, PARTS_FOLDER), shard)
            old = (new, parts_path(meta_path(self.stage.target, PARTS_FOLDER), shard))
        return ScanRequest(
            shard=shard,
            path=join_url(self.stage.shards, shard),
            rule=rule,
            on_duplicate=on_duplicate,
            new_table=new,
            old_tables=old,
            new_index=f"{self.folder}/indexes/{tar_index_path(shard)}",
            present_index=f"{self.folder}/none",
        )

    def run(
        self, requests: Sequence[ScanRequest], executor: Executor | None, num_workers: int
    ) -> Iterator[ScanDone | ShardFault]:
        if not is_url(self.stage.target):
            yield from scan_all(requests, executor=executor, num_workers=num_workers)
        elif executor is None:
            work = _ScanAndLeave(self.stage)
            yield from in_order(work, requests, executor=None, num_workers=num_workers, in_threads=True)
        else:
            for outcome in scan_all(requests, executor=executor, num_workers=num_workers):
                yield _left_in_store(self.stage, outcome)


@dataclass(frozen=True)
class _ScanAndLeave:
    """Scans a shard and uploads what was found."""

    stage: Stage

    def __call__(self, request: ScanRequest) -> ScanDone | ShardFault:
        return _left_in_store(self.stage, scan_one(request))


def _left_in_store(stage: Stage, outcome: ScanDone | ShardFault) -> ScanDone | ShardFault:
    if isinstance(outcome, ScanDone) and not outcome.reused:
        stage.leave(Path(outcome.table), outcome.shard)
    return outcome
