"""A share of looking at media, for machines that do not talk to each other: what each finds, until all is put together.

Each of ``n`` processes looks at the sources ``i``, ``i + n``, ... and leaves what it found as a database of its own in
``.nv-meta/media.shares``, on a disk that all see or in the store. The ordinary run then takes it in, looks at what was
lost, and removes the shares.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path

from omniloom.data.index.layout import DATABASE, MAIN_FOLDER, meta_path
from omniloom.data.index.media_filter import MediaFilterConfig
from omniloom.data.index.media_looking import (
    How,
    Ledger,
    MediaProgress,
    look_at,
    open_partial,
    open_read_only,
    sources_of,
    told_sqlite_errors,
)
from omniloom.data.index.media_tables import SOURCES_TABLE, known_sources
from omniloom.data.index.place import has_database, normal_root, place_of
from omniloom.data.index.shard_share import ShardRange
from omniloom.data.index.sqlite_errors import SQLITE_ERRORS
from omniloom.errors import DatasetError, StorageError
from omniloom.storage.files import file_exists, folder_exists, remove_file
from omniloom.storage.node_copy import copy_here, copy_there
from omniloom.storage.open import open_store
from omniloom.storage.urls import is_url, join_url, name_of, redacted

SHARES_FOLDER = "media.shares"


def look_at_share(
    root: str | os.PathLike[str],
    *,
    share: ShardRange,
    media_filter: MediaFilterConfig,
    num_workers: int,
    executor: Executor | None = None,
    progress: Callable[[MediaProgress], None] | None = None,
) -> Ledger:
    """Look at a share of the media of a data set or folder, and leave what is found for `add_media_metadata`.

    Arguments and errors as of `add_media_metadata`, to which the same have to be given afterwards; ``share`` says
    which shards or files.

    Returns:
        What was counted: ``rows``, ``faults``, and the ``total`` of sources that were looked at.
    """
    root = normal_root(root)
    if not folder_exists(root):
        raise DatasetError(f"{redacted(root)}: expected a folder: a prepared data set, or one with media files")
    sources = sources_of(root, media_filter)
    if sources.kind == "webdataset" and not has_database(root):
        raise DatasetError(f"{redacted(root)}: there is no key database. Run `omniloom prepare` without --no-sqlite.")
    name = f"{_prefix(media_filter)}{share.number}-of-{share.shares}.sqlite"
    chosen = sources.names[share.number :: share.shares]
    with (
        _share_file(root, name) as path,
        told_sqlite_errors(path),
        contextlib.closing(open_partial(path)) as found,
    ):
        known = known_sources(found, media_filter) | _known_in_index(root, media_filter)
        return look_at(sources, chosen, known=known, into=found, how=How(executor, num_workers), progress=progress)


def take_shares_in(root: str, database: sqlite3.Connection, media_filter: MediaFilterConfig) -> None:
    """Copy what shares have found with a filter into a database. A share that is damaged counts for nothing."""
    with tempfile.TemporaryDirectory(prefix="omniloom-media-") as folder:
        for number, where in enumerate(_shares(root, media_filter)):
            path = Path(folder, f"{number}.sqlite") if is_url(where) else Path(where)
            if is_url(where):
                copy_here(where, path)
            with contextlib.suppress(*SQLITE_ERRORS):
                _copy_tables(path, database)


def remove_shares(root: str, media_filter: MediaFilterConfig) -> None:
    """Remove the shares of a data set that were made with a filter: all of it is in the index."""
    for where in _shares(root, media_filter):
        if is_url(where):
            open_store(where).delete(where)
        else:
            remove_file(where)
    if not is_url(root):
        with contextlib.suppress(OSError):
            Path(root, MAIN_FOLDER, SHARES_FOLDER).rmdir()


def _prefix(media_filter: MediaFilterConfig) -> str:
    """What names of shares of a filter begin with."""
    told = f"{media_filter.strategy.value} {media_filter.patterns_text}"
    return f"{hashlib.sha256(told.encode()).hexdigest()[:8]}-"


def _copy_tables(path: Path, database: sqlite3.Connection) -> None:
    database.execute("ATTACH ? AS share", (str(path),))
    try:
        for table in ("media_metadata", SOURCES_TABLE):
            database.execute(f"INSERT OR REPLACE INTO main.{table} SELECT * FROM share.{table}")
        database.commit()
    finally:
        database.execute("DETACH share")


def _shares(root: str, media_filter: MediaFilterConfig) -> list[str]:
    """Paths or URLs of the shares of a filter that are there."""
    prefix = _prefix(media_filter)
    if is_url(root):
        try:
            entries, _ = open_store(root).entries(join_url(root, f"{MAIN_FOLDER}/{SHARES_FOLDER}"))
        except StorageError as error:
            if error.errno != errno.ENOTSUP:
                raise
            return []  # nothing was left on a web server
        return [entry.url for entry in entries if name_of(entry.url).startswith(prefix)]
    return sorted(map(str, Path(root, MAIN_FOLDER, SHARES_FOLDER).glob(f"{prefix}*.sqlite")))


def _known_in_index(root: str, media_filter: MediaFilterConfig) -> dict[str, tuple[int, int]]:
    """What the index holds already."""
    if not has_database(root):
        return {}
    path = Path(place_of(root).file(f"{MAIN_FOLDER}/{DATABASE}").fetch())
    with contextlib.closing(open_read_only(path)) as former:
        return known_sources(former, media_filter)


@contextlib.contextmanager
def _share_file(root: str, name: str) -> Iterator[Path]:
    """Where a share is written; of a data set in a store it goes there at the end."""
    if not is_url(root):
        path = meta_path(root, SHARES_FOLDER, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path
        return
    url = join_url(root, f"{MAIN_FOLDER}/{SHARES_FOLDER}/{name}")
    with tempfile.TemporaryDirectory(prefix="omniloom-media-") as folder:
        path = Path(folder, name)
        if file_exists(url):
            copy_here(url, path)
        yield path
        copy_there(path, url)
