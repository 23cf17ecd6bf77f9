"""Prepares a data set: scans its shards and writes the sidecar that the loader and Energon read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from omniloom.data.index.info import is_prepared, read_info
from omniloom.data.index.layout import DATABASE, SPLIT_YAML
from omniloom.data.index.place import absolute_root, normal_root
from omniloom.data.index.scanning import ScanDone, ShardFault, scan_all
from omniloom.data.index.sidecar import DuplicateKeyPolicy, Prepared, SidecarBuilder
from omniloom.data.index.sources import find_sources, list_shards, named_shards, refuse_compressed
from omniloom.data.index.split_plan import plan_splits
from omniloom.data.index.work_folder import open_work_folder
from omniloom.data.shards.keys import KEY_RULES, KeyRule
from omniloom.data.shards.scan import DuplicatePolicy
from omniloom.errors import BadShardsError, ConfigError, DatasetError, StorageError
from omniloom.storage.urls import is_url, redacted

if TYPE_CHECKING:
    from omniloom.data.index.stage import Stage

DEFAULT_WORKERS = 16
_FAULTS_SHOWN = 20


class Progress(NamedTuple):
    """How far a preparation is; given to the callback after each shard, and before the first.

    Attributes:
        shards: shards that are done.
        shards_total: shards there are.
        samples: samples found so far.
        size_bytes: size of the shards that are done.
        size_bytes_total: size of all shards.
        reused: shards whose earlier scan still held.
        bad: shards that cannot be used.
        phase: ``scan``, and ``write`` once all shards are done.
    """

    shards: int
    shards_total: int
    samples: int
    size_bytes: int
    size_bytes_total: int
    reused: int
    bad: int
    phase: str


def prepare_dataset(
    root: str | os.PathLike[str],
    *,
    shards: Sequence[str] | None = None,
    exclude: str | None = None,
    split_ratio: str | Mapping[str, float] | None = None,
    split_parts: Sequence[str] | None = None,
    split_config: str = SPLIT_YAML,
    shuffle_seed: int | None = None,
    keep_split: bool = False,
    num_workers: int = DEFAULT_WORKERS,
    executor: Executor | None = None,
    rule: KeyRule = "first-dot",
    on_duplicate: DuplicatePolicy = "error",
    duplicate_keys: DuplicateKeyPolicy = "allow",
    skip_bad_shards: bool = False,
    sqlite: bool = True,
    tar_index_only: bool = False,
    tmp_path: str | os.PathLike[str] | None = None,
    meta_path: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Prepared:
    """Index a folder of shards, or bring its index up to date.

    Each shard is scanned once; a finished scan is kept in ``.nv-meta`` and holds while size, time of change and key
    rule of the shard stay the same. So an interrupted run goes on where it was, and only new shards are scanned.

    Args:
        root: the folder, a path or URL.
        shards: names of the shards, brace patterns allowed; ``None`` takes every ``*.tar`` below the folder, sorted.
        exclude: a regular expression; shards whose name holds a match are left out.
        split_ratio: shares of train, val and test as ``8,1,1``, or of any parts as a mapping. Shards are dealt anew in
            their order at each run; with ``keep_split`` only new shards are. Default: all to ``train``.
        split_parts: ``part:pattern`` texts instead, see `splits.parse_part_patterns`.
        split_config: name of the split file.
        shuffle_seed: shuffle the shards before they are dealt by ratio.
        keep_split: leave each known shard in its part, and excludes as they are.
        num_workers: scanning processes at most, never more than processors; 0 or 1 scans in this process. For shards in
            a store it is threads, which mostly wait.
        executor: scans there instead, see `executors`; its workers have to see the shards, and nothing else of this
            machine. Who scans a shard makes no difference to what is written.
        rule: how names of members are split into key and part.
        on_duplicate: what becomes of two parts of one name in a sample: refuse the shard, keep the first or the last.
        duplicate_keys: what becomes of a key in several shards: allow and count it, or refuse the data set.
        skip_bad_shards: leave shards that cannot be used out; otherwise they fail the run, after all were scanned.
        sqlite: whether to make ``index.sqlite``, which finds samples by key. Training does not need it.
        tar_index_only: renew only the index files of the shards in ``.info.json``; no splits, no counts.
        tmp_path: folder in which to build ``index.sqlite``, when the data set's own disk is slow.
        meta_path: folder, a path or URL, for the sidecar and the indexes of a data set that must not be written to; it
            is the path by which the data set is opened then.
        progress: called with a `Progress`.

    Raises:
        BadShardsError: shards cannot be used; ``.faults`` lists them.
        DatasetError: no shards, no samples, an empty split part, a key twice where that is refused.
        ConfigError: an argument is unusable.
        StorageError: a folder is unreadable or the disk is full. Nothing is half written.
        WorkerError: a scanning process was killed.
    """
    if rule not in KEY_RULES:
        raise ConfigError(f"rule={rule!r}: expected one of {list(KEY_RULES)}.")
    root, target = places(root, meta_path)
    names = shard_names(root, shards, exclude, target=target, tar_index_only=tar_index_only, skip=skip_bad_shards)
    plan = None
    if not tar_index_only:
        plan = plan_splits(
            target,
            split_ratio=split_ratio,
            split_parts=split_parts,
            split_config=split_config,
            shuffle_seed=shuffle_seed,
            keep_split=keep_split,
        )
        plan.deal(names)  # fails now rather than after hours of scanning, if it is going to fail
    with _build_folder(tmp_path) as database_path, _opened_stage(root, target, with_database=sqlite) as stage:
        with open_work_folder(root if stage is None else stage.folder) as work:
            builder = SidecarBuilder(
                root if stage is None else stage.folder, work=work, rule=rule, on_duplicate=on_duplicate, sqlite=sqlite,
                database_path=database_path, elsewhere=None if stage is None else stage.elsewhere(),
            )  # fmt: skip
            try:
                meter = _Meter(root, names, progress)
                requests = [builder.request(name) for name in names]
                _scan_all(builder, meter, scan_all(requests, executor=executor, num_workers=num_workers))
                if meter.faults and not skip_bad_shards:
                    raise _bad_shards(target, meter.faults, len(names))
                meter.report(phase="write")
                prepared = builder.commit(plan, split_config=split_config, duplicate_keys=duplicate_keys)
            except BaseException:
                builder.discard()
                raise
        if stage is not None:
            stage.publish(builder.done, all_indexes=tar_index_only)
    return prepared


def places(root: str | os.PathLike[str], meta_path: str | os.PathLike[str] | None) -> tuple[str, str]:
    """The folder of the shards and the folder that their sidecar belongs to, as paths or URLs."""
    shards = normal_root(root)
    if meta_path is None:
        return shards, shards
    return absolute_root(root), absolute_root(meta_path)


@contextmanager
def _opened_stage(root: str, target: str, *, with_database: bool) -> Iterator[Stage | None]:
    """Where the sidecar is made; ``None``: beside its shards."""
    if target == root and not is_url(root):
        yield None
        return
    from omniloom.data.index.stage import open_stage  # noqa: PLC0415 - local sets need none

    with open_stage(root, target, with_database=with_database) as stage:
        yield stage


def shard_names(
    root: str,
    patterns: Sequence[str] | None,
    exclude: str | None,
    *,
    target: str,
    tar_index_only: bool = False,
    skip: bool = False,
) -> list[str]:
    """The shards that are to be indexed, in their order. See `prepare_dataset` for the arguments and errors."""
    shown = redacted(root)
    if tar_index_only and not is_prepared(target):
        raise DatasetError(
            f"{shown}: is not prepared, so there is no list of shards to index. Run `omniloom prepare {shown}` "
            "without --tar-index-only."
        )
    if tar_index_only:
        return list(read_info(target).shard_counts)
    if patterns is not None:
        return named_shards(root, patterns)
    sources = find_sources(root, exclude=exclude)
    if sources.compressed and not (skip and sources.shards):
        raise refuse_compressed(root, sources.compressed)
    if not sources.shards:
        left = " once --exclude has left some out" if exclude else ""
        raise DatasetError(f"{shown}: there is no *.tar file below this folder{left}. Check the path.")
    return sources.shards


class _Meter:
    """Counts what is done and tells the callback."""

    def __init__(
        self, root: str | os.PathLike[str], names: Sequence[str], callback: Callable[[Progress], None] | None
    ) -> None:
        self.faults: list[ShardFault] = []
        self._callback = callback
        self._shards_total = len(names)
        self._sizes = _sizes_of(root, names) if callback else {}
        self._size_bytes_total = sum(self._sizes.values())
        self._shards = self._samples = self._size_bytes = self._reused = 0
        self.report(phase="scan")

    def count(self, outcome: ScanDone | ShardFault) -> None:
        """Take one finished shard into account."""
        self._shards += 1
        self._size_bytes += self._sizes.get(outcome.shard, 0)
        if isinstance(outcome, ShardFault):
            self.faults.append(outcome)
        else:
            self._samples += outcome.summary.samples
            self._reused += outcome.reused
        self.report(phase="scan")

    def report(self, *, phase: str) -> None:
        """Call the callback."""
        if self._callback is not None:
            self._callback(
                Progress(
                    shards=self._shards,
                    shards_total=self._shards_total,
                    samples=self._samples,
                    size_bytes=self._size_bytes,
                    size_bytes_total=self._size_bytes_total,
                    reused=self._reused,
                    bad=len(self.faults),
                    phase=phase,
                )
            )


def _scan_all(builder: SidecarBuilder, meter: _Meter, outcomes: Iterator[ScanDone | ShardFault]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, ShardFault):
            builder.leave_out(outcome)
        else:
            builder.add(outcome)
        meter.count(outcome)


def _bad_shards(root: str | os.PathLike[str], faults: Sequence[ShardFault], shards: int) -> BadShardsError:
    lines = [f"  [{fault.reason}] {fault.message}" for fault in faults[:_FAULTS_SHOWN]]
    if len(faults) > _FAULTS_SHOWN:
        lines.append(f"  and {len(faults) - _FAULTS_SHOWN:,} more")
    return BadShardsError(
        f"{redacted(os.fspath(root))}: {len(faults):,} of {shards:,} shards cannot be used; nothing was written but "
        "the finished scans of the others. Mend or remove these shards, or leave them out with --skip-bad-shards:\n"
        + "\n".join(lines),
        faults=tuple(faults),
    )


def _sizes_of(root: str | os.PathLike[str], names: Sequence[str]) -> dict[str, int]:
    """Sizes of shards in bytes; 0 for one that cannot be looked at."""
    if isinstance(root, str) and is_url(root):
        try:
            return {entry.url: entry.size_bytes for entry in list_shards(root)}
        except StorageError:
            return {}  # a web server that lists nothing: shards count alike
    return {name: _size_bytes(Path(root, name)) for name in names}


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@contextmanager
def _build_folder(tmp_path: str | os.PathLike[str] | None) -> Iterator[Path | None]:
    """Where to build the key database, if not in the work folder."""
    if tmp_path is None:
        yield None
        return
    import tempfile  # noqa: PLC0415 - rarely needed, and slow to import

    Path(tmp_path).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tmp_path, prefix="omniloom-") as folder:
        yield Path(folder, DATABASE)
