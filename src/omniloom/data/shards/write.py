"""Writes tar archives: the same bytes for the same members, complete or not at all."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from types import TracebackType

from omniloom.data.shards.header import ZERO_BLOCK, padded
from omniloom.data.shards.tar import Member
from omniloom.errors import ConfigError, StorageError
from omniloom.storage.files import TEMPORARY_SUFFIX

RECORD_BYTES = 10_240
"""Archives end at a multiple of this, as GNU tar and Python write them."""


class TarWriter:
    """Writes one archive under a temporary name, and gives it its own when it is closed without an error.

    Members have time 0, owner 0 and mode 644: the bytes follow from names and payloads alone. Names that do not fit
    a ustar header, or are not ASCII, get a PAX header.

    Args:
        path: the archive; an old one is replaced.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._partial = self._path.with_name(self._path.name + TEMPORARY_SUFFIX)
        self._position = 0
        try:
            self._file = self._partial.open("wb")
        except OSError as error:
            raise StorageError(f"{self._partial}: cannot be written: {error.strerror}") from error

    @property
    def size_bytes(self) -> int:
        """Bytes written so far, without the end of the archive."""
        return self._position

    def add(self, name: str, data: bytes) -> Member:
        """Append a member.

        Returns:
            where it lies.

        Raises:
            ConfigError: a name that no file can have: empty, or with a NUL byte.
            StorageError: it cannot be written.
        """
        if not name or "\0" in name:
            raise ConfigError(
                f"{self._path}: {name!r} cannot be the name of a member. Give it at least one letter, no NUL."
            )
        info = tarfile.TarInfo(name)
        info.size = len(data)
        header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        header_start = self._position
        start = header_start + len(header)
        self._write(header)
        self._write(data)
        self._write(bytes(padded(len(data)) - len(data)))
        return Member(name, "file", header_start, start, start + len(data), "")

    def close(self) -> None:
        """End the archive and give it its name."""
        self._write(ZERO_BLOCK * 2)
        self._write(bytes(-self._position % RECORD_BYTES))
        try:
            self._file.close()
            self._partial.replace(self._path)
        except OSError as error:
            self.abandon()
            raise StorageError(f"{self._path}: cannot be written: {error.strerror}") from error

    def abandon(self) -> None:
        """Remove what was written."""
        self._file.close()
        self._partial.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise StorageError(f"{self._partial}: cannot be written: {error.strerror}") from error
        self._position += len(data)

    def __enter__(self) -> TarWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()
