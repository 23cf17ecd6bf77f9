"""The local disk as a store: plain paths, and ``file://``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from omniloom.errors import ObjectChangedError, StorageError
from omniloom.storage.messages import storage_error
from omniloom.storage.store import Entry, Range, Stat
from omniloom.storage.urls import join_url
from omniloom.storage.writing import BlockWriter


def file_path(url: str) -> str:
    """The plain path of a ``file://`` URL; of a plain path, itself."""
    if not url.startswith("file://"):
        return url
    host, _, path = url.removeprefix("file://").partition("/")
    if host not in ("", "localhost"):
        raise StorageError(f"{url}: names the host {host!r}; files lie on this machine: file:///path")
    return "/" + unquote(path.partition("?")[0])


def versioned_path(url: str) -> str:
    """The plain path of Energon's legacy ``dss://NAME@VERSION/PATH``: below the folder ``NVDATASET_CACHE_DIR``.

    Raises:
        StorageError: the variable is not set, there is no version, or the path climbs out.
    """
    root = os.environ.get("NVDATASET_CACHE_DIR")
    if not root:
        raise StorageError(f"{url}: such URLs lie below the folder that NVDATASET_CACHE_DIR names; it is not set.")
    name, at, rest = url.removeprefix("dss://").partition("@")
    if not at or not name or not rest:
        raise StorageError(f"{url}: dss://NAME@VERSION/PATH expected")
    return join_url(root, f"{name}/{rest}")


class LocalStore:
    """Files by path. Relative paths are taken from the working folder.

    Args:
        path_of: the plain path of a URL.
    """

    def __init__(self, path_of: Callable[[str], str] = file_path) -> None:
        self._path_of = path_of

    def read(self, url: str, start: int = 0, stop: int | None = None, *, etag: str | None = None) -> bytes:
        """Bytes ``[start, stop)`` of a file; to its end without ``stop``. Raises as `Store.read`."""
        with self._open(url) as file:
            self._check(url, file, etag)
            return self._read(url, file, start, stop)

    def read_ranges(self, url: str, ranges: Sequence[Range], *, etag: str | None = None) -> list[bytes]:
        """Many ranges of a file, in the order asked for."""
        with self._open(url) as file:
            self._check(url, file, etag)
            return [self._read(url, file, start, stop) for start, stop in ranges]

    def seen_etag(self, url: str) -> str | None:
        """None: nothing is kept of files that were read."""
        return None

    def stat(self, url: str) -> Stat:
        """Size, and the time of the last change for an ETag."""
        try:
            return _stat(os.stat(self._path_of(url)))  # noqa: PTH116 - texts
        except OSError as error:
            raise storage_error("look at", url, error) from error

    def size(self, url: str) -> int:
        """Size in bytes. Raises StorageError when there is no such file."""
        return self.stat(url).size_bytes

    def exists(self, url: str) -> bool:
        """Whether there is such a file."""
        return os.path.isfile(self._path_of(url))  # noqa: PTH113 - texts

    def is_folder(self, url: str) -> bool:
        """Whether it is a folder."""
        return os.path.isdir(self._path_of(url))  # noqa: PTH112 - texts

    def list(self, prefix: str) -> Iterator[str]:
        """Paths of all files below a folder, sorted."""
        return (entry.url for entry in self.scan(prefix))

    def scan(self, prefix: str) -> Iterator[Entry]:
        """All files below a folder with their sizes, sorted by path."""
        root = Path(self._path_of(prefix))
        if not root.is_dir():
            raise StorageError(f"{prefix}: no such folder")
        base = prefix.rstrip("/") if prefix.strip("/") else prefix
        found = sorted(path for path in root.rglob("*") if path.is_file())
        for path in found:
            stat = _stat(path.stat())
            name = path.relative_to(root).as_posix()
            yield Entry(f"{base}/{name}" if base else name, stat.size_bytes, stat.etag)

    def entries(self, prefix: str) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
        """The files directly in a folder, and names of its folders."""
        base = prefix.rstrip("/")
        names = self.children(prefix)
        stats = [(f"{base}/{name}", self.stat(f"{base}/{name}")) for name in names if not name.endswith("/")]
        files = tuple(Entry(url, stat.size_bytes, stat.etag) for url, stat in stats)
        return files, tuple(name.rstrip("/") for name in names if name.endswith("/"))

    def children(self, prefix: str) -> tuple[str, ...]:
        """Names in a folder, those of folders with a slash at the end."""
        try:
            with os.scandir(self._path_of(prefix)) as found:
                return tuple(sorted(entry.name + "/" * entry.is_dir() for entry in found))
        except OSError as error:
            raise storage_error("list", prefix, error) from error

    def write(self, url: str, data: bytes) -> None:
        """Write a file: it is there complete or not at all. Missing folders are made."""
        with self.open_writer(url) as writer:
            writer.write(data)

    def open_writer(self, url: str) -> LocalWriter:
        """Write a file piece by piece, under another name until it is closed. Missing folders are made."""
        return LocalWriter(self._path_of(url))

    def delete(self, url: str) -> None:
        """Remove a file."""
        try:
            os.unlink(self._path_of(url))  # noqa: PTH108 - texts
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error("remove", url, error) from error

    def _open(self, url: str) -> BinaryIO:
        try:
            return open(self._path_of(url), "rb")  # noqa: PTH123 - texts
        except OSError as error:
            raise storage_error("read", url, error) from error

    def _check(self, url: str, file: BinaryIO, etag: str | None) -> None:
        if etag is not None and (now := _stat(os.fstat(file.fileno())).etag) != etag:
            raise ObjectChangedError(url, expected=etag, found=now)

    def _read(self, url: str, file: BinaryIO, start: int, stop: int | None) -> bytes:
        try:
            file.seek(start)
            data = file.read() if stop is None else file.read(stop - start)
        except OSError as error:
            raise storage_error("read", url, error) from error
        if stop is not None and len(data) != stop - start:
            raise StorageError(f"{url}: {len(data)} bytes found at byte {start}, {stop - start} expected")
        return data


class LocalWriter(BlockWriter):
    """A file that is being written beside its place."""

    def __init__(self, path: str) -> None:
        self._target = Path(path)
        self._partial = self._target.with_name(f"{self._target.name}.partial-{os.getpid()}")
        try:
            self._target.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._partial.open("wb")
        except OSError as error:
            raise storage_error("write", path, error) from error

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """Take more bytes; returns how many."""
        try:
            return self._file.write(data)
        except OSError as error:
            self.abort()
            raise storage_error("write", self._target, error) from error

    def close(self) -> None:
        """Put the file into its place."""
        if self._file.closed:
            return
        try:
            self._file.close()
            self._partial.replace(self._target)
        except OSError as error:
            self.abort()
            raise storage_error("write", self._target, error) from error

    def abort(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._partial.unlink(missing_ok=True)


def _stat(found: os.stat_result) -> Stat:
    return Stat(found.st_size, f"{found.st_mtime_ns:x}-{found.st_size:x}")
