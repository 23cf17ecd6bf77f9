"""Reads media metadata by key: for packers and buckets that want sizes and lengths and no media."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from omniloom.data.index.layout import DATABASE, MAIN_FOLDER
from omniloom.data.index.place import normal_root, place_of
from omniloom.data.index.sqlite_errors import SQLITE_ERRORS
from omniloom.data.media.metadata import MediaMetadataBase, deserialize_media_metadata
from omniloom.errors import DatasetError, StorageError
from omniloom.storage.urls import redacted

_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'media_metadata'"
_KEYS_AT_ONCE = 500


class MediaMetadataTable:
    """What is known of the media of a data set, by key, without opening one.

    Keys are ``<sample key>.<part>`` for shards and paths below the folder for files. Look-ups take some microseconds.
    It is pickled as its place, and opened once per process and thread, when first asked.

    Args:
        root: folder of the data set; of one in a store, a copy of its key database is kept on this machine.

    Raises:
        DatasetError: the data set has no media metadata.
        StorageError: its key database is damaged, or its store cannot be asked.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = normal_root(root)
        self._file = place_of(self.root).file(f"{MAIN_FOLDER}/{DATABASE}")
        self._opened: Any = threading.local()
        if not (self._is_there() and self._select(_TABLE, ())):
            shown = redacted(self.root)
            raise DatasetError(
                f"{shown}: has no media metadata. Make them: `omniloom prepare-media {shown} "
                "--media-metadata-by-extension`"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "_file": self._file}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._opened = threading.local()

    def __getitem__(self, key: str) -> MediaMetadataBase:
        """The record of a key. Raises KeyError where there is none."""
        found = self._select("SELECT metadata_type, metadata_json FROM media_metadata WHERE entry_key = ?", (key,))
        if not found:
            raise KeyError(key)
        return deserialize_media_metadata(*found[0])

    def __contains__(self, key: object) -> bool:
        return bool(self._select("SELECT 1 FROM media_metadata WHERE entry_key = ?", (key,)))

    def __len__(self) -> int:
        return int(self._select("SELECT count(*) FROM media_metadata", ())[0][0])

    def get(self, key: str) -> MediaMetadataBase | None:
        """The record of a key; ``None`` where there is none."""
        try:
            return self[key]
        except KeyError:
            return None

    def get_many(self, keys: Iterable[str]) -> dict[str, MediaMetadataBase]:
        """The records of those keys that have one."""
        wanted = list(keys)
        found: dict[str, MediaMetadataBase] = {}
        for at in range(0, len(wanted), _KEYS_AT_ONCE):
            some = wanted[at : at + _KEYS_AT_ONCE]
            marks = ",".join("?" * len(some))
            query = f"SELECT entry_key, metadata_type, metadata_json FROM media_metadata WHERE entry_key IN ({marks})"
            found.update((key, deserialize_media_metadata(*row)) for key, *row in self._select(query, tuple(some)))
        return found

    def items(self) -> Iterator[tuple[str, MediaMetadataBase]]:
        """All records by key, in the order of the keys."""
        last = ""
        query = (
            "SELECT entry_key, metadata_type, metadata_json FROM media_metadata WHERE entry_key > ? "
            f"ORDER BY entry_key LIMIT {_KEYS_AT_ONCE}"
        )
        while rows := self._select(query, (last,)):
            yield from ((key, deserialize_media_metadata(*row)) for key, *row in rows)
            last = rows[-1][0]

    def _is_there(self) -> bool:
        try:
            return Path(self._file.fetch()).is_file()
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return False
            raise

    def _select(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        try:
            return self._database().execute(query, values).fetchall()
        except SQLITE_ERRORS as error:
            raise StorageError(
                f"{self._file.path}: media metadata cannot be read: {error}. Make them again: `omniloom prepare-media`"
            ) from error

    def _database(self) -> sqlite3.Connection:
        # A connection must not be used after a fork, nor by two threads at once.
        if getattr(self._opened, "process", None) != os.getpid():
            address = f"{Path(self._file.fetch()).resolve().as_uri()}?mode=ro&immutable=1"
            self._opened.database = sqlite3.connect(address, uri=True)
            self._opened.process = os.getpid()
        database: sqlite3.Connection = self._opened.database
        return database


def get_media_metadata(root: str | os.PathLike[str], key: str) -> MediaMetadataBase:
    """The record of one medium of a data set; for many, keep a `MediaMetadataTable`.

    Raises:
        DatasetError: the data set has no media metadata, or none of this key.
    """
    try:
        return MediaMetadataTable(root)[key]
    except KeyError:
        raise DatasetError(
            f"{redacted(os.fspath(root))}: there are no media metadata of {json.dumps(key)}. Keys are "
            "'<sample key>.<part>' for shards, and paths below the folder for files"
        ) from None
