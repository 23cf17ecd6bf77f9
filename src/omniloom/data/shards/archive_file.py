"""Bytes of an archive: opening it, reading ahead through a window, and what lies after its end.

An archive is a file of the local disk, or an object of a store (see `remote_archive`); readers see no difference.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from omniloom.data.shards.header import BLOCK_BYTES, ZERO_BLOCK, checksum_holds
from omniloom.errors import ShardError, StorageError
from omniloom.storage.files import storage_error
from omniloom.storage.open import open_store
from omniloom.storage.urls import is_url

KEPT_BYTES = 4 << 20
"""Bytes of an archive in a store that are kept after they were read, in case that they are asked for again."""

_SHORTEST_WINDOW_BYTES = 4 << 10
_LONGEST_WINDOW_BYTES = 1 << 20
_ZERO_CHUNK = bytes(_LONGEST_WINDOW_BYTES)
_MAGIC = b"ustar"
_MAGIC_AT = 257


class FileMark(NamedTuple):
    """What changes when a file is written again.

    Attributes:
        size_bytes: its size.
        mtime_ns: time of its last change, in nanoseconds since 1970; of an object, a number made of its ETag.
        etag: what a store calls this state of an object; empty on a disk.
    """

    size_bytes: int
    mtime_ns: int
    etag: str = ""

    @property
    def state(self) -> str:
        """What its store calls this state of an object, in short; empty on a disk."""
        return f"{self.mtime_ns:x}" if self.etag else ""


class Archive(Protocol):
    """An open archive.

    Attributes:
        path: path or URL, for messages.
    """

    path: str

    @property
    def pread(self) -> Callable[[int, int], bytes]:
        """``(length, start)`` to up to so many bytes; the quickest way there is, which may give fewer."""

    def mark(self) -> FileMark:
        """Size and time of the last change."""

    def read(self, length: int, start: int) -> bytes:
        """Up to ``length`` bytes from ``start``; fewer only where the archive ends. Raises StorageError."""

    def read_many(self, starts: Sequence[int], length: int) -> list[bytes]:
        """As `read` at each of some places, as quick as the medium gives them."""

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """As `read` for each of some ranges ``[start, stop)`` within the archive, near ones together."""

    def window(self) -> Window:
        """A window that follows reads through the archive, forward."""

    def next_data(self, position: int, size_bytes: int) -> int:
        """The block at or after a position that is not known to be empty."""

    def close(self) -> None:
        """Let go of it."""


class LocalArchive:
    """An archive on the local disk. It closes when the last reader lets go of it, so that no thread reads from a
    number that is used again.

    Args:
        descriptor: the open file, which it owns from now on.
        path: the file, for messages.
    """

    __slots__ = ("__weakref__", "_descriptor", "path", "pread")

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self.path = path
        self.pread: Callable[[int, int], bytes] = partial(os.pread, descriptor)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # os may be gone where the interpreter ends
        if self._descriptor >= 0:
            close(self._descriptor)

    def mark(self) -> FileMark:
        """Size and time of the last change."""
        status = os.fstat(self._descriptor)
        return FileMark(status.st_size, status.st_mtime_ns)

    def read(self, length: int, start: int) -> bytes:
        """Up to ``length`` bytes from ``start``; fewer only where the file ends. Raises StorageError."""
        return read_at(self._descriptor, length, start, path=self.path)

    def read_many(self, starts: Sequence[int], length: int) -> list[bytes]:
        """As `read` at each of some places."""
        return [self.read(length, start) for start in starts]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """As `read` for each of some ranges."""
        return [self.read(stop - start, start) for start, stop in ranges]

    def window(self) -> Window:
        """A window that follows reads through the file, forward."""
        return FileWindow(self)

    def next_data(self, position: int, size_bytes: int) -> int:
        """The block at or after a position that the disk holds; holes of a sparse file are jumped over."""
        try:
            data = os.lseek(self._descriptor, position, os.SEEK_DATA)
        except OSError as error:
            return size_bytes if error.errno == errno.ENXIO else position
        return max(position, position + (data - position) // BLOCK_BYTES * BLOCK_BYTES)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def open_archive(path: str, *, shard: str, kept_bytes: int = KEPT_BYTES) -> Archive:
    """Open an archive by path or URL.

    Args:
        path: the archive.
        shard: its name, for messages.
        kept_bytes: of an archive in a store, what its windows brought is kept up to so many bytes.

    Raises:
        ShardError: ``missing-shard``.
        StorageError: it cannot be opened for another reason.
    """
    if is_url(path):
        from omniloom.data.shards.remote_archive import RemoteArchive  # noqa: PLC0415 - local sets need no store

        archive = RemoteArchive(path, kept_bytes=kept_bytes)
        try:
            archive.stat()
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            raise missing_shard(path, shard=shard) from error
        return archive
    try:
        return LocalArchive(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)
    except FileNotFoundError as error:
        raise missing_shard(path, shard=shard) from error
    except OSError as error:
        raise storage_error("open", path, error) from error


def mark_at(path: str) -> FileMark:
    """The mark of a file by path or URL. Raises OSError; StorageError is one."""
    if not is_url(path):
        status = os.stat(path)  # noqa: PTH116 - once a shard
        return FileMark(status.st_size, status.st_mtime_ns)
    from omniloom.data.shards.remote_archive import mark_of  # noqa: PLC0415 - local sets need no store

    return mark_of(open_store(path).stat(path))


def missing_shard(path: str, *, shard: str) -> ShardError:
    """The error of a shard that is not there."""
    return ShardError(
        f"{shard}: there is no file {path}. Bring it back, or run `omniloom prepare` again without it.",
        shard=shard,
        reason="missing-shard",
    )


def read_at(descriptor: int, length: int, start: int, *, path: str) -> bytes:
    """Up to ``length`` bytes from ``start``; fewer only where the file ends.

    Raises:
        StorageError: the system refuses the read.
    """
    try:
        data = os.pread(descriptor, length, start)
        if len(data) == length or not data:
            return data
        pieces = [data]  # one call gives at most 2 GiB on Linux
        have = len(data)
        while have < length and (data := os.pread(descriptor, length - have, start + have)):
            pieces.append(data)
            have += len(data)
    except OverflowError:
        return b""  # no file has a byte there
    except OSError as error:
        raise StorageError(
            f"{path}: bytes {start:,} to {start + length:,} cannot be read: {error.strerror}."
        ) from error
    return b"".join(pieces)


class Window:
    """A piece of an archive in memory.

    Attributes:
        data: bytes of the archive.
        base: where in the archive they begin.
    """

    __slots__ = ("base", "data")

    def __init__(self, data: bytes, base: int) -> None:
        self.data = data
        self.base = base

    def take(self, start: int, length: int) -> bytes:
        """Bytes ``[start, start + length)``, fewer where the archive ends."""
        at = start - self.base
        return self.data[at : at + length]


class FileWindow(Window):
    """A window that follows reads through a file, forward.

    It doubles while reads follow each other closely and halves while they jump: small members are read in one
    stream, and long payloads are not read.
    """

    __slots__ = ("_archive", "_length")

    def __init__(self, archive: Archive) -> None:
        super().__init__(b"", 0)
        self._archive = archive
        self._length = _SHORTEST_WINDOW_BYTES

    def take(self, start: int, length: int) -> bytes:
        """Bytes ``[start, start + length)``, fewer where the file ends."""
        at = start - self.base
        if at < 0 or at + length > len(self.data):
            self._refill(start, length)
            at = 0
        return self.data[at : at + length]

    def _refill(self, start: int, length: int) -> None:
        jumped = start - self.base - len(self.data) > _SHORTEST_WINDOW_BYTES
        longer = self._length // 2 if jumped else self._length * 2
        self._length = min(max(longer, _SHORTEST_WINDOW_BYTES), _LONGEST_WINDOW_BYTES)
        self.base = start
        self.data = self._archive.read(max(length, self._length), start)


def check_tail(archive: Archive, window: Window, start: int, size_bytes: int, *, shard: str) -> tuple[bool, int]:
    """Look at what follows the last member of an archive.

    Args:
        archive: the open archive.
        window: a window on it, which may hold its end already.
        start: byte after the last member.
        size_bytes: size of the archive.
        shard: name of the shard, for messages.

    Returns:
        Whether two zero blocks end the archive, and how many bytes follow from the first that is not zero. POSIX
        leaves the rest of the last record undefined, so such bytes are legal when they hold no member.

    Raises:
        ShardError: ``concatenated`` when a tar header lies there; ``trailing-data`` when other bytes follow a
            single zero block.
    """
    has_end_marker = window.take(start, 2 * BLOCK_BYTES) == 2 * ZERO_BLOCK
    first_byte = -1
    position = start
    while (position := archive.next_data(position, size_bytes)) < size_bytes:
        chunk = window.take(position, min(len(_ZERO_CHUNK), size_bytes - position))
        if not chunk:
            break
        if chunk != _ZERO_CHUNK[: len(chunk)]:
            if first_byte < 0:
                first_byte = position + len(chunk) - len(chunk.lstrip(b"\0"))
            refuse_headers(chunk, position, shard=shard)
        position += len(chunk) if len(chunk) < len(_ZERO_CHUNK) else len(chunk) - BLOCK_BYTES
    if first_byte >= 0 and not has_end_marker:
        raise ShardError(
            f"{shard}: the members end at byte {start:,} with one zero block, but other bytes follow at byte "
            f"{first_byte:,}; expected two zero blocks. A header may have been wiped; make the archive again.",
            shard=shard,
            reason="trailing-data",
            offset_bytes=first_byte,
        )
    return has_end_marker, size_bytes - first_byte if first_byte >= 0 else 0


def refuse_headers(chunk: bytes, position: int, *, shard: str) -> None:
    """Look for tar headers in a chunk after the end of an archive, in step with its blocks or not.

    Raises:
        ShardError: ``concatenated``: there is one.
    """
    candidates = list(range(0, len(chunk), BLOCK_BYTES))
    at = chunk.find(_MAGIC)
    while at >= 0:
        candidates.append(at - _MAGIC_AT)
        at = chunk.find(_MAGIC, at + 1)
    for at in sorted(candidates):
        block = chunk[at : at + BLOCK_BYTES] if at >= 0 else b""
        if block != ZERO_BLOCK and checksum_holds(block):
            raise ShardError(
                f"{shard}: another tar header follows the end of the archive at byte {position + at:,}: two archives "
                "were joined, or a header before it was wiped. Its members would be lost; join with `tar -A` or "
                "keep the archives apart.",
                shard=shard,
                reason="concatenated",
                offset_bytes=position + at,
            )
