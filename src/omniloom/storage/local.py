"""The local disk as a store: plain paths."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from omniloom.errors import StorageError


class LocalStore:
    """Files by path. Relative paths are taken from the working folder."""

    def read(self, url: str, start: int = 0, stop: int | None = None) -> bytes:
        """Bytes ``[start, stop)`` of a file; to its end without ``stop``.

        Raises:
            StorageError: missing, unreadable, or shorter than ``stop``.
        """
        try:
            with Path(url).open("rb") as file:
                file.seek(start)
                data = file.read() if stop is None else file.read(stop - start)
        except OSError as error:
            raise StorageError(f"{url}: cannot be read: {error.strerror or error}") from error
        if stop is not None and len(data) != stop - start:
            raise StorageError(f"{url}: {len(data)} bytes found at byte {start}, {stop - start} expected")
        return data

    def size(self, url: str) -> int:
        """Size in bytes. Raises StorageError when there is no such file."""
        try:
            return Path(url).stat().st_size
        except OSError as error:
            raise StorageError(f"{url}: {error.strerror or error}") from error

    def list(self, prefix: str) -> Iterator[str]:
        """Paths of all files below a folder, sorted."""
        root = Path(prefix)
        if not root.is_dir():
            raise StorageError(f"{prefix}: no such folder")
        yield from sorted(str(path) for path in root.rglob("*") if path.is_file())

    def write(self, url: str, data: bytes) -> None:
        """Write a file: it is there complete or not at all. Missing folders are made."""
        path = Path(url)
        partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(data)
            partial.replace(path)
        except OSError as error:
            raise StorageError(f"{url}: cannot be written: {error.strerror or error}") from error
        finally:
            partial.unlink(missing_ok=True)
