"""The protocol that every store of bytes answers, and the table of URL schemes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class Store(Protocol):
    """A place that holds bytes under URLs (for the local disk: plain paths)."""

    def read(self, url: str, start: int = 0, stop: int | None = None) -> bytes:
        """Bytes ``[start, stop)`` of an object; all of it without ``stop``.

        Raises:
            StorageError: the object is missing, unreadable or shorter than ``stop``.
        """

    def size(self, url: str) -> int:
        """Size in bytes. Raises StorageError when there is no such object."""

    def list(self, prefix: str) -> Iterator[str]:
        """URLs of all objects below a prefix (a folder), in sorted order."""

    def write(self, url: str, data: bytes) -> None:
        """Write a whole object atomically: it is there complete or not at all."""
