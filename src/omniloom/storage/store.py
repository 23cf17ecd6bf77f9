"""The protocol that every store of bytes answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

Range = tuple[int, int]
"""First byte, and the byte after the last one."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What a store says of an object without giving its bytes.

    Attributes:
        size_bytes: its size.
        etag: changes when the object does; ``None`` where the store tells none.
    """

    size_bytes: int
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of a listing.

    Attributes:
        url: its path or URL.
        size_bytes: its size.
        etag: as in `Stat`; listings of some stores leave it out.
    """

    url: str
    size_bytes: int
    etag: str | None = None


class Writer(Protocol):
    """An object that is being written: it is there, complete, after `close`, and not at all after `abort`.

    Leaving its ``with`` block closes it, by an exception aborts it.
    """

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """Take more bytes; returns how many."""

    def close(self) -> None:
        """Finish: readers see the whole object from now on. Raises StorageError."""

    def abort(self) -> None:
        """Give up: nothing is left behind, and what was there before stays."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Store(Protocol):
    """A place that holds bytes under URLs (for the local disk: plain paths). Every method may be called by any thread.

    A missing object is a StorageError whose ``errno`` is ``ENOENT``; an object that changed under a reader is an
    ObjectChangedError.
    """

    def read(self, url: str, start: int = 0, stop: int | None = None, *, etag: str | None = None) -> bytes:
        """Bytes ``[start, stop)`` of an object; to its end without ``stop``.

        Args:
            url: the object.
            start: first byte.
            stop: byte after the last one.
            etag: what it was when it was looked at; another one now is an error.

        Raises:
            StorageError: the object is missing, unreadable or shorter than ``stop``.
            ObjectChangedError: it is not the one that was looked at.
        """

    def read_ranges(self, url: str, ranges: Sequence[Range], *, etag: str | None = None) -> list[bytes]:
        """Many ranges of one object, in the order asked for. Neighbours are fetched together, all in parallel.

        Raises as `read` does.
        """

    def seen_etag(self, url: str) -> str | None:
        """The ETag that an object had when this process first read or looked at it; ``None`` where none was told."""

    def stat(self, url: str) -> Stat:
        """Size and ETag. Raises StorageError when there is no such object."""

    def size(self, url: str) -> int:
        """Size in bytes. Raises StorageError when there is no such object."""

    def exists(self, url: str) -> bool:
        """Whether there is such an object. A folder is none (see `is_folder`)."""

    def is_folder(self, url: str) -> bool:
        """Whether anything lies below it."""

    def list(self, prefix: str) -> Iterator[str]:
        """URLs of all objects below a folder, in sorted order."""

    def scan(self, prefix: str) -> Iterator[Entry]:
        """All objects below a folder with their sizes, sorted. Raises StorageError where listing is refused."""

    def entries(self, prefix: str) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
        """What lies directly in a folder: objects as `scan` gives them, and names of folders; each sorted."""

    def children(self, prefix: str) -> tuple[str, ...]:
        """Names of the objects and, with a slash at the end, of the folders directly in a folder, sorted."""

    def write(self, url: str, data: bytes) -> None:
        """Write a whole object atomically: it is there complete or not at all."""

    def open_writer(self, url: str) -> Writer:
        """Write an object piece by piece, in bounded memory; it is there, complete, when the writer is closed."""

    def delete(self, url: str) -> None:
        """Remove an object; one that is not there is removed already."""
