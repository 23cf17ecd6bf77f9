"""Any file system of fsspec as a store: ``hf://`` and whatever else has one."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

from omniloom.errors import StorageError
from omniloom.storage.backend import Got
from omniloom.storage.store import Stat
from omniloom.storage.tuning import Options
from omniloom.storage.writing import BlockWriter

_EXTRAS = {"hf": "omniloom[hub]"}
_READING = {"hf": {"cache_type": "none"}}
"""By scheme, what reading a range has to be told, where more than the range would be fetched otherwise."""
_TAG_FIELDS = (
    "ETag",
    "etag",
    "blob_id",
    "sha",
    "checksum",
    "md5",
    "last_modified",
    "mtime",
    "LastModified",
    "modified",
)


class FileSystem:
    """One authority of a scheme that fsspec knows.

    Args:
        root: ``scheme://authority``.
        options: its options; those of the client go to the file system.
    """

    def __init__(self, root: str, options: Options) -> None:
        scheme, _, authority = root.partition("://")
        extra = _EXTRAS.get(scheme, "omniloom[fsspec]")
        try:
            import fsspec  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise StorageError(f"{root}: such URLs need the extra: pip install '{extra}'") from error
        try:
            self._system: Any = fsspec.filesystem(scheme, use_listings_cache=False, **dict(options.client))
        except ImportError as error:
            raise StorageError(f"{root}: fsspec lacks what opens '{scheme}://': {error}") from error
        except ValueError as error:
            raise StorageError(f"{root}: no store for '{scheme}://', not even in fsspec: {error}") from error
        self._authority = authority
        self._reading = _READING.get(scheme, {})

    def get(self, key: str, start: int, stop: int | None) -> Got:
        """Bytes of a file."""
        path = self._path(key)
        data = self._system.cat_file(path, start=start or None, end=stop, **self._reading)
        if stop is not None and len(data) == stop - start:
            return Got(data, None)
        return Got(data, self.head(key))

    def head(self, key: str) -> Stat:
        """Size, and what the file system has for an ETag."""
        return _stat(self._system.info(self._path(key)))

    def scan(self, prefix: str) -> Iterator[tuple[str, Stat]]:
        """Keys of the files below a folder."""
        with contextlib.suppress(FileNotFoundError):
            for path, info in self._system.find(self._path(prefix), detail=True).items():
                yield self._key(path), _stat(info)

    def children(self, prefix: str) -> tuple[list[tuple[str, Stat]], list[str]]:
        """Keys directly in a folder: of files and of folders."""
        try:
            found = self._system.ls(self._path(prefix), detail=True)
        except FileNotFoundError:
            return [], []
        files = [(self._key(one["name"]), _stat(one)) for one in found if one["type"] != "directory"]
        return files, [self._key(one["name"]) for one in found if one["type"] == "directory"]

    def put(self, key: str, data: bytes) -> None:
        """Write a whole file."""
        with self.open_writer(key, 0) as writer:
            writer.write(data)

    def open_writer(self, key: str, part_bytes: int) -> FileSystemWriter:
        """Write a file under another name, renamed when it is closed."""
        return FileSystemWriter(self._system, self._path(key))

    def delete(self, key: str) -> None:
        """Remove a file."""
        self._system.rm_file(self._path(key))

    def _path(self, key: str) -> str:
        return f"{self._authority}/{key}" if self._authority else f"/{key}"

    def _key(self, path: str) -> str:
        path = str(self._system._strip_protocol(path)).lstrip("/")
        return path.removeprefix(self._authority).lstrip("/")


class FileSystemWriter(BlockWriter):
    """A file that is being written beside its place."""

    def __init__(self, system: Any, path: str) -> None:
        self._system, self._path = system, path
        self._partial = f"{path}.partial-{secrets.token_hex(4)}"
        with contextlib.suppress(Exception):  # stores of objects have no folders to make
            system.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._file = system.open(self._partial, "wb")

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """Take more bytes; returns how many."""
        return int(self._file.write(data))

    def close(self) -> None:
        """Put the file into its place."""
        if not self._file.closed:
            self._file.close()
            self._system.mv(self._partial, self._path)

    def abort(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(Exception):
            self._file.close()
        with contextlib.suppress(Exception):
            self._system.rm_file(self._partial)


def _stat(info: Any) -> Stat:
    if info.get("type") == "directory":
        raise FileNotFoundError(info.get("name"))
    tag = next((info[name] for name in _TAG_FIELDS if info.get(name)), None)
    return Stat(int(info["size"]), None if tag is None else str(tag))
