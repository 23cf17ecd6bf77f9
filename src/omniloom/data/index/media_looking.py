"""Looking at the media of a data set: what there is to look at, by whom, and where what was found is written."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from omniloom.data.index.info import is_prepared, read_info
from omniloom.data.index.layout import MAIN_FOLDER
from omniloom.data.index.media_extract import (
    FilesRequest,
    MediaFault,
    MediaSource,
    ShardRequest,
    media_of_files,
    media_of_shard,
)
from omniloom.data.index.media_filter import MediaFilterConfig
from omniloom.data.index.media_tables import create_media_tables, insert_sources
from omniloom.data.index.omniloom_json import read_omniloom_info
from omniloom.data.index.parallel_work import Request, Result, in_order
from omniloom.data.index.place import place_of
from omniloom.data.index.sqlite_errors import SQLITE_ERRORS
from omniloom.data.shards.archive_file import mark_at
from omniloom.errors import StorageError
from omniloom.storage.files import remove_file, storage_error
from omniloom.storage.open import open_store
from omniloom.storage.urls import is_url, join_url, relative_to

_FILES_AT_ONCE = 64
_COMMIT_SECONDS = 2.0


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


@dataclass(frozen=True)
class How:
    """Who does the work."""

    executor: Executor | None
    num_workers: int

    def run(
        self, work: Callable[[Request], Result], requests: Sequence[Request], *, in_store: bool
    ) -> Iterator[Result]:
        """Do it, in the order of the requests."""
        return in_order(work, requests, executor=self.executor, num_workers=self.num_workers, in_threads=in_store)


class Ledger:
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
        self.total = total
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
            self._callback(MediaProgress(self._done, self.total, self.rows, len(self.faults)))

    def commit(self) -> None:
        """Make sure that what was found is on the disk."""
        self._database.commit()
        self._committed = time.monotonic()


class Sources(NamedTuple):
    """What can be looked at.

    Attributes:
        root: the data set or folder.
        shards_root: folder that the names are relative to.
        names: shards, or files that can be media.
        all_names: names of all files; ``None`` for shards.
        media_filter: which members or files are media.
    """

    root: str
    shards_root: str
    names: list[str]
    all_names: set[str] | None
    media_filter: MediaFilterConfig

    @property
    def kind(self) -> str:
        """``webdataset`` or ``filesystem``."""
        return "webdataset" if self.all_names is None else "filesystem"


def sources_of(root: str, media_filter: MediaFilterConfig) -> Sources:
    """The shards of a prepared data set, or the files of a folder. Raises DatasetError or StorageError."""
    if is_prepared(root):
        return Sources(root, place_of(root).shards, list(read_info(root).shard_counts), None, media_filter)
    return Sources(root, root, *_files_to_look_at(root, media_filter), media_filter)


def look_at(
    sources: Sources,
    names: Sequence[str],
    *,
    known: Mapping[str, tuple[int, int]],
    into: sqlite3.Connection,
    how: How,
    progress: Callable[[MediaProgress], None] | None,
) -> Ledger:
    """Look at some sources and write what is found.

    Args:
        sources: what there is.
        names: what of it is asked for.
        known: size and time of change of what an earlier run looked at: that is left out while it is the same.
        into: where it is written.
        how: who does the work.
        progress: called with a `MediaProgress`.

    Returns:
        What was counted; its ``total`` is the number of sources that were looked at.
    """
    waiting = [name for name in names if name not in known or known[name] != _mark(sources.shards_root, name)]
    ledger = Ledger(into, sources.media_filter, len(waiting), progress)
    for found in _looked_at(sources, waiting, how):
        ledger.add(found)
    ledger.commit()
    return ledger


def _files_to_look_at(root: str, media_filter: MediaFilterConfig) -> tuple[list[str], set[str]]:
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


def _looked_at(sources: Sources, names: Sequence[str], how: How) -> Iterator[list[MediaSource]]:
    root, media_filter = sources.root, sources.media_filter
    in_store = is_url(sources.shards_root)
    if sources.all_names is not None:
        groups = [tuple(names[at : at + _FILES_AT_ONCE]) for at in range(0, len(names), _FILES_AT_ONCE)]
        asked = [FilesRequest(group[0], root, group, media_filter) for group in groups]
        return how.run(media_of_files, asked, in_store=in_store)
    facts = read_omniloom_info(root)
    rule = facts.key_rule if facts is not None else "first-dot"
    requests = [ShardRequest(name, join_url(sources.shards_root, name), rule, media_filter) for name in names]
    return how.run(media_of_shard, requests, in_store=in_store)


def open_partial(path: Path) -> sqlite3.Connection:
    """A database for what is found; one that was cut short is begun anew."""
    database = sqlite3.connect(path)
    try:
        create_media_tables(database)
    except (sqlite3.DatabaseError, UnicodeDecodeError):  # cut short by a full disk or a crash: begun anew
        database.close()
        remove_file(path)
        database = sqlite3.connect(path)
        create_media_tables(database)
    return database


def open_read_only(path: Path) -> sqlite3.Connection:
    """A finished database."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)


@contextlib.contextmanager
def told_sqlite_errors(path: Path) -> Iterator[None]:
    """Raises what sqlite raises as StorageError."""
    try:
        yield
    except SQLITE_ERRORS as error:
        raise StorageError(
            f"cannot write media metadata to {path}: {error}. Check the disk and the permissions, and run the command "
            "again (what was found is kept)."
        ) from error
