"""`JsonlRows`: the records of JSONL files, each by its index or, without one, found at the start."""

from __future__ import annotations

import errno
import logging
import os
from array import array
from collections.abc import Sequence
from typing import Any

from omniloom.data.sample import RawSample
from omniloom.data.shards.archive_file import Archive, open_archive, read_at
from omniloom.data.shards.line_index import (
    check_size,
    line_index_path,
    offsets_without_index,
    records_in_index,
    unpack_pair,
)
from omniloom.data.shards.pool import OPEN_FILES, OpenFile, Pool
from omniloom.data.shards.rows import FileRows, RowFile
from omniloom.data.shards.tar_index import ENTRY_BYTES
from omniloom.errors import DatasetError, SkipSample, StorageError
from omniloom.storage.files import storage_error
from omniloom.storage.node_copy import kept_copy
from omniloom.storage.urls import is_url, name_of

logger = logging.getLogger("omniloom")

JSON_PART = "json"
_FILES = Pool("file", OPEN_FILES)


class LineFile:
    """Records of one file by number: read at the place that its index tells, with nothing kept in memory.

    Args:
        path: the file.
        offsets: where its records begin, and its size; ``None``: they are in the index beside it.
    """

    def __init__(self, path: str, *, offsets: array[int] | None = None) -> None:
        self.path = path
        self._offsets = offsets
        self._data: Archive | None = None
        self._index: OpenFile | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_data": None, "_index": None}

    @property
    def is_open(self) -> bool:
        """Whether `span` answers without asking a store."""
        return self._offsets is not None or self._index is not None

    def span(self, record: int) -> tuple[int, int]:
        """First byte of a record and the byte after its last."""
        if self._offsets is not None:
            return self._offsets[record], self._offsets[record + 1]
        index = self._index or self._open()[1]
        if index is None:
            raise StorageError(f"{line_index_path(self.path)}: is gone")
        path = line_index_path(self.path)
        return unpack_pair(read_at(index.descriptor, 2 * ENTRY_BYTES, record * ENTRY_BYTES, path=path), path)

    def read(self, record: int) -> bytes:
        """The bytes of a record, with the line break after it.

        Raises:
            ShardError: the file has changed since it was indexed.
            StorageError: it cannot be read.
        """
        data = self._data or self._open()[0]
        start, stop = self.span(record)
        return data.read(stop - start, start)

    def release(self, what: str) -> None:
        """Close the files; the next question opens them again (see `Pool`)."""
        self._data = self._index = None

    def _open(self) -> tuple[Archive, OpenFile | None]:
        try:
            return self._open_once()
        except StorageError as error:
            if error.errno != errno.EMFILE or not _FILES.shrink():
                raise
        return self._open_once()

    def _open_once(self) -> tuple[Archive, OpenFile | None]:
        if self._offsets is not None:
            check_size(self.path, self._offsets[-1])
        elif records_in_index(self.path) is None:
            raise DatasetError(f"{line_index_path(self.path)}: is gone. Make it: `omniloom prepare {self.path}`.")
        self._data = open_archive(self.path, shard=name_of(self.path))
        self._index = None if self._offsets is not None else _opened(str(kept_copy(line_index_path(self.path))))
        _FILES.keep(self, 2)
        return self._data, self._index


def _opened(path: str) -> OpenFile:
    try:
        return OpenFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        raise storage_error("open", path, error) from error


class JsonlRows(FileRows):
    """The records of JSONL files, laid end to end. A record is the part ``json`` of its sample.

    Keys are the numbers of the records, as Energon gives them; with several files, ``<file>/<number>``.

    Args:
        files: the files, see `open_jsonl_files`.
        offsets: where the records of files without an index begin, by path.
    """

    def __init__(self, files: Sequence[RowFile], *, offsets: dict[str, array[int]] | None = None) -> None:
        super().__init__(files)
        self._lines = [LineFile(file.path, offsets=(offsets or {}).get(file.path)) for file in self.files]

    def read(self, row: int) -> RawSample:
        """The record of a row. Raises SkipSample, ShardError or StorageError."""
        number, record = self.find_included(row)
        return RawSample(
            self.key_of(number, record), self.files[number].name, {JSON_PART: self._lines[number].read(record)}
        )

    @property
    def is_far(self) -> bool:
        """Whether the files lie in a store."""
        return is_url(self.files[0].path)

    def opened_by(self, row: int) -> int:
        """The number of the file whose index tells where a row lies."""
        return self.find(row)[0]

    def knows_places(self, row: int) -> bool:
        """Whether `places` answers without a request."""
        return self._lines[self.find(row)[0]].is_open

    def places(self, row: int) -> list[tuple[str, int, int]]:
        """The range that reading a row asks for."""
        number, record = self.find(row)
        return [(self.files[number].path, *self._lines[number].span(record))]

    def make_ready(self, row: int) -> None:
        """Nothing is left to do once the places are known."""

    def origin(self, row: int) -> tuple[str, tuple[int, int] | None]:
        """File and byte range of a row; never raises."""
        number, record = self.find(row)
        try:
            return self.files[number].name, self._lines[number].span(record)
        except (DatasetError, SkipSample, OSError):
            return self.files[number].name, None

    def parts_of_first_row(self) -> frozenset[str]:
        """The one part that every record is."""
        return frozenset((JSON_PART,))


def open_jsonl(files: Sequence[RowFile]) -> JsonlRows:
    """The rows of JSONL files, whose own count of rows is not looked at: the indexes tell it.

    Raises:
        DatasetError: a file is missing, has no index and is too large to do without, or is not JSONL.
        ShardError: an index is of another state of its file.
    """
    counted, offsets = [], {}
    for file in files:
        rows = records_in_index(file.path)
        if rows is None:
            logger.info("%s has no index; `omniloom prepare %s` makes it", file.path, file.path)
            offsets[file.path] = offsets_without_index(file.path)
            rows = len(offsets[file.path]) - 1
        counted.append(file._replace(rows=rows))
    return JsonlRows(counted, offsets=offsets)
