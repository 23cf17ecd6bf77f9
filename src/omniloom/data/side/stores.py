"""The stores: files of a folder, parts of a prepared data set by key, records of JSONL files by number."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omniloom.data.index.dataset import ShardEntry, open_shards
from omniloom.data.index.place import absolute_root
from omniloom.data.media.metadata import MediaMetadataBase
from omniloom.data.sample import SourceInfo
from omniloom.data.shards.jsonl import JSON_PART, open_jsonl
from omniloom.data.shards.keys import KeyRule, split_key
from omniloom.data.shards.rows import FileRows, RowFile
from omniloom.data.shards.tar_shard import TarShard
from omniloom.data.side.key_index import KeyIndex, ListedEntry
from omniloom.data.side.store import FileStore
from omniloom.errors import DatasetError, MissingKeyError, StorageError
from omniloom.storage.files import storage_error
from omniloom.storage.inside_store import inside_folder
from omniloom.storage.urls import name_of


class SystemFileStore(FileStore[bytes]):
    """Files of a folder by relative name. No name leads out of the folder.

    Args:
        base_dir: the folder; ``None``: keys are absolute paths, and any file can be read.
        follow_links: read through symbolic links that leave the folder; otherwise they are refused.
    """

    def __init__(self, base_dir: str | os.PathLike[str] | None = None, *, follow_links: bool = False) -> None:
        self.base_dir = None if base_dir is None else absolute_root(base_dir)
        self._folder = None if self.base_dir is None else inside_folder(self.base_dir, follow_links=follow_links)
        self._index: KeyIndex | None = None

    def __repr__(self) -> str:
        return f"SystemFileStore({self.base_dir!r})"

    def __getitem__(self, key: str) -> tuple[bytes, SourceInfo]:
        try:
            data = _read_absolute(key) if self._folder is None else self._folder.read(key)
        except StorageError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            raise MissingKeyError(f"{self.base_dir or 'file system'}: no file {key!r}", reason="missing-file") from None
        return data, SourceInfo(str(self.base_dir), key, str(self.base_dir), (key,))

    def get_path(self) -> str:
        """The folder."""
        return str(self.base_dir)

    def get_media_metadata(self, key: str) -> MediaMetadataBase:
        """What was found out about a file. Raises MissingKeyError or DatasetError where nothing was."""
        if self.base_dir is None:
            raise DatasetError("a store of the whole file system has no media metadata; give it a folder")
        if self._index is None:
            self._index = KeyIndex(self.base_dir)
        return self._index.media_metadata(key)


def _read_absolute(key: str) -> bytes:
    path = Path(key)
    if not path.is_absolute():
        raise StorageError(f"{key!r}: a store without a folder takes absolute paths only")
    try:
        return path.read_bytes()
    except OSError as error:
        raise storage_error("read", path, error) from error


class WebdatasetFileStore(FileStore[bytes]):
    """Parts of a prepared data set by full name, such as ``v1.0/0001.jpg``, through its key database.

    Shards are read as in training: one that changed since it was indexed is refused.

    Args:
        dataset_path: folder of the data set.

    Raises:
        DatasetError: it is not prepared, or has no key database.
    """

    def __init__(self, dataset_path: str | os.PathLike[str]) -> None:
        self.base_path = absolute_root(dataset_path)
        self._index = KeyIndex(self.base_path)
        self._entries: tuple[ShardEntry, ...] = ()
        self._rule: KeyRule = "first-dot"
        self._shards: dict[int, TarShard] = {}
        self._opened = False

    def __reduce__(self) -> tuple[Any, ...]:
        return WebdatasetFileStore, (self.base_path,)

    def __repr__(self) -> str:
        return f"WebdatasetFileStore({self.base_path!r})"

    def __len__(self) -> int:
        return self._index.count()

    def __getitem__(self, key: str) -> tuple[bytes, SourceInfo]:
        number, row, part = self._find(key)
        shard = self._shard(number)
        _, parts = shard.read(row, (part,))
        if part not in parts:
            raise self._missing(key)
        return parts[part], SourceInfo(self.base_path, key, shard.name, (key,))

    def get_path(self) -> str:
        """Folder of the data set."""
        return self.base_path

    def get_media_metadata(self, key: str) -> MediaMetadataBase:
        """What was found out about a part. Raises MissingKeyError or DatasetError where nothing was."""
        return self._index.media_metadata(key)

    def list_all_samples(self) -> Iterator[ListedEntry]:
        """All samples, in the order of their shards."""
        return self._index.samples()

    def list_all_sample_parts(self) -> Iterator[ListedEntry]:
        """All parts, in the order of their shards."""
        return self._index.parts()

    def list_sample_parts(self, key: str, *, slow_mode: bool = False) -> Iterator[ListedEntry]:
        """Parts of one sample, by their own names, as Energon lists them.

        Args:
            key: the sample's key.
            slow_mode: read them from the shard, for old databases without a table of parts.
        """
        if not slow_mode:
            yield from (part._replace(name=part.name[len(key) + 1 :]) for part in self._index.parts(key))
            return
        for number, row in self._index.places(key):
            for part, span in self._shard(number).spans(row)[1].items():
                yield ListedEntry(part, span.stop - span.start, number)

    def get_total_size(self) -> int:
        """Length of all samples in bytes, with headers."""
        return self._index.total_bytes()

    def close(self) -> None:
        """Close shards and database; the next question opens them again."""
        for shard in self._shards.values():
            shard.close()
        self._shards = {}
        self._index.close()

    def _find(self, key: str) -> tuple[int, int, str]:
        """Number of the shard, row and part of a full name."""
        self._open()
        halves = split_key(key, self._rule)
        found = self._index.places(halves[0]) if halves else []
        if halves is None or not found:
            raise self._missing(key)
        if len(found) > 1:
            places = " and ".join(f"{self._entries[number].name} (row {row:,})" for number, row in found)
            raise MissingKeyError(
                f"{self.base_path}: the key {halves[0]!r} is ambiguous: it is in {places}. Make keys unique with "
                "`omniloom prepare --fix-duplicates`.",
                reason="ambiguous-key",
            )
        return *found[0], halves[1]

    def _missing(self, key: str) -> MissingKeyError:
        return MissingKeyError(f"{self.base_path}: no part has the name {key!r}", reason="missing-key")

    def _open(self) -> None:
        if not self._opened:
            self._entries, self._rule = open_shards(self.base_path)
            self._opened = True

    def _shard(self, number: int) -> TarShard:
        self._open()
        shard = self._shards.get(number)
        if shard is None:
            if number >= len(self._entries):
                raise DatasetError(
                    f"{self.base_path}: the key database lists more shards than .info.json. Make both again: "
                    f"`omniloom prepare {self.base_path}`."
                )
            shard = self._shards[number] = self._entries[number].open(self._rule)
        return shard


class RowsFileStore(FileStore[bytes]):
    """Parts of any rows of files by ``<key>.<part>``.

    Args:
        rows: the rows.
        path: where they lie.
    """

    def __init__(self, rows: FileRows, path: str) -> None:
        self.rows = rows
        self.path = path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: str) -> tuple[bytes, SourceInfo]:
        name, _, part = self._halves(key)
        try:
            row = self.rows.row_of(name)
        except KeyError:
            raise self._missing(key) from None
        raw = self.rows.read(row)
        if part not in raw.parts:
            raise self._missing(key)
        return raw.parts[part], SourceInfo(self.path, row, raw.shard, (f"{raw.name}.{part}",))

    def get_path(self) -> str:
        """Where the rows lie."""
        return self.path

    def _halves(self, key: str) -> tuple[str, str, str]:
        dot = key.find(".", key.rfind("/") + 1)
        return (key[:dot], ".", key[dot + 1 :]) if dot >= 0 else (key, "", "")

    def _missing(self, key: str) -> MissingKeyError:
        return MissingKeyError(f"{self.path}: no part has the name {key!r}", reason="missing-key")


class JsonlFileStore(RowsFileStore):
    """Records of a JSONL file by number: ``"3.json"``, ``"3"`` or ``3``.

    Args:
        jsonl_path: the file; its index beside it is used where there is one.
    """

    def __init__(self, jsonl_path: str | os.PathLike[str]) -> None:
        path = absolute_root(jsonl_path)
        super().__init__(open_jsonl([RowFile(name_of(path), path, 0)]), path)

    def __getitem__(self, key: str | int) -> tuple[bytes, SourceInfo]:
        text = str(key)
        return super().__getitem__(text if text.endswith(f".{JSON_PART}") else f"{text}.{JSON_PART}")

    def list_all_samples(self) -> Iterator[ListedEntry]:
        """All records, by their numbers."""
        return (ListedEntry(str(row), self._size_of(row), 0) for row in range(len(self)))

    def list_all_sample_parts(self) -> Iterator[ListedEntry]:
        """The same by the full names of their parts, ``<number>.json``."""
        return (entry._replace(name=f"{entry.name}.{JSON_PART}") for entry in self.list_all_samples())

    def list_sample_parts(self, key: str | int) -> Iterator[ListedEntry]:
        """The one part of a record, by its full name, as Energon lists it. Raises MissingKeyError."""
        try:
            row = self.rows.row_of(str(key))
        except KeyError:
            raise self._missing(str(key)) from None
        yield ListedEntry(f"{key}.{JSON_PART}", self._size_of(row), 0)

    def get_total_size(self) -> int:
        """Length of all records in bytes, with what lies between them."""
        return sum(entry.size_bytes for entry in self.list_all_samples())

    def close(self) -> None:
        """Nothing is held open."""

    def _size_of(self, row: int) -> int:
        _, span = self.rows.origin(row)
        return 0 if span is None else span[1] - span[0]
