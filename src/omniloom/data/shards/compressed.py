"""Compressed archives, read forward only: member by member, or unpacked into a plain tar."""

from __future__ import annotations

import bz2
import errno
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from omniloom.data.shards.archive_file import Window, refuse_headers
from omniloom.data.shards.compression import COMPRESSION_MAGICS, READABLE_COMPRESSIONS, compression_of
from omniloom.data.shards.extended import Globals
from omniloom.data.shards.header import BLOCK_BYTES
from omniloom.data.shards.tar import TarWalk, check_first_block, read_members, walk_tar
from omniloom.errors import ConfigError, ShardError, StorageError
from omniloom.storage.files import TEMPORARY_SUFFIX, remove_file, storage_error
from omniloom.storage.range_file import RangeFile, open_range
from omniloom.storage.urls import is_url, redacted

MEMBER_LIMIT_BYTES = 4 << 30

_INPUT_BYTES = 16 << 10  # small, so that what a bomb unpacks to at once stays bounded
_CHUNK_BYTES = 1 << 20


def _opened(path: str) -> BinaryIO | RangeFile:
    """A file of this machine, or an object read forward in ranges."""
    return open_range(path) if is_url(path) else Path(path).open("rb")


class _Decompressor(Protocol):
    """What the decompressor objects of zlib, bz2, lzma and zstandard have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def unpacked_chunks(path: str | os.PathLike[str], *, shard: str) -> Iterator[bytes]:
    """The content of a compressed file, piece by piece; files of several frames or streams are one content.

    Raises:
        ShardError: ``missing-shard``; ``not-compressed``; ``compressed`` for a compression that is not read here;
            ``truncated`` when the last frame does not end; ``bad-compression`` when a frame is damaged.
        ConfigError: the library for Zstandard is not installed.
        StorageError: the file cannot be read.
    """
    path = os.fspath(path)
    try:
        with _opened(path) as file:
            data = file.read(_INPUT_BYTES)
            make, errors = _decompressor_for(data, shard=shard)
            decompressor: _Decompressor | None = make()
            read_bytes = len(data)
            while data or (data := file.read(_INPUT_BYTES)):
                read_bytes = max(read_bytes, file.tell())
                if decompressor is None and not data.strip(b"\0"):
                    data = b""  # writers to tape pad with zeros
                    continue
                decompressor = decompressor or make()
                try:
                    chunk = decompressor.decompress(data)
                except errors as error:
                    raise _damaged(error, file.tell(), shard=shard) from error
                if chunk:
                    yield chunk
                data = decompressor.unused_data if decompressor.eof else b""
                decompressor = None if decompressor.eof else decompressor
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise ShardError(
                f"{shard}: there is no file {redacted(path)}. Check the path.", shard=shard, reason="missing-shard"
            ) from error
        raise error if isinstance(error, StorageError) else storage_error("read", path, error) from error
    if decompressor is not None:
        raise ShardError(
            f"{shard}: the compressed file is cut: its {read_bytes:,} bytes end inside a compressed frame. "
            "Copy or make the file again.",
            shard=shard,
            reason="truncated",
            offset_bytes=read_bytes,
        )


def read_compressed(path: str | os.PathLike[str], *, shard: str) -> Iterator[tuple[str, bytes]]:
    """Name and payload of every file in a compressed archive, in order, without unpacking it to the disk.

    Hard links, symbolic links and directories have no payload of their own and are left out.

    Raises:
        ShardError: as `unpacked_chunks` and `walk_tar`, with bytes of the unpacked archive; ``too-large`` for a
            member of more than 4 GiB.
    """
    window = _StreamWindow(unpacked_chunks(path, shard=shard), shard=shard)
    check_first_block(window.take(0, BLOCK_BYTES), shard=shard, path=os.fspath(path))
    defaults = Globals()
    end = 0
    for member in read_members(window, 0, sys.maxsize, shard=shard, defaults=defaults):
        end = member.stop
        if member.kind != "file":
            continue
        size_bytes = member.stop - member.start
        if size_bytes > MEMBER_LIMIT_BYTES:
            raise ShardError(
                f"{shard}: member {member.name!r} has {size_bytes:,} bytes; at most {MEMBER_LIMIT_BYTES:,} are read at "
                "once. Unpack the archive to a plain tar instead.",
                shard=shard,
                reason="too-large",
                offset_bytes=member.header_start,
            )
        payload = window.take(member.start, size_bytes)
        if len(payload) < size_bytes:
            raise ShardError(
                f"{shard}: the archive is cut inside member {member.name!r}: {size_bytes - len(payload):,} of its "
                f"{size_bytes:,} bytes are missing. Copy or make the file again.",
                shard=shard,
                reason="truncated",
                offset_bytes=member.header_start,
            )
        yield member.name, payload
    _check_rest(window, max(-(-end // BLOCK_BYTES) * BLOCK_BYTES, defaults.stop), shard=shard)


def recompress_to_tar(
    source: str | os.PathLike[str], target: str | os.PathLike[str], *, shard: str | None = None
) -> TarWalk:
    """Unpack a compressed archive into a plain tar: the same archive, byte for byte, there complete or not at all.

    Args:
        source: the compressed archive.
        target: the plain one; an old file of that name is replaced.
        shard: name of the source in messages; its path by default.

    Returns:
        The finished walk over the archive, which was checked from end to end before it got its name.

    Raises:
        ShardError: as `unpacked_chunks` and `walk_tar`.
        StorageError: the target cannot be written. Nothing is left of it.
    """
    shard = os.fspath(source) if shard is None else shard
    partial = Path(f"{os.fspath(target)}{TEMPORARY_SUFFIX}")
    try:
        _write(partial, unpacked_chunks(source, shard=shard))
        walk = walk_tar(partial, shard=shard)
        for _ in walk:
            pass
        partial.replace(target)
    except BaseException as error:
        remove_file(partial)
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise storage_error("write", target, error) from error
        raise
    return walk


def _write(path: Path, chunks: Iterator[bytes]) -> None:
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


class _StreamWindow(Window):
    """A window that moves forward over pieces that come one after the other."""

    __slots__ = ("_chunks", "_shard")

    def __init__(self, chunks: Iterator[bytes], *, shard: str) -> None:
        super().__init__(b"", 0)
        self._chunks = chunks
        self._shard = shard

    def take(self, start: int, length: int) -> bytes:
        """Bytes ``[start, start + length)``, fewer where the stream ends; what lies 1 MiB behind is given up."""
        have = self.base + len(self.data)
        pieces = []
        while have < start + length and (chunk := next(self._chunks, b"")):
            have += len(chunk)
            pieces.append(chunk)
            if have < start - _CHUNK_BYTES:  # a payload nobody asked for
                self.data, self.base, pieces = b"", have, []
        if have < start:
            raise ShardError(
                f"{self._shard}: the archive is cut: its unpacked content ends at byte {have:,}, inside a member that "
                f"reaches to byte {start:,}. Copy or make the file again.",
                shard=self._shard,
                reason="truncated",
                offset_bytes=have,
            )
        if pieces:
            dropped = max(0, start - _CHUNK_BYTES - self.base)
            self.data = b"".join((self.data, *pieces))[dropped:]
            self.base += dropped
        at = start - self.base
        if at < 0:
            raise ShardError(
                f"{self._shard}: the headers of the member before byte {start:,} are too long. Make the archive again.",
                shard=self._shard,
                reason="bad-header",
                offset_bytes=start,
            )
        return self.data[at : at + length]


def _check_rest(window: _StreamWindow, position: int, *, shard: str) -> None:
    """Read to the end of the stream; a damaged frame or a second archive shows there."""
    while chunk := window.take(position, _CHUNK_BYTES):
        refuse_headers(chunk, position, shard=shard)
        position += len(chunk)


def _decompressor_for(head: bytes, *, shard: str) -> tuple[Callable[[], _Decompressor], tuple[type[Exception], ...]]:
    """What makes a decompressor for a file that begins so, and what it raises for damaged data."""
    compression = compression_of(head)
    if compression == "gzip":
        return lambda: zlib.decompressobj(wbits=31), (zlib.error,)
    if compression == "bzip2":
        return bz2.BZ2Decompressor, (OSError, ValueError)
    if compression == "xz":
        return lzma.LZMADecompressor, (lzma.LZMAError,)
    if compression == "zstd":
        try:
            import zstandard  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigError(
                f"{shard}: reading Zstandard needs the library 'zstandard', which is not installed. "
                "Install it: pip install 'omniloom[zstd]'."
            ) from error
        return lambda: zstandard.ZstdDecompressor().decompressobj(), (zstandard.ZstdError,)
    expected = ", ".join(f"{name} ({COMPRESSION_MAGICS[name]!r})" for name in READABLE_COMPRESSIONS)
    raise ShardError(
        f"{shard}: the file begins with {head[:8]!r}, which is no compression that can be unpacked here; expected "
        f"{expected}." + (" It is empty." if not head else ""),
        shard=shard,
        reason="compressed" if compression else "not-compressed",
        offset_bytes=0,
    )


def _damaged(error: Exception, offset_bytes: int, *, shard: str) -> ShardError:
    return ShardError(
        f"{shard}: the compressed data are damaged before byte {offset_bytes:,}: {error}. Copy or make the file again.",
        shard=shard,
        reason="bad-compression",
        offset_bytes=offset_bytes,
    )
