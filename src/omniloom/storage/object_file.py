"""An object of a store as a file for libraries that know which long ranges they want."""

from __future__ import annotations

import io
import os

from omniloom.storage.open import open_store
from omniloom.storage.range_file import RangeFile

LONG_BYTES = 128 << 10


class ObjectFile(io.RawIOBase):
    """A read-only file whose long reads are one range each, and whose short ones share blocks.

    Args:
        url: the object.

    Raises:
        StorageError: there is none.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._store = open_store(url)
        self._stat = self._store.stat(url)
        self._blocks = RangeFile(self._fetch, size_bytes=self._stat.size_bytes, name=url)

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The position in bytes."""
        return self._blocks.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position; nothing is fetched."""
        return self._blocks.seek(offset, whence)

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to ``size`` bytes from the position; fewer only where the object ends. Raises StorageError."""
        start = self.tell()
        left = max(0, self._stat.size_bytes - start)
        length = left if size is None or size < 0 else min(size, left)
        if length < LONG_BYTES:
            return self._blocks.read(length)
        self.seek(start + length)
        return self._fetch(start, start + length)

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Fill a buffer; returns how many bytes came."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _fetch(self, start: int, stop: int) -> bytes:
        return self._store.read(self._url, start, stop, etag=self._stat.etag)
