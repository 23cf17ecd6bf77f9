"""Adds sizes and lengths of media to the index of a data set: in parallel, and only of what is new.

What is found goes to a database of its own, ``.nv-meta/media.partial``, as it is found: after an interruption the next
run goes on there. At the end ``index.sqlite`` is made anew beside the old one and put in its place in one step.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from omniloom.data.index.info import is_prepared, read_info
from omniloom.data.index.layout import DATABASE, MAIN_FOLDER, MEDIA_PARTIAL, meta_name, meta_path
from omniloom.data.index.media_extract import (
    FilesRequest,
    MediaFault,
    MediaSource,
    ShardRequest,
    media_of_files,
    media_of_shard,
)
from omniloom.data.index.media_filter import MediaFilterConfig
from omniloom.data.index.media_tables import (
    SOURCES_TABLE,
    create_media_tables,
    insert_filter,
    insert_sources,
    known_sources,
)
from omniloom.data.index.mirror import refresh, renew
from omniloom.data.index.omniloom_json import read_omniloom_info
from omniloom.data.index.parallel_work import Request, Result, in_order
from omniloom.data.index.place import normal_root, place_of
from omniloom.data.index.sqlite_errors import SQLITE_ERRORS
from omniloom.data.index.work_folder import move_file, open_work_folder
from omniloom.data.shards.archive_file import mark_at
from omniloom.errors import DatasetError, StorageError
from omniloom.storage.files import file_exists, folder_exists, remove_file, storage_error
from omniloom.storage.node_copy import copy_here, copy_there, node_cache
from omniloom.storage.open import open_store
from omniloom.storage.urls import is_url, join_url, redacted, relative_to

DEFAULT_WORKERS = 16
_FILES_AT_ONCE = 64
_COMMIT_SECONDS = 2.0
_ALL_KEYS = """SELECT s.sample_key || '.' || p.part_name FROM samples s
    JOIN sample_parts p ON p.tar_file_id = s.tar_file_id AND p.sample_index = s.sample_index"""


class MediaProgress(NamedTuple):
    """How far it is; given to the callback after each shard or group of files.

    Attributes:
        sources: shards or files that are done.
        sources_total: shards or files that have to be looked at.
        rows: media found so far.
        faults: media of which nothing could be found out.
    """

    sources: int
    sources_total: int
    rows: int
    faults: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaPrepared:
    """What was found and written.

    Attributes:
        root: folder of the data set.
        kind: ``webdataset`` or ``filesystem``.
        rows: media found in this run.
        rows_total: media in the index now.
        looked_at: shards or files that were looked at in this run.
        unchanged: shards or files that an earlier run had looked at.
        faults: media of which nothing could be found out in this run.
    """

    root: str
    kind: str
    rows: int
    rows_total: int
    looked_at: int
    unchanged: int
    faults: tuple[MediaFault, ...]


def add_media_metadata(
    root: str | os.PathLike[str],
    *,
    media_filter: MediaFilterConfig,
    num_workers: int = DEFAULT_WORKERS,
    executor: Executor | None = None,
    tmp_path: str | os.PathLike[str] | None = None,
    progress: Callable[[MediaProgress], None] | None = None,
) -> MediaPrepared:
    """Find out sizes and lengths of the media of a prepared data set, or of a folder of files, and index them.

    Args:
        root: a prepared data set (its shards are read) or any other folder (its files are read, those of hidden
            folders excepted).
        media_filter: which members are media.
        num_workers: processes at most, never more than processors; 0 or 1 works in this process.
        executor: works there instead; its workers have to see the same files.
        tmp_path: folder in which to build ``index.sqlite``, when the data set's own disk is slow.
        progress: called with a `MediaProgress`.

    Raises:
        DatasetError: no such folder, no medium in it, or a data set that was prepared without a key database.
        ShardError: a shard is no sound archive.
        StorageError: something cannot be read or written. ``index.sqlite`` is as it was.
        WorkerError: a process was killed.
    """
    root = normal_root(root)
    if not folder_exists(root):
        raise DatasetError(f"{redacted(root)}: expected a folder: a prepared data set, or one with media files")
    with _kept_here(root) as local:
        prepared = _add(
            root,
            local,
            media_filter=media_filter,
            how=_How(executor, num_workers),
            tmp_path=tmp_path,
            progress=progress,
        )
    return prepared


@dataclass(frozen=True)
class _How:
    """Who does the work."""

    executor: Executor | None
    num_workers: int

    def run(
        self, work: Callable[[Request], Result], requests: Sequence[Request], *, in_store: bool
    ) -> Iterator[Result]:
        """Do it, in the order of the requests."""
        return in_order(work, requests, executor=self.executor, num_workers=self.num_workers, in_threads=in_store)


@contextlib.contextmanager
def _kept_here(root: str) -> Iterator[str]:
    """A folder of this machine with the key database in its ``.nv-meta``, which goes back to the store at the end."""
    if not is_url(root):
        yield root
        return
    folder = node_cache("stages", hashlib.sha256(root.encode()).hexdigest()[:24] + "-media")
    database = folder / MAIN_FOLDER / DATABASE
    url = join_url(root, f"{MAIN_FOLDER}/{DATABASE}")
    refresh(root)
    remove_file(database)
    if file_exists(url):
        copy_here(url, database)
    folder.mkdir(parents=True, exist_ok=True)
    yield str(folder)
    copy_there(database, url)
    renew(root)
    shutil.rmtree(folder, ignore_errors=True)


def _add(
    root: str,
    local: str,
    *,
    media_filter: MediaFilterConfig,
    how: _How,
    tmp_path: str | os.PathLike[str] | None,
    progress: Callable[[MediaProgress], None] | None,
) -> MediaPrepared:
    is_webdataset = is_prepared(root)
    target = meta_path(local, DATABASE)
    if is_webdataset and not target.is_file():
        shown = redacted(root)
        raise DatasetError(
            f"{meta_name(root, DATABASE)}: there is no key database, which media metadata are added to. Run `omniloom "
            f"prepare {shown}` without --no-sqlite first."
        )
    shards_root = place_of(root).shards if is_webdataset else root
    with _sqlite_errors(target), open_work_folder(local) as work:
        partial_path = meta_path(local, MEDIA_PARTIAL)
        names, all_names = (_shards(root), None) if is_webdataset else _files(root, media_filter)
        with contextlib.closing(_open_partial(partial_path)) as partial:
            known = known_sources(partial, media_filter)
            if target.is_file():
                with contextlib.closing(_open_read_only(target)) as former:
                    known = {**known_sources(former, media_filter), **known}
            waiting = [name for name in names if name not in known or known[name] != _mark(shards_root, name)]
            ledger = _Ledger(partial, media_filter, len(waiting), progress)
            for sources in _results(root, shards_root, waiting, media_filter, how, shards=is_webdataset):
                ledger.add(sources)
            ledger.commit()
        built = Path(tmp_path or work, DATABASE)
        _copy(target, built)
        rows_total = _assemble(built, partial_path, media_filter, names=names, all_names=all_names)
        if not rows_total:
            remove_file(built)
            raise DatasetError(f"{redacted(root)}: not one medium was found by {_described(media_filter)}")
        move_file(built, target, mode=(Path(local).stat().st_mode & 0o666) | 0o600)
        remove_file(partial_path)
    return MediaPrepared(
        root=root,
        kind="webdataset" if is_webdataset else "filesystem",
        rows=ledger.rows,
        rows_total=rows_total,
        looked_at=len(waiting),
        unchanged=len(names) - len(waiting),
        faults=tuple(ledger.faults),
    )


class _Ledger:
    """Writes what is found, and counts it."""

    def __init__(
        self,
        database: sqlite3.Connection,
        media_filter: MediaFilterConfig,
        total: int,
        callback: Callable[[MediaProgress], None] | None,
    ) -> None:
        self.rows = 0
        self.faults: list[MediaFault] = []
        self._database = database
        self._filter = media_filter
        self._total = total
        self._callback = callback
        self._done = 0
        self._committed = time.monotonic()

    def add(self, sources: Sequence[MediaSource]) -> None:
        """Take results in."""
        insert_sources(self._database, sources, self._filter)
        self._done += len(sources)
        for source in sources:
            self.rows += len(source.rows)
            self.faults += source.faults
        if time.monotonic() - self._committed > _COMMIT_SECONDS:
            self.commit()
        if self._callback is not None:
            self._callback(MediaProgress(self._done, self._total, self.rows, len(self.faults)))

    def commit(self) -> None:
        """Make sure that what was found is on the disk."""
        self._database.commit()
        self._committed = time.monotonic()


def _shards(root: str) -> list[str]:
    return list(read_info(root).shard_counts)


def _files(root: str, media_filter: MediaFilterConfig) -> tuple[list[str], set[str]]:
    """Names of the files that can be media, sorted, and those of all files."""
    names: set[str] = set()
    if is_url(root):
        below = (relative_to(url, root) for url in open_store(root).list(root))
        names.update(name for name in below if not any(one.startswith(".") for one in name.split("/")[:-1]))
    else:
        for folder, folders, files in os.walk(root, followlinks=True, onerror=_refuse):
            folders[:] = [name for name in folders if not name.startswith(".")]
            inside = os.path.relpath(folder, root)
            names.update(name if inside == "." else f"{inside}/{name}" for name in files)
    names = {name for name in names if _is_text(name)}
    return sorted(name for name in names if media_filter.should_consider_media(name)), names


def _refuse(error: OSError) -> None:
    raise storage_error("list", error.filename or "a folder", error) from error


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return not name.startswith(f"{MAIN_FOLDER}/")


def _mark(root: str, name: str) -> tuple[int, int] | None:
    try:
        mark = mark_at(join_url(root, name))
    except OSError:
        return None
    return mark.size_bytes, mark.mtime_ns


def _results(
    root: str, shards_root: str, names: Sequence[str], media_filter: MediaFilterConfig, how: _How, *, shards: bool
) -> Iterator[list[MediaSource]]:
    in_store = is_url(shards_root)
    if not shards:
        groups = [tuple(names[at : at + _FILES_AT_ONCE]) for at in range(0, len(names), _FILES_AT_ONCE)]
        asked = [FilesRequest(group[0], root, group, media_filter) for group in groups]
        return how.run(media_of_files, asked, in_store=in_store)
    facts = read_omniloom_info(root)
    rule = facts.key_rule if facts is not None else "first-dot"
    requests = [ShardRequest(name, join_url(shards_root, name), rule, media_filter) for name in names]
    return how.run(media_of_shard, requests, in_store=in_store)


def _copy(target: Path, built: Path) -> None:
    remove_file(built)
    if target.is_file():
        try:
            built.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, built)
        except OSError as error:
            raise storage_error("write", built, error) from error


def _assemble(
    built: Path, partial: Path, media_filter: MediaFilterConfig, *, names: Sequence[str], all_names: set[str] | None
) -> int:
    """Add what was found to a copy of the index, and take out what is gone; returns how many media it holds then."""
    with contextlib.closing(sqlite3.connect(built, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=OFF")  # the file is built under a temporary name
        database.execute("PRAGMA synchronous=OFF")
        database.execute("BEGIN")
        create_media_tables(database)
        insert_filter(database, media_filter)
        database.execute("CREATE TEMP TABLE present (name TEXT PRIMARY KEY)")
        database.executemany("INSERT INTO present VALUES (?)", ((name,) for name in (all_names or names)))
        database.execute("COMMIT")
        database.execute("ATTACH ? AS found", (str(partial),))
        database.execute("BEGIN")
        for table in ("media_metadata", SOURCES_TABLE):
            database.execute(f"INSERT OR REPLACE INTO main.{table} SELECT * FROM found.{table}")
        keys = _ALL_KEYS if all_names is None else "SELECT name FROM present"
        database.execute(f"DELETE FROM media_metadata WHERE entry_key NOT IN ({keys})")
        database.execute(f"DELETE FROM {SOURCES_TABLE} WHERE source NOT IN (SELECT name FROM present)")
        database.execute("COMMIT")
        return int(database.execute("SELECT count(*) FROM media_metadata").fetchone()[0])


def _open_partial(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    try:
        create_media_tables(database)
    except (sqlite3.DatabaseError, UnicodeDecodeError):  # cut short by a full disk or a crash: begun anew
        database.close()
        remove_file(path)
        database = sqlite3.connect(path)
        create_media_tables(database)
    return database


def _open_read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)


@contextlib.contextmanager
def _sqlite_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except SQLITE_ERRORS as error:
        raise StorageError(
            f"cannot write media metadata to {path}: {error}. Check the disk and the permissions, and run the command "
            "again (what was found is kept)."
        ) from error


def _described(media_filter: MediaFilterConfig) -> str:
    how = media_filter.strategy.value.lower()
    return f"the patterns {media_filter.patterns_text!r}" if media_filter.patterns else how
