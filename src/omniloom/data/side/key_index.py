"""``index.sqlite`` asked by key, from any thread of any process."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from omniloom.data.index.layout import DATABASE, MAIN_FOLDER, meta_name, meta_path
from omniloom.data.index.sqlite_errors import SQLITE_ERRORS
from omniloom.data.media.metadata import MediaMetadataBase, deserialize_media_metadata
from omniloom.errors import DatasetError, MissingKeyError, StorageError
from omniloom.storage.node_copy import StoredFile
from omniloom.storage.urls import is_url, join_url, redacted


class ListedEntry(NamedTuple):
    """A sample or a part, as Energon lists them.

    Attributes:
        name: key of the sample, or ``<key>.<part>``; in a list of one sample's parts, the part.
        size_bytes: its length; of a sample, with headers.
        tar_file_id: number of its shard in ``.info.json``.
    """

    name: str
    size_bytes: int
    tar_file_id: int


class KeyIndex:
    """The key database of a data set; each thread has a connection of its own, opened when it first asks.

    Args:
        root: folder of the data set.

    Raises:
        DatasetError: it has no key database.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._path = meta_path(root, DATABASE)
        if not (self._path.is_file() or is_url(root)):
            raise self._no_database()
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._owner = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyIndex, (self.root,)

    def places(self, key: str) -> list[tuple[int, int]]:
        """(number of the shard, row in it) of every sample of a key."""
        return self._ask(
            "SELECT tar_file_id, sample_index FROM samples WHERE sample_key = ? ORDER BY 1, 2", _storable(key)
        )

    def samples(self) -> Iterator[ListedEntry]:
        """All samples, in the order of their shards."""
        rows = self._ask("SELECT sample_key, byte_size, tar_file_id FROM samples ORDER BY tar_file_id, sample_index")
        return (ListedEntry(_readable(name), size, shard) for name, size, shard in rows)

    def parts(self, key: str | None = None) -> Iterator[ListedEntry]:
        """All parts, or those of one sample."""
        one = "WHERE s.sample_key = ? " if key is not None else ""
        rows = self._ask(
            "SELECT s.sample_key, p.part_name, p.content_byte_size, p.tar_file_id FROM samples s JOIN sample_parts p "
            f"ON s.tar_file_id = p.tar_file_id AND s.sample_index = p.sample_index {one}"
            "ORDER BY p.tar_file_id, p.sample_index, p.content_byte_offset",
            *([] if key is None else [_storable(key)]),
        )
        return (ListedEntry(f"{_readable(name)}.{_readable(part)}", size, shard) for name, part, size, shard in rows)

    def spans(self, key: str) -> list[tuple[int, int, int]]:
        """(number of the shard, first byte, length with headers) of every sample of a key."""
        return self._ask("SELECT tar_file_id, byte_offset, byte_size FROM samples WHERE sample_key = ?", _storable(key))

    def part_spans(self, key: str, part: str) -> list[tuple[int, int, int]]:
        """(number of the shard, first byte, length) of the content of every part of a name of a key."""
        return self._ask(
            "SELECT p.tar_file_id, p.content_byte_offset, p.content_byte_size FROM samples s JOIN sample_parts p "
            "ON s.tar_file_id = p.tar_file_id AND s.sample_index = p.sample_index "
            "WHERE s.sample_key = ? AND p.part_name = ?",
            _storable(key),
            _storable(part),
        )

    def has_table(self, name: str) -> bool:
        """Whether the database has a table."""
        return bool(self._ask("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", name))

    def media_entry(self, entry_key: str) -> tuple[str, str] | None:
        """Type and JSON of what was found out about a medium; ``None``: nothing."""
        if not self.has_table("media_metadata"):
            return None
        query = "SELECT metadata_type, metadata_json FROM media_metadata WHERE entry_key = ?"
        return next(iter(self._ask(query, _storable(entry_key))), None)

    def count(self) -> int:
        """Number of samples."""
        return int(self._ask("SELECT count(*) FROM samples")[0][0])

    def total_bytes(self) -> int:
        """Length of all samples, with headers."""
        return int(self._ask("SELECT coalesce(sum(byte_size), 0) FROM samples")[0][0])

    def media_metadata(self, entry_key: str) -> MediaMetadataBase:
        """What was found out about a medium.

        Args:
            entry_key: ``<key>.<part>``, or the path of a file.

        Raises:
            MissingKeyError: there is none for this key.
            DatasetError: none was collected for this data set.
        """
        if not self.has_table("media_metadata"):
            raise DatasetError(
                f"{self._path}: holds no media metadata. Collect it: `omniloom prepare-media {self.root}`."
            )
        entry = self.media_entry(entry_key)
        if entry is None:
            raise MissingKeyError(
                f"{self.root}: no media metadata of {entry_key!r}. Collect it: `omniloom prepare-media {self.root}`.",
                reason="missing-metadata",
            )
        return deserialize_media_metadata(*entry)

    def close(self) -> None:
        """Close every connection; the next question opens one again."""
        for connection in self._connections:
            connection.close()
        self._connections = []
        self._local = threading.local()

    def _no_database(self) -> DatasetError:
        return DatasetError(
            f"{meta_name(self.root, DATABASE)}: there is no key database, so nothing can be read by key. Run `omniloom "
            f"prepare {redacted(self.root)}` without --no-sqlite."
        )

    def _open(self) -> sqlite3.Connection:
        """Open the database, which is brought here first where the data set lies in a store."""
        try:
            path = StoredFile(self._url, str(self._path)).fetch()
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            raise self._no_database() from error
        uri = f"{Path(path).resolve().as_uri()}?mode=ro&immutable=1"
        return sqlite3.connect(uri, uri=True, check_same_thread=False)

    @property
    def _url(self) -> str:
        name = f"{MAIN_FOLDER}/{DATABASE}"
        return join_url(self.root, name) if is_url(self.root) else str(self._path)

    def _ask(self, query: str, *values: Any) -> list[Any]:
        if self._owner != os.getpid():  # connections do not survive a fork
            self._owner, self._connections, self._local = os.getpid(), [], threading.local()
        try:
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = self._open()
                self._connections.append(connection)
            return list(connection.execute(query, values).fetchall())
        except SQLITE_ERRORS as error:
            raise StorageError(
                f"{self._path}: cannot be read: {error}. Make it again: `omniloom prepare {self.root}`."
            ) from error


def _storable(text: str) -> str | bytes:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")  # as the database holds names that are not UTF-8
    return text


def _readable(text: str | bytes) -> str:
    return text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text
