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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from omniloom.data.index.info import is_prepared
from omniloom.data.index.layout import DATABASE, MAIN_FOLDER, MEDIA_PARTIAL, meta_name, meta_path
from omniloom.data.index.media_extract import MediaFault
from omniloom.data.index.media_filter import MediaFilterConfig
from omniloom.data.index.media_looking import (
    How,
    look_at,
    open_partial,
    open_read_only,
    sources_of,
    told_sqlite_errors,
)
from omniloom.data.index.media_looking import MediaProgress as MediaProgress  # noqa: PLC0414 - others import it from here
from omniloom.data.index.media_shares import remove_shares, take_shares_in
from omniloom.data.index.media_tables import (
    SOURCES_TABLE,
    create_media_tables,
    insert_filter,
    known_sources,
)
from omniloom.data.index.mirror import refresh, renew
from omniloom.data.index.place import normal_root
from omniloom.data.index.work_folder import move_file, open_work_folder
from omniloom.errors import DatasetError
from omniloom.storage.files import file_exists, folder_exists, remove_file, storage_error
from omniloom.storage.node_copy import copy_here, copy_there, node_cache
from omniloom.storage.urls import is_url, join_url, redacted

DEFAULT_WORKERS = 16
_ALL_KEYS = """SELECT s.sample_key || '.' || p.part_name FROM samples s
    JOIN sample_parts p ON p.tar_file_id = s.tar_file_id AND p.sample_index = s.sample_index"""


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
            how=How(executor, num_workers),
            tmp_path=tmp_path,
            progress=progress,
        )
    remove_shares(root, media_filter)
    return prepared


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
    how: How,
    tmp_path: str | os.PathLike[str] | None,
    progress: Callable[[MediaProgress], None] | None,
) -> MediaPrepared:
    target = meta_path(local, DATABASE)
    check_database(root, target)
    sources = sources_of(root, media_filter)
    with told_sqlite_errors(target), open_work_folder(local) as work:
        partial_path = meta_path(local, MEDIA_PARTIAL)
        with contextlib.closing(open_partial(partial_path)) as partial:
            take_shares_in(root, partial, media_filter)
            known = known_sources(partial, media_filter)
            if target.is_file():
                with contextlib.closing(open_read_only(target)) as former:
                    known = {**known_sources(former, media_filter), **known}
            ledger = look_at(sources, sources.names, known=known, into=partial, how=how, progress=progress)
        built = Path(tmp_path or work, DATABASE)
        _copy(target, built)
        rows_total = _assemble(built, partial_path, media_filter, names=sources.names, all_names=sources.all_names)
        if not rows_total:
            remove_file(built)
            raise DatasetError(f"{redacted(root)}: not one medium was found by {_described(media_filter)}")
        move_file(built, target, mode=(Path(local).stat().st_mode & 0o666) | 0o600)
        remove_file(partial_path)
    return MediaPrepared(
        root=root,
        kind=sources.kind,
        rows=ledger.rows,
        rows_total=rows_total,
        looked_at=ledger.total,
        unchanged=len(sources.names) - ledger.total,
        faults=tuple(ledger.faults),
    )


def check_database(root: str, target: Path) -> None:
    """See that a prepared data set has the database that media metadata are added to. Raises DatasetError."""
    if is_prepared(root) and not target.is_file():
        shown = redacted(root)
        raise DatasetError(
            f"{meta_name(root, DATABASE)}: there is no key database, which media metadata are added to. Run `omniloom "
            f"prepare {shown}` without --no-sqlite first."
        )


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


def _described(media_filter: MediaFilterConfig) -> str:
    how = media_filter.strategy.value.lower()
    return f"the patterns {media_filter.patterns_text!r}" if media_filter.patterns else how
