"""Bytes of an archive on the local disk: opening it, reading ahead through a window, and what lies after its end."""

from __future__ import annotations

import errno
import os

from omniloom.data.shards.header import BLOCK_BYTES, ZERO_BLOCK, checksum_holds
from omniloom.errors import ShardError, StorageError
from omniloom.storage.files import storage_error

_SHORTEST_WINDOW_BYTES = 4 << 10
_LONGEST_WINDOW_BYTES = 1 << 20
_ZERO_CHUNK = bytes(_LONGEST_WINDOW_BYTES)
_MAGIC = b"ustar"
_MAGIC_AT = 257


def open_archive(path: str, *, shard: str) -> int:
    """Open a file for reading; returns its descriptor.

    Raises:
        ShardError: ``missing-shard``.
        StorageError: it cannot be opened for another reason.
    """
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise ShardError(
            f"{shard}: there is no file {path}. Bring it back, or run `omniloom prepare` again without it.",
            shard=shard,
            reason="missing-shard",
        ) from error
    except OSError as error:
        raise storage_error("open", path, error) from error


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

    __slots__ = ("_descriptor", "_length", "_path")

    def __init__(self, descriptor: int, *, path: str) -> None:
        super().__init__(b"", 0)
        self._descriptor = descriptor
        self._path = path
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
        self.data = read_at(self._descriptor, max(length, self._length), start, path=self._path)


def check_tail(descriptor: int, start: int, size_bytes: int, *, shard: str, path: str) -> tuple[bool, int]:
    """Look at what follows the last member of an archive.

    Args:
        descriptor: the open file.
        start: byte after the last member.
        size_bytes: size of the file.
        shard: name of the shard, for messages.
        path: path of the file, for messages.

    Returns:
        Whether two zero blocks end the archive, and how many bytes follow from the first that is not zero. POSIX
        leaves the rest of the last record undefined, so such bytes are legal when they hold no member.

    Raises:
        ShardError: ``concatenated`` when a tar header lies there; ``trailing-data`` when other bytes follow a
            single zero block.
    """
    has_end_marker = read_at(descriptor, 2 * BLOCK_BYTES, start, path=path) == 2 * ZERO_BLOCK
    first_byte = -1
    position = start
    while (position := _next_data(descriptor, position, size_bytes)) < size_bytes:
        chunk = read_at(descriptor, len(_ZERO_CHUNK), position, path=path)
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


def _next_data(descriptor: int, position: int, size_bytes: int) -> int:
    """The block at or after a position that the disk holds; holes of a sparse file are jumped over."""
    try:
        data = os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        return size_bytes if error.errno == errno.ENXIO else position
    return max(position, position + (data - position) // BLOCK_BYTES * BLOCK_BYTES)


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
